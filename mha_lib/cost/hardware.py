"""What some devices can do at best, by their makers' data sheets.

Peaks are those of dense matrices: data sheets print twice as much for "sparsity", a pattern of
zeros that attention's matrices do not have. "float32" is plain single precision; "tf32" is the
shortened single precision of tensor cores, which torch uses only if told to.
"""

from dataclasses import dataclass

from mha_lib.cost.checks import positive


@dataclass(frozen=True)
class Device:
    """A device's limits: ``peak`` FLOP/s by dtype, ``bandwidth`` bytes/s, ``memory`` bytes.

    >>> DEVICES["H100 SXM"].peak["bfloat16"] / 1e12
    989.5
    """

    name: str
    peak: dict[str, float]
    bandwidth: float
    memory: float
    source: str

    def __post_init__(self):
        positive("bandwidth", self.bandwidth)
        positive("memory", self.memory)
        for dtype, flops in self.peak.items():
            positive(f"peak[{dtype!r}]", flops)


def _tera(**peak):
    return {dtype: figure * 1e12 for dtype, figure in peak.items()}


_HOPPER = _tera(float32=67, tf32=494.5, float16=989.5, bfloat16=989.5)

DEVICES = {
    device.name: device
    for device in (
        Device("T4", _tera(float32=8.1, float16=65), 320e9, 16e9, "NVIDIA T4 data sheet"),
        Device(
            "A100 SXM 80GB",
            _tera(float32=19.5, tf32=156, float16=312, bfloat16=312),
            2039e9,
            80e9,
            "NVIDIA A100 data sheet",
        ),
        Device("H100 SXM", _HOPPER, 3.35e12, 80e9, "NVIDIA H100 data sheet"),
        Device("H200 SXM", _HOPPER, 4.8e12, 141e9, "NVIDIA H200 data sheet"),
        Device(
            "RTX 4090",  # half precision with sums in float32, as torch has them
            _tera(float32=82.6, tf32=82.6, float16=165.2, bfloat16=165.2),
            1008e9,
            24e9,
            "NVIDIA Ada GPU Architecture, white paper",
        ),
    )
}
