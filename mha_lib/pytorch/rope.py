"""Rotary position embedding: queries and keys are turned by an angle that grows with position.

Each head's features form pairs, and a pair is a point in the plane. Two points turned by m and n
times the same angle have a product that depends on m - n alone, so scores see distances. Which
features form a pair is a convention, and weights trained for one are useless with the other:
nothing raises, the model is merely bad. Source: Su et al. 2021, "RoFormer", section 3.2.
"""

import torch


def turns(positions, d_k, base=10000.0, dtype=torch.float32):
    """Cosines and sines of positions (...) for d_k / 2 pairs of features, two of (..., d_k / 2).

    Pair i turns by base ** (-2 i / d_k) a position: the first one fastest.

    >>> cos, sin = turns(torch.arange(3), d_k=4)
    >>> cos.shape
    torch.Size([3, 2])
    """
    if d_k % 2:
        raise ValueError(f"d_k must be even, since features turn in pairs, got {d_k}")
    speeds = base ** (-torch.arange(0, d_k, 2, dtype=torch.float64, device=positions.device) / d_k)
    angles = positions[..., None] * speeds  # in float64: float32 loses digits at large positions
    return angles.cos().to(dtype), angles.sin().to(dtype)


def interleaved(x, turns):
    """Turn x (..., n, d_k), whose pairs are neighbours: features 0 and 1, 2 and 3, and so on.

    >>> x = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    >>> interleaved(x, (torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])))  # 90 and 0 degrees
    tensor([[0., 1., 1., 0.]])
    """
    return torch.stack(_turned(x[..., 0::2], x[..., 1::2], *turns), -1).flatten(-2)


def half_split(x, turns):
    """Turn x (..., n, d_k), whose pairs lie half of d_k apart: features 0 and d_k / 2, and so on.

    >>> x = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    >>> half_split(x, (torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])))
    tensor([[0., 1., 1., 0.]])
    """
    return torch.cat(_turned(*x.chunk(2, -1), *turns), -1)


def _turned(a, b, cos, sin):
    return a * cos - b * sin, a * sin + b * cos


def to_half_split(weight, num_heads):
    """The rows (num_heads * d_k, d_model) of a query or key matrix, each head's pairs pulled apart.

    ``half_split`` then does to its outputs what ``interleaved`` does to those of ``weight``.

    >>> to_half_split(torch.arange(8)[:, None], num_heads=2).flatten().tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    return weight.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)
