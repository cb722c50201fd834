"""The table of scores cut into tiles, and the threads that share them.

A tile is a block of queries against a block of keys, small enough for the cache of one core.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from threading import Lock
from typing import NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from mha_lib import masks

QUERIES, KEYS = 512, 1024  # the largest tile, 2 MB in float32: more work a step, less Python
DIAGONAL = 256  # queries of a tile on the diagonal: the smaller, the less is computed to be hidden
WORTH_THREADS = 2**18  # scores; starting threads for fewer takes longer than it saves

_one_pool = Lock()  # how many threads BLAS has is a setting of the whole process


class Tile(NamedTuple):
    """Queries ``rows`` against ``keys`` in one head, an index into the batch axes.

    On the ``diagonal`` the last query sees every key of the tile, each earlier one a key less.
    """

    head: tuple
    rows: slice
    keys: slice
    diagonal: bool

    def part(self, array):
        """What a mask or bias that broadcasts to (..., n_q, n_kv) holds here; axes of 1 stay."""
        *batch, n_q, n_kv = array.shape
        own = self.head[len(self.head) - len(batch) :]
        head = (0 if size == 1 else i for size, i in zip(batch, own, strict=True))
        rows, keys = (
            slice(None) if n == 1 else s for n, s in ((n_q, self.rows), (n_kv, self.keys))
        )
        return array[(*head, rows, keys)]

    def hidden(self, mask):
        """Where the queries may not attend, or None for nowhere."""
        n_q, n_kv = (s.stop - s.start for s in (self.rows, self.keys))
        future = _future(n_q, n_kv) if self.diagonal else None
        if mask is None:
            return future
        hidden = ~self.part(mask)
        return hidden if future is None else hidden | future


def blocks(batch, n_q):
    """Every head's queries in blocks: pairs of head and rows, the last rows first.

    With a causal mask the last rows have the most keys, and a thread should not begin them last.

    >>> list(blocks((2,), 600))[:2]
    [((0,), slice(512, 600, None)), ((1,), slice(512, 600, None))]
    """
    rows = cut(0, n_q, QUERIES)
    return [(head, block) for block in reversed(rows) for head in np.ndindex(*batch)]


def row_of_tiles(head, rows, n_q, n_kv, causal):
    """The tiles of a block of queries; with ``causal`` none that lies wholly in the future.

    On the diagonal the block is cut into tiles of fewer queries, each of which ends where its last
    query's sight does.

    >>> [(t.keys, t.diagonal) for t in row_of_tiles((), slice(2, 4), 4, 4, causal=True)]
    [(slice(0, 2, None), False), (slice(2, 4, None), True)]
    """
    if not causal:
        return [Tile(head, rows, keys, False) for keys in cut(0, n_kv, KEYS)]
    ahead = n_kv - n_q  # query i sees the keys before i + ahead + 1
    first = max(0, rows.start + ahead)
    parts = [
        (part, slice(first, part.stop + ahead)) for part in cut(rows.start, rows.stop, DIAGONAL)
    ]
    return [
        *(Tile(head, rows, keys, False) for keys in cut(0, first, KEYS)),
        *(Tile(head, part, keys, True) for part, keys in parts if keys.start < keys.stop),
    ]


def cut(start, stop, size):
    """Slices of ``size`` from start to stop; the last may be shorter.

    >>> cut(0, 5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(i, min(i + size, stop)) for i in range(start, stop, size)]


def share(work, tasks, scores):
    """Call work(iterator of tasks), in several threads that take turns if ``scores`` are many.

    Each thread's matrix products then stay on its own core; a single task leaves all cores to BLAS.
    """
    if len(tasks) < 2 or scores < WORTH_THREADS:
        return work(iter(tasks))
    with _one_pool:
        threads, queue = min(cores(), len(tasks)), iter(tasks)
        with _blas().limit(limits=1), ThreadPoolExecutor(threads) as pool:
            for thread in [pool.submit(work, queue) for _ in range(threads)]:
                thread.result()


def cores():
    """As many as BLAS would use, which the reader may have limited; 1 where nobody can tell it."""
    return max((library.num_threads for library in _blas().lib_controllers), default=1)


@lru_cache(maxsize=4)  # nearly all diagonal tiles have the same size
def _future(n_q, n_kv):
    return ~masks.causal(n_q, n_kv)


@cache
def _blas():
    return ThreadpoolController().select(user_api="blas")
