"""The steps of one token in float64, each a method, so that a slip can replace a single one."""

from typing import NamedTuple

import numpy as np

from mha_lib.scratch import Projections


class Numbers(NamedTuple):
    """An example in float64; ``allowed`` (n_q, n_kv) is True where a token may attend."""

    x: np.ndarray
    memory: np.ndarray
    w: Projections
    num_heads: int
    d_k: int
    allowed: np.ndarray

    @classmethod
    def of(cls, example):
        """The numbers of an Example."""
        x, memory, _ = example.arrays()
        allowed = [[example.allows(i, j) for j in range(len(memory))] for i in range(len(x))]
        w = example.projections()
        return cls(x, memory, w, example.num_heads, example.d_k, np.array(allowed))


class Work:
    """One token's way through a layer as it should be done.

    A slip is a subclass that does one step otherwise; the steps after it follow from that. ``head``
    counts from 0; the steps concat and output run through all heads.
    """

    def __init__(self, numbers, token, head=0):
        self.numbers, self.token, self.head_index = numbers, token, head

    def of_head(self, head):
        """The same way of working, in another head."""
        return type(self)(self.numbers, self.token, head)

    def project(self, x, w):
        """This head's columns of x @ w: (n, d)."""
        d = w.shape[1] // self.numbers.num_heads
        return (x @ w)[:, self.head_index * d : (self.head_index + 1) * d]

    def queries(self):
        """The queries of all tokens: (n_q, d_k)."""
        return self.project(self.numbers.x, self.numbers.w.w_q)

    def query(self):
        """The query of this token: (d_k,)."""
        return self.queries()[self.token]

    def keys(self):
        """The keys: (n_kv, d_k)."""
        return self.project(self.numbers.memory, self.numbers.w.w_k)

    def values(self):
        """The values: (n_kv, d_v)."""
        return self.project(self.numbers.memory, self.numbers.w.w_v)

    def allowed(self):
        """Which tokens this one may attend to: (n_kv,)."""
        return self.numbers.allowed[self.token]

    def scores(self):
        """Query times keys, -inf where a mask forbids: (n_kv,)."""
        return np.where(self.allowed(), self.keys() @ self.query(), -np.inf)

    def divisor(self):
        """What scores are divided by."""
        return np.sqrt(self.numbers.d_k)

    def scaled(self):
        """Scores over sqrt(d_k): (n_kv,)."""
        return self.scores() / self.divisor()

    def exponentials(self):
        """exp of the scaled scores: (n_kv,)."""
        return np.exp(self.scaled())

    def sum(self):
        """The sum of the exponentials."""
        return self.exponentials().sum()

    def weights(self):
        """Exponentials over their sum: (n_kv,)."""
        return self.exponentials() / (self.sum() or 1)

    def head(self):
        """Weights times values: (d_v,)."""
        return self.weights() @ self.values()

    def heads(self):
        """The outputs of all heads: (h, d_v)."""
        return np.array([self.of_head(h).head() for h in range(self.numbers.num_heads)])

    def concat(self):
        """The outputs of all heads side by side: (h * d_v,)."""
        return self.heads().ravel()

    def output(self):
        """The concatenation times W^O: (d_model,)."""
        return self.concat() @ self.numbers.w.w_o
