"""Pooling of the nodes of a level into those of the next coarser one."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.ragged.reductions import segment_max, segment_mean
from graphcaps.ops.ragged.tiles import flat_index, segment_sum
from graphcaps.ops.row_sums import select_rows
from graphcaps.types import CoarseLevel

__all__ = ["MemberReduction", "pool_members"]

MemberReduction = Literal["sum", "mean", "max"]


def pool_members(x: Tensor, level: CoarseLevel, reduction: MemberReduction = "sum") -> Tensor:
    r"""Combines the rows of the members of each coarse node.

    .. math::
        y_c = \big[\textstyle\sum_{i \in c} w_{ci1} x_i, \dots, \sum_{i \in c} w_{ciH} x_i\big], \quad
        y_c = \frac{1}{|c|} \sum_{i \in c} x_i \quad\text{or}\quad y_c = \max_{i \in c} x_i

    Weights :math:`w` are those of the level, 1 if it has none; mean and maximum do not read them. Members that share a
    maximum share its gradient equally.

    Args:
        x (Tensor): Rows of the level below, ``[*lead, V, d]``.
        level (CoarseLevel): A level of a batch.
        reduction (str): ``"sum"``, ``"mean"`` or ``"max"``. (default: "sum")

    Returns:
        Tensor: ``[*lead, V', H d]`` for sums, else ``[*lead, V', d]``; 0 at padding rows.

    Raises:
        ArgumentError: If the reduction is another one.
        ShapeError: If leading axes disagree.
    """
    if reduction not in get_args(MemberReduction):
        expected = f"be one of {', '.join(get_args(MemberReduction))}"
        raise ArgumentError("pool_members", "reduction", expected, repr(reduction))
    members = level.members
    source, segments = members.source, members.segments
    if x.shape[:-2] != source.shape[:-1]:
        expected = f"have the leading axes {list(source.shape[:-1])}"
        raise ShapeError("pool_members", "x", expected, list(x.shape[:-2]))
    rows = select_rows(x.reshape(-1, x.size(-1)), flat_index(source, x.size(-2)))
    rows = rows.reshape(*source.shape, x.size(-1))  # [*lead, P, d]
    if reduction == "max":
        return segment_max(rows, segments)
    if reduction == "mean":
        return segment_mean(rows, segments)
    if members.weights is not None:
        weights = members.weights.to(x.dtype)
        rows = (weights.unsqueeze(-1) * rows.unsqueeze(-2)).flatten(-2)  # [*lead, P, H d]
    return segment_sum(rows, segments)
