"""How many threads torch uses: for one token at a time, one."""

import contextlib

import torch


@contextlib.contextmanager
def one_thread():
    """Let torch use one thread for a while: at this size, sharing a step costs more than it saves.

    On a machine with other work two threads, which wait for each other, took several times as long.

    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
