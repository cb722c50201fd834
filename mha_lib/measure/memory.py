"""Peak memory of one call, beyond its inputs, and an end to calls that need too much.

Three instruments: tracemalloc sees every NumPy array; torch's allocator keeps account on CUDA; for
torch on a CPU only the process itself shows what it took, by its high-water mark, so a fresh child
process makes the call. A small call comes first: what a library needs once is not counted.
"""

import multiprocessing
import sys
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import psutil

from mha_lib.measure import cores

# Where it can be had, children are forked from a server that has imported torch, in no time.
START = "forkserver" if sys.platform == "linux" else "spawn"
PRELOAD = ["mha_lib.measure.torch_cores"]
SMALL = 32  # tokens of the call that comes first
PIECE = 2**16  # bytes


def peak_bytes(point, device):
    """The most that a point's call holds at one time, output included, inputs not.

    On a CPU a child process measures, and what it raises is raised; RuntimeError if it dies.
    """
    if device == "cuda":
        return _on_cuda(point)
    import torch

    threads = torch.get_num_threads()
    context = multiprocessing.get_context(START)
    context.set_forkserver_preload(PRELOAD)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_in_child, point, threads).result()


@contextmanager
def limited(device="cpu"):
    """Make an allocation beyond the free memory an error, where the system can (Linux).

    Otherwise memory is promised that is not there, and whoever uses it is killed. CUDA claims
    far more addresses than it uses, so there is no limit where it runs.
    """
    if device == "cuda" or sys.platform != "linux":
        yield
        return
    import resource

    kind = resource.RLIMIT_AS
    before = resource.getrlimit(kind)
    room = psutil.Process().memory_info().vms + free_bytes()
    bounds = [bound for bound in (room, *before) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(kind, (min(bounds), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def free_bytes():
    """Memory to be had without swapping."""
    return psutil.virtual_memory().available


def _in_child(point, threads):
    import torch

    torch.set_num_threads(threads)
    numpy = point.implementation.startswith("numpy")
    with limited(), cores.chosen(point):
        call = _ready(point, "cpu")
        return traced(call) if numpy else rise(call)


def _ready(point, device):
    """The point's call, after a small one."""
    small = replace(point, n=min(point.n, SMALL), n_q=min(point.n_q, SMALL))
    cores.run_on(small, device)()
    return cores.run_on(point, device)


def traced(call):
    """Bytes that Python's own tracer sees come and stay: NumPy's arrays, not BLAS's buffers."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def rise(call):
    """Bytes by which a call lifts this process's high-water mark, to about 0.1 MB."""
    start, held = _high_water(), []
    while _high_water() == start:  # memory was given back: fill it, or part of the call is missed
        held.append(b"\1" * PIECE)
    start = _high_water()
    call()
    return _high_water() - start


def _high_water():
    try:
        import resource
    except ImportError:  # Windows
        return psutil.Process().memory_info().peak_wset
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _on_cuda(point):
    import torch

    with cores.chosen(point):
        call = _ready(point, "cuda")
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
