"""The members of a precomputed level as a grid of fixed size, for members whose order has a meaning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.types import CoarseLevel

__all__ = ["MemberGrid", "member_grid"]


@dataclass(frozen=True, eq=False)
class MemberGrid:
    """For each graph, the first k members of its first w coarse nodes.

    Args:
        source (Tensor): Row of the level below, 0 where there is none, ``[*lead, B, w, k]``.
        unused (Tensor): True where there is no member, ``[*lead, B, w, k]``.
    """

    source: Tensor
    unused: Tensor


def member_grid(level: CoarseLevel, height: int, width: int) -> MemberGrid:
    """The members of a level in a grid, by index arithmetic: no host–device synchronisation.

    Args:
        level (CoarseLevel): A level of a batch.
        height (int): Number of coarse nodes w of a graph; those after them are left out.
        width (int): Number of members k of a coarse node; those after them are left out.
    """
    segments, members = level.segments, level.members
    *lead, B = segments.sizes.shape
    device = segments.ptr.device
    node = torch.arange(height, device=device)
    missing = node >= segments.sizes.unsqueeze(-1)  # [*lead, B, w]
    row = (segments.ptr[..., :-1].unsqueeze(-1) + node).masked_fill(missing, 0).flatten(-2)
    ptr = members.segments.ptr
    first, end = (part.gather(-1, row).unsqueeze(-1) for part in (ptr[..., :-1], ptr[..., 1:]))
    pair = first + torch.arange(width, device=device)  # [*lead, B · w, k]
    unused = (pair >= end) | missing.flatten(-2).unsqueeze(-1)
    source = members.source.gather(-1, pair.masked_fill(unused, 0).flatten(-2)).reshape(pair.shape)
    shape = (*lead, B, height, width)
    return MemberGrid(source.masked_fill(unused, 0).reshape(shape), unused.reshape(shape))
