"""Attention along the edges: a worked example, a loop over edges in values and gradients, replicas, edge weights."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops.edge_kinds import count_edge_kinds
from graphcaps.ops.edges import edge_table
from graphcaps.ops.propagation.edge_attention import edge_attention
from graphcaps.ops.propagation.propagation import edge_list
from graphcaps.types import EdgeTable
from tests.graphs import assert_equal, random_graphs
from tests.ops.propagation.test_modulated_hop import SIZES, labelled_batch, replicas

_KINDS = count_edge_kinds(SIZES)


def _loop(x: Tensor, centre: Tensor, member: Tensor, bias: Tensor | None, edges: EdgeTable) -> Tensor:
    """The formula, node by node, for one model."""
    pairs, rows = edge_list(edges), []
    for i in range(len(x)):
        own = [e for e in range(len(pairs.target)) if int(pairs.target[e]) == i]
        logits = [centre[i] + member[i]]
        shares = [x[i]]
        for e in own:
            j = int(pairs.source[e])
            assert pairs.kind is not None
            term = 0 if bias is None else bias[int(pairs.kind[e])]
            logits.append(centre[i] + member[j] + term)
            shares.append(x[j] if pairs.weight is None else pairs.weight[e] * x[j])
        attention = torch.nn.functional.leaky_relu(torch.stack(logits), 0.2).softmax(0)
        rows.append((attention.unsqueeze(-1) * torch.stack(shares)).sum(0))
    return torch.stack(rows)


def _inputs(rows: int, *lead: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((*lead, rows, 4), (*lead, rows), (*lead, rows), (*lead, _KINDS))
    return [torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_() for s in shapes]


def test_worked_example() -> None:
    # Node 0: itself with logit 0, node 1 with ln 3, so the weights are 1/4 and 3/4.
    # Node 1: itself with ln 3 − ln 3, node 0 with LeakyReLU(−ln 3), so the weights are as 1 to 3^−0.2.
    edges = edge_table(torch.tensor([[0], [1]]), 2)
    x, member = (torch.tensor(v, dtype=torch.float64) for v in ([[0], [4]], [0, math.log(3)]))
    centre = -member
    expected = torch.tensor([[3], [4 / (1 + 3**-0.2)]], dtype=torch.float64)
    assert_equal(edge_attention(x, centre, member, edges), expected)


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "kinds"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_against_a_loop_over_edges(weighted: bool, biased: bool) -> None:
    batch = labelled_batch(weighted=weighted)
    edges = batch.edges
    *rest, bias = _inputs(len(batch.x))
    tensors = [*rest, bias] if biased else [*rest]
    if weighted:
        assert edges.weight is not None
        weight = edges.weight.clone().requires_grad_()
        edges = dataclasses.replace(edges, weight=weight, pairs=None)
        tensors.append(weight)
    actual = edge_attention(*rest, edges, bias if biased else None)
    expected = _loop(*rest, bias if biased else None, edges)
    assert_equal(actual, expected, "value")
    direction = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad((v * direction).sum(), tensors) for v in (actual, expected))
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert float(other.abs().max()) > 1e-2
        assert_equal(one, other, f"gradient of input {number}")


def test_replicas_equal_single_models() -> None:
    batch = labelled_batch()
    edges = replicas(batch)
    x, centre, member, bias = _inputs(len(batch.x), 2)
    actual = edge_attention(x, centre, member, edges, bias)
    for f in range(2):
        alone = dataclasses.replace(edges, node=edges.node[f], first=edges.first[f])
        assert_equal(actual[f], edge_attention(x[f], centre[f], member[f], alone, bias[f]), f"replica {f}")


def test_edges_without_kinds_are_refused() -> None:
    graphs = random_graphs([4])
    x, centre, member, bias = _inputs(4)
    with pytest.raises(
        ShapeError, match=r"edge_attention: 'edges' must have kinds, got none\. Pass edge_attr"
    ):
        edge_attention(x, centre, member, graphs.edges, bias)
