"""Memory pooling for one model or many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError, check_at_least
from graphcaps.nn.initialise import linear_
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.key_assignment import assignment_divergence, key_assignment, split_key_assignment
from graphcaps.ops.ragged.tiles import segment_product
from graphcaps.types import Segments, ShapeRepr

__all__ = ["KeyGradient", "MemoryPooled", "MemoryPooling"]

KeyGradient = Literal["divergence", "all"]
"""What moves the keys of a memory: the divergence of the assignment alone, or every loss."""


@dataclass(frozen=True, repr=False, eq=False)
class MemoryPooled(ShapeRepr):
    """Result of :class:`MemoryPooling`.

    Args:
        x (Tensor): One row per key, ``[*lead, B, K, out]``.
        assignment (Tensor): Assignment of the rows to the keys, ``[*lead, V, K]`` or ``[*lead, B, n, K]``.
        divergence (Tensor): :func:`graphcaps.ops.key_assignment.assignment_divergence` of each graph, ``[*lead, B]``.
    """

    x: Tensor
    assignment: Tensor
    divergence: Tensor


class MemoryPooling(nn.Module):
    r"""Pools rows into the keys of a memory that they are close to.

    Memory layer of Memory-Based Graph Networks (ICLR 2020, https://arxiv.org/abs/2002.09518), with the assignment
    :math:`C` of :mod:`graphcaps.ops.key_assignment`:

    .. math:: X' = C^\top Q W

    For one replica it equals :class:`torch_geometric.nn.MemPooling`, in gradients with ``key_gradient="all"``. No graph
    is padded to the size of the largest: time and memory are of order V H K.

    Args:
        in_channels (int): Number of features of a row.
        out_channels (int): Number of features of a pooled row.
        num_keys (int): Number of keys K of a head.
        heads (int): Number of heads H. (default: 1)
        key_gradient (str): ``"divergence"`` if the keys get gradients of the divergence alone, as published, or
            ``"all"``. (default: "divergence")
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        MemoryPooled: Pooled rows, assignment and divergence.

    Raises:
        ArgumentError: If a size is below 1, or ``key_gradient`` is another one.

    Example:
        >>> graphs = graphcaps.types.Segments.from_sizes(torch.tensor([3, 4]))
        >>> MemoryPooling(5, 8, num_keys=2, heads=3)(torch.rand(7, 5), graphs)
        MemoryPooled(x=[2, 2, 8], assignment=[7, 2], divergence=[2])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_keys: int,
        *,
        heads: int = 1,
        key_gradient: KeyGradient = "divergence",
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        check_at_least("MemoryPooling", 1, num_keys=num_keys, heads=heads)
        if key_gradient not in get_args(KeyGradient):
            expected = f"be one of {', '.join(get_args(KeyGradient))}"
            raise ArgumentError("MemoryPooling", "key_gradient", expected, repr(key_gradient))
        self.key_gradient = key_gradient
        self.keys = nn.Parameter(torch.empty(*lead, heads, num_keys, in_channels))
        self.merge = nn.Parameter(torch.empty(*lead, heads))
        self.linear = ReplicaLinear(in_channels, out_channels, bias=False, lead=lead)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.keys, -1, 1)
        linear_(self.merge, self.merge.size(-1))
        self.linear.reset_parameters()

    def forward(self, x: Tensor, segments: Segments | None = None) -> MemoryPooled:
        """Pools the nodes of a ragged batch, ``[*lead, V, in]`` with segments, or coarse graphs ``[*lead, B, n, in]``.

        Padding rows must not hold NaN.
        """
        rows = x if segments is not None else x.flatten(-3, -2)
        if self.key_gradient == "all":
            pooling = moving = key_assignment(rows, self.keys, self.merge)
        else:
            pooling, moving = split_key_assignment(rows, self.keys, self.merge)
        if segments is not None:
            pooled = segment_product(pooling, x, segments)
        else:
            pooling, moving = (each.unflatten(-2, x.shape[-3:-1]) for each in (pooling, moving))
            pooled = pooling.mT @ x
        K = pooled.size(-2)
        pooled = self.linear(pooled.flatten(-3, -2)).unflatten(-2, (-1, K))
        return MemoryPooled(pooled, pooling, assignment_divergence(moving, segments))

    def extra_repr(self) -> str:
        *lead, heads, num_keys, _ = self.keys.shape
        shown = f"num_keys={num_keys}, heads={heads}, key_gradient='{self.key_gradient}'"
        return shown + (f", lead={tuple(lead)}" if lead else "")
