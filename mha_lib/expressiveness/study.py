"""The chapter's experiments, each one call: trained layers beside the bounds that hold for them."""

from typing import NamedTuple

import numpy as np

from mha_lib.expressiveness import bounds, tasks
from mha_lib.expressiveness.training import train


class Row(NamedTuple):
    """A task, a number of heads, the losses of all seeds, the bound, and the trivial loss."""

    task: str
    num_heads: int
    d_k: int
    losses: np.ndarray
    bound: float
    trivial: float

    @property
    def relative(self):
        """Losses as shares of the trivial one."""
        return self.losses / self.trivial


def trained(task, num_heads, bound=None, **options):
    """Train one layer a seed; a Row. The bound is that of the subspace unless given."""
    losses = train(task, num_heads, **options).losses
    bound = bounds.subspace(task, num_heads) if bound is None else bound
    return Row(task.name, num_heads, task.width // num_heads, losses, bound, task.trivial)


def duel(seeds=8, steps=2000, label=""):
    """Task A and Task B, one head and two, 16 parameters each: neither wins both. Four rows."""
    options = {"seeds": seeds, "steps": steps, "label": label}
    two_bits, look_up = tasks.bits(), tasks.three_keys()
    return [trained(two_bits, heads, **options) for heads in (1, 2)] + [
        trained(look_up, heads, bounds.three_keys(heads), **options) for heads in (1, 2)
    ]


def staircase(relations=4, features=3, seeds=4, steps=600, label=""):
    """Loss against the number of heads, one row each: 1 - g/k of the trivial loss."""
    task = tasks.staircase(relations, features)
    options = {"seeds": seeds, "steps": steps, "label": label}
    return [trained(task, heads, **options) for heads in range(1, relations + 1)]


def u_shape(n=32, features=2, relations=4, seeds=3, steps=500, label=""):
    """Loss against the number of heads at fixed d_model: too few patterns, or too thin ones.

    On tasks.neighbours, d_model = relations * features; a row for each power of two up to d_model.
    """
    task = tasks.neighbours(n, relations, features)
    options = {"seeds": seeds, "steps": steps, "label": label}
    return [trained(task, 2**power, **options) for power in range(task.width.bit_length())]


def table(rows, relative=False):
    """The rows as lines of text: mean loss, its range over the seeds, and the bound.

    ``relative`` gives all of them as shares of the trivial loss.

    >>> print(table([Row("look up", 2, 1, np.array([1.5, 1.0]), 1.0, 6.0)]))
    task                          heads  d_k    mean   lowest  highest   bound  of
    look up                           2    1    1.250   1.000   1.500    1.000   6
    """
    head = "task                          heads  d_k    mean   lowest  highest   bound  of"
    return "\n".join([head, *(_line(row, row.trivial if relative else 1) for row in rows)])


def _line(row, unit):
    losses, bound, trivial = row.losses / unit, row.bound / unit, row.trivial / unit
    return (
        f"{row.task:29} {row.num_heads:5} {row.d_k:4} {losses.mean():8.3f} {losses.min():7.3f} "
        f"{losses.max():7.3f} {bound:8.3f} {trivial:3.0f}"
    )
