r"""Kinds of edges: the labels of an edge as one small number.

With C edge label columns of :math:`n_1, \dots, n_C` values, the kind of an edge is

.. math:: k = \sum_c d_c \prod_{b > c} (n_b + 1), \qquad d_c \in \{0, \dots, n_c\}

where :math:`d_c` is 1 + the index of the edge's value in column c, and 0 for any other value. Every combination of
values has a kind, whether it occurred in training or not. The tuple :math:`(n_1, \dots, n_C)` is called ``edge_kinds``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError

__all__ = [
    "MOST_EDGE_KINDS",
    "check_edge_kinds",
    "count_edge_kinds",
    "edge_kind",
    "kind_labels",
    "one_hot_kinds",
]

MOST_EDGE_KINDS = 4096
"""Largest number of combinations of edge labels: a model holds a row of numbers for each of them."""


def count_edge_kinds(edge_kinds: tuple[int, ...]) -> int:
    """Number of kinds R, the product of all n_c + 1; 1 without label columns."""
    return math.prod(count + 1 for count in edge_kinds)


def check_edge_kinds(owner: str, edge_kinds: int | tuple[int, ...]) -> tuple[int, ...]:
    """``edge_kinds`` as a tuple.

    Raises:
        ArgumentError: If a number is below 1, or there are more than ``MOST_EDGE_KINDS`` kinds.
    """
    sizes = (edge_kinds,) if isinstance(edge_kinds, int) else tuple(edge_kinds)
    for count in sizes:
        if type(count) is not int or count < 1:
            raise ArgumentError(owner, "edge_kinds", "hold whole numbers of at least 1", count)
    if count_edge_kinds(sizes) > MOST_EDGE_KINDS:
        expected = f"have at most {MOST_EDGE_KINDS:,} combinations"
        raise ArgumentError(owner, "edge_kinds", expected, f"{count_edge_kinds(sizes):,}")
    return sizes


def edge_kind(labels: Tensor, edge_kinds: tuple[int, ...], owner: str = "edge_kind") -> Tensor:
    """Kind of each edge from the indices of its labels.

    Args:
        labels (Tensor): Index of the value in each label column, from 0 to n_c − 1, or −1 for any other value,
            ``[E, C]``; ``[E]`` for a single column.
        edge_kinds (tuple): Number of values n_c of each column.
        owner (str): Owner that messages name.

    Returns:
        Tensor: int32, ``[E]``.

    Raises:
        ShapeError: If there is another number of columns, or an index is out of range.
    """
    columns = labels.unsqueeze(-1) if labels.dim() == 1 else labels
    if columns.dim() != 2 or columns.size(1) != len(edge_kinds):
        expected = f"have a column for each of the {len(edge_kinds)} edge labels"
        raise ShapeError(owner, "edge_attr", expected, list(labels.shape))
    if columns.is_floating_point() or columns.dtype == torch.bool:
        expected = "be an integer tensor: the index of each label"
        raise ShapeError(owner, "edge_attr", expected, columns.dtype)
    kind = columns.new_zeros(columns.size(0), dtype=torch.int32)
    for column, count in zip(columns.unbind(-1), edge_kinds, strict=True):
        if column.numel() and not -1 <= int(column.min()) <= int(column.max()) < count:
            expected = f"hold indices from 0 to {count - 1} (−1 for other labels)"
            raise ShapeError(owner, "edge_attr", expected, f"{int(column.min())} to {int(column.max())}")
        kind = kind * (count + 1) + (column.int() + 1)
    return kind


def kind_labels(kind: Tensor, edge_kinds: tuple[int, ...]) -> Tensor:
    """The indices of the labels of each kind, −1 for any other value, ``[E, C]``; undoes :func:`edge_kind`."""
    columns, rest = [], kind.long()
    for count in reversed(edge_kinds):
        columns.append(rest % (count + 1) - 1)
        rest = rest // (count + 1)
    return torch.stack(columns[::-1], -1) if columns else rest.new_empty(len(rest), 0)


def one_hot_kinds(edge_kinds: tuple[int, ...], device: torch.device | None = None) -> Tensor:
    """Which value of which column each kind has: 0 or 1, uint8, ``[R, n_1 + … + n_C]``."""
    shape = tuple(count + 1 for count in edge_kinds)
    blocks = []
    for axis, count in enumerate(edge_kinds):
        block = torch.eye(count + 1, dtype=torch.uint8, device=device)[:, 1:]  # row 0: any other value
        own = [count + 1 if each == axis else 1 for each in range(len(shape))]
        blocks.append(block.reshape(*own, count).expand(*shape, count).reshape(-1, count))
    return torch.cat(blocks, -1) if blocks else torch.zeros(1, 0, dtype=torch.uint8, device=device)
