"""Power laws: the exponent of a measured curve, with its uncertainty."""

from typing import NamedTuple

import numpy as np


class Fit(NamedTuple):
    """seconds = constant * x ** exponent, and the standard error of the exponent.

    >>> print(Fit(exponent=1.934, error=0.0512, constant=2e-8))
    1.93 ± 0.05
    """

    exponent: float
    error: float
    constant: float

    def __str__(self):
        return f"{self.exponent:.2f} ± {self.error:.2f}"


def exponent(x, seconds):
    """Fit a power law through at least three points, by least squares on the logarithms.

    >>> fit = exponent([1, 2, 4], [3.0, 12.0, 48.0])
    >>> round(fit.exponent, 6), round(fit.constant, 6), fit.error < 1e-9
    (2.0, 3.0, True)
    """
    log_x, log_y = _logarithms("x", x), _logarithms("seconds", seconds)
    if log_x.shape != log_y.shape or len(set(log_x)) < 3:
        raise ValueError(
            "x and seconds must be as long as each other, with at least three different x, "
            f"got {log_x.size} and {log_y.size} numbers"
        )
    away = log_x - log_x.mean()
    slope = away @ log_y / (away @ away)
    missed = log_y - log_y.mean() - slope * away
    variance = missed @ missed / (len(away) - 2)  # two numbers were fitted
    constant = np.exp(log_y.mean() - slope * log_x.mean())
    return Fit(float(slope), float(np.sqrt(variance / (away @ away))), float(constant))


def _logarithms(name, values):
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"{name} must be a row of positive numbers, got {values.tolist()}")
    return np.log(values)
