"""The rows with the highest scores of each graph, in fixed shapes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError, check_at_least, check_fraction
from graphcaps.types import Segments, ShapeRepr

__all__ = ["TopK", "descending_order", "of_graph", "rank_of_row", "segment_top_k"]


@dataclass(frozen=True, repr=False, eq=False)
class TopK(ShapeRepr):
    """The rows that :func:`segment_top_k` keeps, as a ragged tensor of P rows, the last of which are padding.

    Args:
        index (Tensor): Row of each kept row, from the highest score of a graph to the lowest, 0 at padding,
            ``[*lead, P]``.
        score (Tensor): Its score, 0 at padding, ``[*lead, P]``.
        segments (Segments): Graph of each kept row; ``segments.row_mask`` is False at padding.
        mask (Tensor): True at the kept rows among all V, ``[*lead, V]``.
    """

    index: Tensor
    score: Tensor
    segments: Segments
    mask: Tensor

    def select(self, x: Tensor) -> Tensor:
        """The kept rows of ``x [*lead, V, d]``, ``[*lead, P, d]``; padding rows repeat a row."""
        return x.gather(-2, self.index.unsqueeze(-1).expand(*self.index.shape, x.size(-1)))


def segment_top_k(
    score: Tensor, segments: Segments, *, k: int | None = None, ratio: float | None = None
) -> TopK:
    r"""Keeps the rows with the highest scores of each graph.

    A graph of n rows keeps :math:`\min(k, n)` rows, or :math:`\lceil \mathrm{ratio} \cdot n \rceil`. Among equal scores
    the earlier row is kept first. Shapes depend on V, B and the arguments alone: no host–device synchronisation.

    Args:
        score (Tensor): Score of each row, ``[*lead, V]``; padding rows may hold anything.
        segments (Segments): Graph of each row.
        k (int, optional): Number of rows to keep, at least 1.
        ratio (float, optional): Fraction of rows to keep, above 0 and at most 1; instead of ``k``.

    Returns:
        TopK: P kept rows; P is the smaller of V and k B, or of V and ratio V + B + 1.

    Raises:
        ArgumentError: If not exactly one of ``k`` and ``ratio`` is set, or it is out of range.
        ShapeError: If there is not one score per row.
    """
    if (k is None) == (ratio is None):
        raise ArgumentError(
            "segment_top_k", "k, ratio", "be set one at a time", "none" if k is None else "both"
        )
    if score.shape != segments.index.shape:
        raise ShapeError(
            "segment_top_k", "score", f"have the shape {list(segments.index.shape)}", list(score.shape)
        )
    V, B, sizes = segments.num_rows, segments.num_graphs, segments.sizes
    longest = segments.max_size
    if k is not None:
        check_at_least("segment_top_k", 1, k=k)
        kept, P = sizes.clamp_max(k), min(V, k * B)
        longest = k if longest is None else min(k, longest)
    else:
        assert ratio is not None
        check_fraction("segment_top_k", ratio=ratio)
        # In the type of the scores, as torch-geometric rounds. The row added to the bound covers that rounding.
        kept, P = (ratio * sizes.to(score.dtype)).ceil().long(), min(V, int(ratio * V) + B + 1)

    order = descending_order(segments, score)
    mask = torch.zeros_like(segments.index, dtype=torch.bool)
    mask = mask.scatter(-1, order, rank_of_row(segments) < of_graph(kept, segments.index))

    ptr = torch.nn.functional.pad(kept.cumsum(-1), (1, 0))
    position = torch.arange(P, device=score.device).expand(*ptr.shape[:-1], P).contiguous()
    graph = torch.searchsorted(ptr[..., 1:].contiguous(), position, right=True)  # B at padding
    source = position - of_graph(ptr[..., :-1], graph) + of_graph(segments.ptr[..., :-1], graph)
    padding = graph == B
    index = order.gather(-1, source.masked_fill(padding, 0)).masked_fill(padding, 0)
    best = score.gather(-1, index).masked_fill(padding, 0)
    return TopK(index, best, Segments(ptr, graph, padded=True, max_size=longest), mask)


def descending_order(segments: Segments, *scores: Tensor) -> Tensor:
    """The rows of each graph from the highest score to the lowest, ``[*lead, V]``.

    Position p of the result belongs to the graph of row p, because rows are sorted by graph.

    Args:
        segments (Segments): Graph of each row.
        scores (Tensor): Score of each row, ``[*lead, V]``; among equal scores the next ones decide, and at last the
            order of rows. Padding rows may hold anything.
    """
    # Stable sorts from the least important key to the most important one, which is the graph.
    order: Tensor | None = None
    for score in reversed(scores):
        key = score.detach() if order is None else score.detach().gather(-1, order)
        finer = key.argsort(dim=-1, descending=True, stable=True)
        order = finer if order is None else order.gather(-1, finer)
    assert order is not None
    return order.gather(-1, segments.index.gather(-1, order).argsort(dim=-1, stable=True))


def rank_of_row(segments: Segments) -> Tensor:
    """Number of rows of the same graph before each row, ``[*lead, V]``; any number at padding."""
    rows = torch.arange(segments.num_rows, device=segments.index.device)
    return rows - of_graph(segments.ptr[..., :-1], segments.index)


def of_graph(value: Tensor, graph: Tensor) -> Tensor:
    """``value [*lead, B]`` at the graph of each row, 0 at padding, where ``graph`` is B."""
    return torch.nn.functional.pad(value, (0, 1)).gather(-1, graph)
