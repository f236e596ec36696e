"""Messages of GINE: a worked example, a loop over edges in values and gradients, replicas, edge weights."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops.edges import edge_table
from graphcaps.ops.propagation.edge_relu_sum import edge_relu_sum
from graphcaps.ops.propagation.modulated_hop import kind_table
from graphcaps.ops.propagation.propagation import edge_list
from graphcaps.types import EdgeTable
from tests.graphs import assert_equal, random_graphs
from tests.ops.propagation.test_modulated_hop import SIZES, labelled_batch, replicas


def _loop(x: Tensor, shift: Tensor, edges: EdgeTable) -> Tensor:
    """The formula, edge by edge, for one model."""
    pairs, table, rows = edge_list(edges), kind_table(shift, SIZES), [torch.zeros_like(x[0]) for _ in x]
    assert pairs.kind is not None
    for e in range(len(pairs.target)):
        message = (x[int(pairs.source[e])] + table[int(pairs.kind[e])]).relu()
        i = int(pairs.target[e])
        rows[i] = rows[i] + (message if pairs.weight is None else pairs.weight[e] * message)
    return torch.stack(rows)


def _inputs(rows: int, *lead: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((*lead, rows, 4), (*lead, sum(SIZES), 4))
    return [torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_() for s in shapes]


def test_worked_example() -> None:
    # A path of three nodes: its edges have the labels 1 and 2, whose rows are 10 and −3.
    edges = edge_table(torch.tensor([[0, 1], [1, 2]]), 3, kind=torch.tensor([1, 2]))
    x, shift = (torch.tensor(v, dtype=torch.float64) for v in ([[1], [2], [4]], [[10], [-3]]))
    # Node 0 gets 2 + 10, node 1 gets 1 + 10 and 4 − 3, and node 2 gets max(0, 2 − 3).
    expected = torch.tensor([[12], [12], [0]], dtype=torch.float64)
    assert_equal(edge_relu_sum(x, shift, edges, (2,)), expected)


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_against_a_loop_over_edges(weighted: bool) -> None:
    batch = labelled_batch(weighted=weighted)
    edges, tensors = batch.edges, _inputs(len(batch.x))
    x, shift = tensors
    if weighted:
        assert edges.weight is not None
        weight = edges.weight.clone().requires_grad_()
        edges = dataclasses.replace(edges, weight=weight, pairs=None)
        tensors.append(weight)
    actual, expected = edge_relu_sum(x, shift, edges, SIZES), _loop(x, shift, edges)
    assert_equal(actual, expected, "value")
    direction = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad((v * direction).sum(), tensors) for v in (actual, expected))
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert float(other.abs().max()) > 1e-2
        assert_equal(one, other, f"gradient of input {number}")


def test_replicas_equal_single_models() -> None:
    batch = labelled_batch()
    edges = replicas(batch)
    x, shift = _inputs(len(batch.x), 2)
    actual = edge_relu_sum(x, shift, edges, SIZES)
    for f in range(2):
        alone = dataclasses.replace(edges, node=edges.node[f], first=edges.first[f])
        assert_equal(actual[f], edge_relu_sum(x[f], shift[f], alone, SIZES), f"replica {f}")


def test_edges_without_kinds_are_refused() -> None:
    graphs = random_graphs([5])
    with pytest.raises(ShapeError, match=r"edge_relu_sum: 'edges' must have kinds, got none\."):
        edge_relu_sum(graphs.x, torch.zeros(2, 5, dtype=torch.float64), graphs.edges, (2,))
