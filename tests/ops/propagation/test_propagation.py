"""Sparse hops against dense matrices, weights and their gradients included."""

import dataclasses

import pytest
import torch
from torch import Tensor

from graphcaps.data.batching import collate_padded
from graphcaps.ops import (
    clamp_adjacency,
    coarsen,
    degrees,
    dense_coarsen,
    dense_propagate,
    edge_table,
    induced_scale,
    neighbour_count,
    neighbour_mean,
    neighbour_sum,
    propagate,
    to_edge_index,
)
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.propagation.propagation import edge_list, padded_entries
from graphcaps.types import EdgeTable
from tests.graphs import assert_equal, random_graphs, tiny_graphs, with_padding


def _dense(edges: EdgeTable, size: int) -> Tensor:
    A = torch.zeros(size, size, dtype=torch.float64)
    source, target = to_edge_index(edges)
    A[target, source] = 1
    return A


def test_neighbour_sum_is_a_product() -> None:
    graphs = random_graphs([5, 1, 30])
    A = _dense(graphs.edges, 36)
    assert torch.equal(A, A.T)
    x = graphs.x.requires_grad_()
    assert_equal(neighbour_sum(x, graphs.edges), A @ x)
    assert torch.autograd.gradcheck(lambda t: neighbour_sum(t, graphs.edges).square(), x)
    assert torch.autograd.gradgradcheck(lambda t: neighbour_sum(t, graphs.edges).square(), x)


def test_neighbour_sum_with_the_row_itself() -> None:
    graphs = random_graphs([5, 1, 30])
    A, x = _dense(graphs.edges, 36), graphs.x.requires_grad_()
    assert_equal(neighbour_sum(x, graphs.edges, with_self=True), A @ x + x)
    assert torch.autograd.gradcheck(lambda t: neighbour_sum(t, graphs.edges, with_self=True).square(), x)
    with use_kernels("reference"):
        assert_equal(neighbour_sum(x, graphs.edges, with_self=True), A @ x + x)


def test_neighbour_mean_divides_by_the_number_of_neighbours() -> None:
    graphs = random_graphs([5, 1, 30])
    A = _dense(graphs.edges, 36)
    assert torch.equal(neighbour_count(graphs.edges), A.sum(-1).long())
    assert_equal(neighbour_mean(graphs.x, graphs.edges), A @ graphs.x / A.sum(-1, keepdim=True).clamp_min(1))
    weight = torch.rand(graphs.edge_index.size(1), dtype=torch.float64)
    weighted = edge_table(graphs.edge_index, 36, weight)
    assert torch.equal(neighbour_count(weighted), A.sum(-1).long())
    expected = neighbour_sum(graphs.x, weighted) / A.sum(-1, keepdim=True).clamp_min(1)
    assert_equal(neighbour_mean(graphs.x, weighted), expected, "weighted")
    padded = with_padding(graphs.as_batch(), value=0.0)
    assert_equal(
        neighbour_mean(padded.x, padded.edges)[:36], neighbour_mean(graphs.x, graphs.edges), "padded"
    )
    assert neighbour_count(padded.edges)[36:].tolist() == [0, 0, 0]


def test_propagate_is_the_normalised_product() -> None:
    graphs = random_graphs([5, 1, 30])
    A = _dense(graphs.edges, 36) + torch.eye(36, dtype=torch.float64)
    scale = A.sum(-1).rsqrt()
    expected = scale[:, None] * A * scale @ graphs.x
    assert_equal(propagate(graphs.x, graphs.edges), expected)
    alone = graphs.x[5]  # a single node keeps its own row
    assert_equal(propagate(graphs.x, graphs.edges)[5], alone)


def test_a_scale_of_some_nodes_is_the_hop_on_their_subgraph() -> None:
    graphs = tiny_graphs()
    mask = torch.tensor([True, True, False, True, True, True, False])
    scale = induced_scale(graphs.edges, mask, torch.float64)
    A = _dense(graphs.edges, 7)[mask][:, mask] + torch.eye(5, dtype=torch.float64)
    root = A.sum(-1).rsqrt()
    assert_equal(scale[mask], root)
    one, two = graphs.x.clone().requires_grad_(), graphs.x.clone().requires_grad_()
    value, expected = propagate(one, graphs.edges, scale), root[:, None] * A * root @ two[mask]
    assert_equal(value[mask], expected)
    assert not bool(value[~mask].any())
    value.sin().sum().backward()
    expected.sin().sum().backward()
    assert_equal(one.grad, two.grad, "gradient")


def test_weights_and_their_gradient() -> None:
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    weight = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)

    def dense(w: Tensor) -> Tensor:
        A = torch.zeros(4, 4, dtype=torch.float64)
        A = A.index_put((edge_index[0], edge_index[1]), w) + A.index_put((edge_index[1], edge_index[0]), w)
        A = A + torch.eye(4, dtype=torch.float64)
        scale = A.sum(-1).clamp_min(1).rsqrt()
        return scale[:, None] * A * scale @ x

    actual = propagate(x, edge_table(edge_index, 4, weight))
    expected = dense(weight)
    assert_equal(actual, expected)
    for one, two in zip(torch.autograd.grad(actual.square().sum(), (x, weight)),
                        torch.autograd.grad(expected.square().sum(), (x, weight)), strict=True):  # fmt: skip
        assert_equal(one, two, "gradient")
    constant = edge_table(edge_index, 4, weight.detach())
    assert_equal(propagate(x, constant), expected)
    assert_equal(degrees(constant), torch.tensor([3.5, 2.5, 5.0, 0.0], dtype=torch.float64))


