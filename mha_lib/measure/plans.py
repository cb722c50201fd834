"""What the book's sweeps measure: the sizes are data, a sweep takes all their combinations."""

import itertools

from mha_lib.measure import cores


def doubling(first, last):
    """Sizes from first to last, each twice the one before.

    >>> doubling(8, 64)
    (8, 16, 32, 64)
    """
    return tuple(first << k for k in range((last // first).bit_length()))


AXIS = {"n": "n", "heads": "num_heads", "d_model": "d_model", "decode": "n"}

ON_CPU = ("numpy, naive", "numpy, tiles", "torch, written out", "flash")
ON_CUDA = ("torch, written out", "math", "flash", "memory-efficient", "cudnn")
BOTH = ("float32", "bfloat16")

PLANS = {
    ("n", "cpu"): {  # without torch's math form: as slow as the written out one, for minutes
        "implementation": ON_CPU,
        "n": doubling(128, 8192),
        "d_model": (512,),
        "num_heads": (8,),
        "causal": (False, True),
    },
    ("heads", "cpu"): {
        "implementation": (*ON_CPU, "math", "layer"),
        "n": (1024,),
        "d_model": (512,),
        "num_heads": doubling(1, 64),
    },
    ("d_model", "cpu"): {
        "implementation": (*ON_CPU, "math", "layer"),
        "n": (512,),
        "d_model": doubling(64, 2048),
        "num_heads": (8,),
    },
    ("decode", "cpu"): {
        "implementation": (*ON_CPU, "math"),
        "n": doubling(128, 32768),
        "n_q": (1,),
        "d_model": (512,),
        "num_heads": (8,),
        "num_kv_heads": (8, 2, 1),
    },
    ("n", "cuda"): {
        "implementation": ON_CUDA,
        "n": doubling(128, 65536),
        "d_model": (512,),
        "num_heads": (8,),
        "causal": (False, True),
        "dtype": BOTH,
    },
    ("heads", "cuda"): {
        "implementation": (*ON_CUDA, "layer"),
        "n": (4096,),
        "d_model": (512, 4096),
        "num_heads": doubling(1, 128),
        "dtype": BOTH,
    },
    ("d_model", "cuda"): {
        "implementation": (*ON_CUDA, "layer"),
        "n": (4096,),
        "d_model": doubling(64, 2048),
        "num_heads": (8,),
        "dtype": BOTH,
    },
    ("decode", "cuda"): {
        "implementation": ON_CUDA,
        "n": doubling(128, 131072),
        "n_q": (1,),
        "d_model": (4096,),
        "num_heads": (32,),
        "num_kv_heads": (32, 8, 1),
        "dtype": BOTH,
    },
}


def plan(kind, device, sizes=None, implementations=None, **fixed):
    """The points of a sweep: a list for each size, of the implementations that take turns.

    >>> [point.n for point, in plan("n", "cpu", [8, 16], ["flash"], causal=False)]
    [8, 16]
    """
    among("kind", [kind], AXIS)
    choices = dict(PLANS[kind, device])
    names = choices.pop("implementation")
    if implementations is not None:
        here = [name for name, devices in cores.CORES.items() if device in devices]
        among("implementations", implementations, here)
        names = implementations
    among("a fixed value", fixed, list(cores.Point.__dataclass_fields__)[1:])
    choices |= {name: (value,) for name, value in fixed.items()}
    choices |= {} if sizes is None else {AXIS[kind]: sizes}
    shapes = [dict(zip(choices, values)) for values in itertools.product(*choices.values())]
    return [_points(names, shape, device) for shape in shapes]


def among(name, given, known):
    """Refuse a value that is not among those known."""
    for value in given:
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def _points(names, shape, device):
    points = [cores.Point(name, **shape) for name in names]
    return [p for p in points if cores.supports(p.implementation, device, p.dtype)]
