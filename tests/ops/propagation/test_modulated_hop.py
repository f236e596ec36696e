"""The hop with edge labels: against a loop over edges, in values and gradients, and against the plain hop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops import edge_table, propagate
from graphcaps.ops.edge_kinds import count_edge_kinds, one_hot_kinds
from graphcaps.ops.propagation.modulated_hop import modulated_hop
from graphcaps.ops.propagation.propagation import degrees, edge_list, neighbour_sum
from graphcaps.types import EdgeTable, GraphBatch
from tests.graphs import assert_equal, random_graphs, with_padding

SIZES = (3, 2)
WIDTH = 4


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labelled_batch(*, weighted: bool = False, padded: bool = False) -> GraphBatch:
    """Graphs with a kind per edge; a node of 30 neighbours and one without are among them."""
    graphs = random_graphs([9, 1, 40, 5], seed=4)
    star = torch.stack([torch.full((30,), 12), torch.arange(15, 45)])
    edge_index = torch.cat([graphs.edge_index, star], 1)
    generator = torch.Generator().manual_seed(7)
    kind = torch.randint(0, count_edge_kinds(SIZES), edge_index.shape[1:], generator=generator)
    weight = torch.rand(len(kind), dtype=torch.float64, generator=generator) + 0.2 if weighted else None
    table = edge_table(edge_index, len(graphs.x), weight, kind=kind)
    batch = GraphBatch(graphs.x, graphs.segments, table, graphs.y)
    return with_padding(batch, value=0.0) if padded else batch


def replicas(batch: GraphBatch) -> EdgeTable:
    """The edges of the batch in two replicas, of which the second has its rows from row 10 on as padding."""
    edges = batch.edges
    node = torch.stack([edges.node, edges.node.masked_fill(edges.node >= 10, -1)])
    return EdgeTable(edges.ptr, edges.neighbours, None, node, torch.zeros_like(node), kind=edges.kind)


def loop(x: Tensor, scale: Tensor, shift: Tensor, edges: EdgeTable, normalised: bool = True) -> Tensor:
    """The formula, edge by edge, for one model."""
    one_hot, pairs, degree = one_hot_kinds(SIZES).double(), edge_list(edges), degrees(edges).double()
    root = (degree + 1).rsqrt() if normalised else torch.ones_like(degree)
    rows = [x[v] * root[v] ** 2 for v in range(len(x))]
    for e in range(len(pairs.source)):
        i, j, k = int(pairs.target[e]), int(pairs.source[e]), int(pairs.kind[e])
        gamma, beta = 1 + one_hot[k] @ scale, one_hot[k] @ shift
        weight = 1.0 if pairs.weight is None else pairs.weight[e]
        rows[i] = rows[i] + weight * root[i] * root[j] * (gamma * x[j] + beta)
    return torch.stack(rows)


def inputs(batch: GraphBatch, *lead: int) -> list[Tensor]:
    mask = batch.segments.row_mask
    x = draw(*lead, batch.segments.num_rows, WIDTH)
    x = x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0)
    tables = (draw(*lead, sum(SIZES), WIDTH, seed=seed) for seed in (1, 2))
    return [tensor.requires_grad_() for tensor in (x, *tables)]


def compare(actual: Tensor, expected: Tensor, tensors: list[Tensor]) -> None:
    direction = draw(*expected.shape, seed=9)
    names = ("x", "scale", "shift")
    gradients = (torch.autograd.grad((value * direction).sum(), tensors) for value in (actual, expected))
    assert_equal(actual, expected, "value")
    for name, got, wanted in zip(names, *gradients, strict=True):
        assert float(wanted.abs().max()) > 0.1
        assert_equal(got, wanted, f"gradient of {name}")


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_against_a_loop_over_edges(weighted, padded, normalised):
    batch = labelled_batch(weighted=weighted, padded=padded)
    tensors = inputs(batch)
    actual = modulated_hop(*tensors, batch.edges, SIZES, normalised)
    compare(actual, loop(*tensors, batch.edges, normalised), tensors)


def test_without_normalisation_it_adds_the_neighbours():
    batch = labelled_batch()
    x, zero = draw(batch.segments.num_rows, WIDTH), torch.zeros(sum(SIZES), WIDTH, dtype=torch.float64)
    actual = modulated_hop(x, zero, zero, batch.edges, SIZES, normalised=False)
    assert_equal(actual, x + neighbour_sum(x, batch.edges))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_scale_and_shift_it_is_the_plain_hop(dtype, weighted):
    batch = labelled_batch(weighted=weighted)
    x = draw(batch.segments.num_rows, WIDTH).to(dtype)
    zero = torch.zeros(sum(SIZES), WIDTH, dtype=dtype)
    actual, expected = modulated_hop(x, zero, zero, batch.edges, SIZES), propagate(x, batch.edges)
    torch.testing.assert_close(actual, expected, rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_replicas_have_their_own_scale_and_shift():
    batch = labelled_batch()
    edges, tensors = replicas(batch), inputs(batch, 2)
    together = modulated_hop(*tensors, edges, SIZES)
    alone = []
    for f in range(2):
        own = EdgeTable(edges.ptr, edges.neighbours, None, edges.node[f], edges.first[f], kind=edges.kind)
        alone.append(modulated_hop(*(tensor[f] for tensor in tensors), own, SIZES))
    expected = torch.stack(alone)
    real = edges.node >= 0
    compare(together[real], expected[real], tensors)


def test_weights_of_edges_have_a_gradient():
    batch = labelled_batch(weighted=True)
    tensors = inputs(batch)
    weight = batch.edges.weight.clone().requires_grad_()
    edges = EdgeTable(batch.edges.ptr, batch.edges.neighbours, weight, batch.edges.node, batch.edges.first,
                      kind=batch.edges.kind)  # fmt: skip
    direction = draw(batch.segments.num_rows, WIDTH, seed=9)
    got, wanted = (
        torch.autograd.grad((form * direction).sum(), weight)[0]
        for form in (modulated_hop(*tensors, edges, SIZES), loop(*tensors, edges))
    )
    assert float(wanted.abs().max()) > 0.1
    assert_equal(got, wanted)


def test_an_unseen_label_adds_nothing():
    batch = labelled_batch()
    x, scale, shift = inputs(batch)
    edges = EdgeTable(batch.edges.ptr, batch.edges.neighbours, None, batch.edges.node, batch.edges.first,
                      kind=torch.zeros_like(batch.edges.kind))  # fmt: skip
    assert_equal(modulated_hop(x, scale, shift, edges, SIZES), propagate(x, edges))


def test_edges_without_kinds_are_refused():
    graphs = random_graphs([4])
    tables = torch.zeros(2, sum(SIZES), 5, dtype=torch.float64)
    with pytest.raises(
        ShapeError, match=r"modulated_hop: 'edges' must have kinds, got none\. Pass edge_attr"
    ):
        modulated_hop(graphs.x, *tables, graphs.edges, SIZES)
