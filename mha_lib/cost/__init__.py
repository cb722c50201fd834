"""What attention costs, by exact formulas: operations, numbers, bytes, and the time they imply.

Arithmetic only: whole numbers stay whole numbers, and neither NumPy nor torch is needed. A
multiply-add counts as 2 FLOPs.
"""

from mha_lib.cost.decode import (
    cache_bytes,
    cache_intensity,
    step_flops,
    total_flops,
    weight_intensity,
)
from mha_lib.cost.flops import (
    core_flops,
    crossover,
    flops_by_stage,
    matmul_flops,
    pairs,
    softmax_operations,
)
from mha_lib.cost.hardware import DEVICES, Device
from mha_lib.cost.memory import (
    intensity,
    kept_for_backward,
    limit_of_naive_intensity,
    parameters,
    score_numbers,
    traffic_bytes,
)
from mha_lib.cost.roofline import attainable, bound, ridge, seconds
from mha_lib.cost.shapes import MODELS, LayerShape, ModelShape

__all__ = [
    "DEVICES",
    "MODELS",
    "Device",
    "LayerShape",
    "ModelShape",
    "attainable",
    "bound",
    "cache_bytes",
    "cache_intensity",
    "core_flops",
    "crossover",
    "flops_by_stage",
    "intensity",
    "kept_for_backward",
    "limit_of_naive_intensity",
    "matmul_flops",
    "pairs",
    "parameters",
    "ridge",
    "score_numbers",
    "seconds",
    "softmax_operations",
    "step_flops",
    "total_flops",
    "traffic_bytes",
    "weight_intensity",
]
