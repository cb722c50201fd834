"""The learned matrices of a multi-head attention layer."""

from dataclasses import dataclass, fields

import numpy as np

from mha_lib import validate


@dataclass(frozen=True)
class Projections:
    """The learned matrices of a layer, all heads side by side, and their optional biases.

    Shapes: w_q (d_query, h * d_k), w_k (d_key, h * d_k), w_v (d_value, h * d_v) and w_o
    (h * d_v, d_model); each bias has one number per column of its matrix. The number of heads is
    not stored: the same matrices can be cut into any number of heads that divides their widths.
    """

    w_q: np.ndarray
    w_k: np.ndarray
    w_v: np.ndarray
    w_o: np.ndarray
    b_q: np.ndarray | None = None
    b_k: np.ndarray | None = None
    b_v: np.ndarray | None = None
    b_o: np.ndarray | None = None

    @classmethod
    def random(cls, d_model, rng, *, num_heads=1, d_k=None, d_v=None, biases=False):
        """Normal entries of variance 1 / (number of rows), which keep variances as they are.

        ``d_k`` and ``d_v`` are d_model / num_heads unless given.

        >>> Projections.random(6, np.random.default_rng(0), num_heads=2).w_o.shape
        (6, 6)
        """
        inner_k, inner_v = (
            num_heads * width for width in validate.head_widths(d_model, num_heads, d_k, d_v)
        )
        shapes = [(d_model, inner_k), (d_model, inner_k), (d_model, inner_v), (inner_v, d_model)]
        matrices = [rng.normal(size=shape) / np.sqrt(shape[0]) for shape in shapes]
        return cls(*matrices, *(rng.normal(size=shape[1]) for shape in shapes if biases))

    def arrays(self):
        """The arrays that are there, by name."""
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: array for name, array in named if array is not None}

    def count(self):
        """How many numbers are learned.

        >>> Projections.random(12, np.random.default_rng(0)).count()
        576
        """
        return sum(array.size for array in self.arrays().values())

    def check(self, query, key, value, num_heads):
        """Refuse inputs and a number of heads that these matrices do not fit."""
        validate.floats(np.ndarray, query=query, key=key, value=value, **self.arrays())
        validate.at_least_two_axes(query=query, key=key, value=value)
        validate.same_batch_axes(2, query=query, key=key, value=value)
        validate.one_value_per_key(key, value)
        self.check_matrices(num_heads)
        _rows("w_q", self.w_q, "feature of query", query.shape[-1])
        _rows("w_k", self.w_k, "feature of key", key.shape[-1])
        _rows("w_v", self.w_v, "feature of value", value.shape[-1])

    def check_matrices(self, num_heads):
        """Refuse matrices that do not fit each other or the number of heads."""
        validate.floats(np.ndarray, **self.arrays())
        for name, matrix in self._matrices().items():
            if matrix.ndim != 2:
                raise ValueError(f"{name} must have two axes, got shape {matrix.shape}")
        _rows("w_o", self.w_o, "column of w_v", self.w_v.shape[1])
        if self.w_k.shape[1] != self.w_q.shape[1]:
            raise ValueError(
                f"w_k must have as many columns as w_q, {self.w_q.shape[1]}, "
                f"got {self.w_k.shape[1]}"
            )
        validate.divisible("w_q's columns", self.w_q.shape[1], num_heads)
        validate.divisible("w_v's columns", self.w_v.shape[1], num_heads)
        for name, matrix in self._matrices().items():
            _one_number_per_column(name.replace("w", "b"), self, matrix)

    def _matrices(self):
        return {name: array for name, array in self.arrays().items() if name.startswith("w")}


def _rows(name, matrix, of, width):
    if matrix.shape[0] != width:
        raise ValueError(f"{name} must have one row per {of}, {width}, got shape {matrix.shape}")


def _one_number_per_column(name, projections, matrix):
    bias = getattr(projections, name)
    if bias is not None and bias.shape != (matrix.shape[1],):
        raise ValueError(f"{name} must have shape ({matrix.shape[1]},), got {bias.shape}")