def test_negative_weights_keep_the_degree_at_one() -> None:
    edges = edge_table(torch.tensor([[0], [1]]), 2, torch.tensor([-5.0], dtype=torch.float64))
    x = torch.eye(2, dtype=torch.float64)
    assert_equal(propagate(x, edges), torch.tensor([[1.0, -5.0], [-5.0, 1.0]], dtype=torch.float64))


def test_padding_rows_never_reach_a_neighbour() -> None:
    batch = random_graphs([5, 7]).as_batch()
    padded = with_padding(batch)
    assert_equal(propagate(padded.x, padded.edges)[:12], propagate(batch.x, batch.edges))


def test_dense_is_sparse() -> None:
    graphs = random_graphs([6, 6])
    A = _dense(graphs.edges, 12)
    blocks = torch.stack([A[:6, :6], A[6:, 6:]])
    assert_equal(
        dense_propagate(graphs.x.reshape(2, 6, -1), blocks).flatten(0, 1), propagate(graphs.x, graphs.edges)
    )


@pytest.mark.parametrize("sizes", [[6, 6], [3, 100, 1]])
def test_coarsen_is_the_triple_product(sizes: list[int]) -> None:
    graphs = random_graphs(sizes)
    c = torch.randn(sum(sizes), 4, dtype=torch.float64, requires_grad=True)
    A = _dense(graphs.edges, sum(sizes))
    actual = coarsen(c, graphs.edges, graphs.segments)
    parts = c.split(sizes)
    starts = [sum(sizes[:g]) for g in range(len(sizes))]
    expected = torch.stack(
        [p.T @ A[s : s + n, s : s + n] @ p for p, s, n in zip(parts, starts, sizes, strict=True)]
    )
    assert_equal(actual, expected)
    (one,) = torch.autograd.grad(actual.cos().sum(), c)
    (two,) = torch.autograd.grad(expected.cos().sum(), c)
    assert_equal(one, two, "gradient")


def test_dense_coarsen_and_simplify() -> None:
    c = torch.tensor([[[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]])
    A = torch.tensor([[[0.0, 2.0, 1.0], [2.0, 0.0, 0.5], [1.0, 0.5, 0.0]]])
    coarse = dense_coarsen(c, A)
    assert torch.equal(coarse, torch.tensor([[[2.0, 2.25], [2.25, 0.5]]]))
    assert torch.equal(clamp_adjacency(coarse), torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]))


def test_weights_that_change_are_read_again() -> None:
    """Nothing derived from weights is kept: not after no_grad, not after a backward pass, not in a copy."""
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    table = edge_table(torch.tensor([[0], [1]]), 2)
    table = EdgeTable(table.ptr, table.neighbours, weight.expand(2), table.node, table.first, 2)
    x = torch.eye(2, dtype=torch.float64)
    with torch.no_grad():
        propagate(x, table)
    for _ in range(2):
        (gradient,) = torch.autograd.grad(propagate(x, table).square().sum(), weight)
        assert float(gradient.abs()) > 0
    heavy = dataclasses.replace(table, weight=torch.full((2,), 3.0, dtype=torch.float64))
    assert_equal(degrees(heavy), torch.full((2,), 3.0, dtype=torch.float64))
    assert float((propagate(x, heavy) - propagate(x, table)).detach().abs().max()) > 0.1


def test_a_hop_has_the_right_gradient_twice() -> None:
    graphs = random_graphs([4, 1, 3])
    x = graphs.x[:, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda t: propagate(t, graphs.edges).square(), x)
    assert torch.autograd.gradgradcheck(lambda t: propagate(t, graphs.edges).square(), x)


@pytest.mark.parametrize("lead", [(), (3,)])
def test_padded_entries_are_the_edges_and_padding_without_effect(lead: tuple[int, ...]) -> None:
    graphs = random_graphs([5, 1, 30])
    store = graphs.as_store()
    indices = torch.tensor([0, 2, -1]) if not lead else torch.tensor([[0, 2], [1, 0], [2, -1]])
    exact = store.batch(graphs.x, indices).edges
    rows, E = exact.node.numel(), exact.num_entries
    assert E is not None
    source, target = padded_entries(exact, E + 9, 4)
    pairs = edge_list(exact)
    assert torch.equal(source[:E], pairs.source)
    assert torch.equal(target[:E], pairs.target)
    assert ((target[E:] >= rows) & (target[E:] < rows + 4)).all()
    assert len(target[E:].unique()) == 4
    assert (source[E:] < rows).all()
    bounded = collate_padded(store, graphs.x, indices, 40).edges
    assert bounded.num_entries is None
    assert bounded.max_entries is not None
    assert bounded.max_entries >= E


def test_entries_of_graphs_without_edges_are_padding() -> None:
    edges = edge_table(torch.empty(2, 0, dtype=torch.long), 3)
    source, target = padded_entries(edges, 2, 1)
    assert target.tolist() == [3, 3]
    assert source.tolist() == [0, 1]
