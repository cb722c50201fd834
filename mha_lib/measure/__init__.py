"""Time and memory of any implementation of attention, on the device at hand, kept as records.

Importing the package is light; torch is imported when something is run.
"""

from mha_lib.measure.clock import Timing, compare, table
from mha_lib.measure.cores import CORES
from mha_lib.measure.fit import Fit, exponent
from mha_lib.measure.machine import device, probe
from mha_lib.measure.record import curve, load, recorded_device, save, shipped
from mha_lib.measure.sweeps import sweep

__all__ = [
    "CORES",
    "Fit",
    "Timing",
    "compare",
    "curve",
    "device",
    "exponent",
    "load",
    "probe",
    "recorded_device",
    "save",
    "shipped",
    "sweep",
    "table",
]
