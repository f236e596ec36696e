"""Kinds of edges: every combination of labels has its own number, and one-hot rows undo it."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.edge_kinds import check_edge_kinds, count_edge_kinds, edge_kind, kind_labels, one_hot_kinds

SIZES = (3, 1, 2)


def test_every_combination_has_a_kind_of_its_own():
    labels = torch.tensor(list(product(*(range(-1, count) for count in SIZES))))
    kinds = edge_kind(labels, SIZES)
    assert kinds.dtype == torch.int32
    assert kinds.tolist() == list(range(count_edge_kinds(SIZES)))
    assert torch.equal(kind_labels(kinds, SIZES), labels)


def test_one_hot_rows_hold_the_labels():
    labels = torch.tensor([[2, 0, -1], [-1, -1, 1], [-1, -1, -1]])
    rows = one_hot_kinds(SIZES)[edge_kind(labels, SIZES).long()]
    assert rows.tolist() == [[0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1], [0] * 6]


def test_a_single_column_may_have_one_axis():
    labels = torch.tensor([0, 3, -1])
    assert torch.equal(edge_kind(labels, (4,)), edge_kind(labels[:, None], (4,)))
    assert check_edge_kinds("HGCN", 4) == (4,)


def test_wrong_labels_and_sizes_are_refused():
    with pytest.raises(
        ShapeError, match=r"'edge_attr' must hold indices from 0 to 3 \(−1 for other labels\), got 0 to 4"
    ):
        edge_kind(torch.tensor([0, 4]), (4,))
    with pytest.raises(ShapeError, match=r"must have a column for each of the 3 edge labels, got \[5\]"):
        edge_kind(torch.zeros(5, dtype=torch.long), SIZES)
    with pytest.raises(
        ShapeError, match=r"must be an integer tensor: the index of each label, got torch.float32"
    ):
        edge_kind(torch.zeros(5), (4,))
    with pytest.raises(
        ArgumentError, match=r"HGCN: 'edge_kinds' must hold whole numbers of at least 1, got 0"
    ):
        check_edge_kinds("HGCN", (2, 0))
    with pytest.raises(ArgumentError, match=r"'edge_kinds' must have at most 4,096 combinations, got 10,201"):
        check_edge_kinds("HGCN", (100, 100))
