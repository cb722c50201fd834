"""A layer with its weights, judged on a task by the multi-head attention of ``scratch``."""

from typing import NamedTuple

import numpy as np

from mha_lib import scratch


class Layer(NamedTuple):
    """Learned matrices and the number of heads that share them."""

    projections: scratch.Projections
    num_heads: int

    def answer(self, task):
        """The layer's outputs on all inputs of the task, (N, n_q, d_out)."""
        task = task.listed()
        inputs = task.query, task.key, task.value
        return scratch.multi_head_attention(*inputs, self.projections, self.num_heads)[0]

    def errors(self, task):
        """Mean squared error of each query, (n_q,)."""
        return task.listed().errors(self.answer(task))

    def loss(self, task):
        """The errors of all queries together."""
        return float(self.errors(task).sum())

    def worst(self, task):
        """The largest distance between an answer and its target."""
        return float(np.linalg.norm(self.answer(task) - task.listed().target, axis=-1).max())
