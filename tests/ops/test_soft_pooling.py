"""Soft pooling and its losses against torch-geometric's dense functions on padded batches, and worked examples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import dense_diff_pool, dense_mincut_pool
from torch_geometric.utils import coalesce, to_dense_adj, to_dense_batch

from graphcaps.ops.edges import edge_table
from graphcaps.ops.propagation.propagation import degrees, neighbour_sum
from graphcaps.ops.soft_pooling import (
    SoftPooling,
    assignment_entropy,
    cut_loss,
    edge_norm,
    link_loss,
    normalise_coarse,
    orthogonality_loss,
    soft_pool,
)
from graphcaps.types import Segments
from tests.graphs import Graphs, assert_equal, random_graphs

_SIZES, _CLUSTERS = [6, 9, 4, 13], 3


@pytest.fixture
def graphs() -> Graphs:
    return random_graphs(_SIZES, density=3)


def _edge_number(graphs: Graphs) -> Tensor:
    """Number of the undirected edge of each column of the coalesced edge index."""
    i, j = coalesce(graphs.edge_index)
    return torch.unique(torch.minimum(i, j) * len(graphs.x) + torch.maximum(i, j), return_inverse=True)[1]


def _inputs(graphs: Graphs) -> tuple[Tensor, Tensor, Tensor]:
    """Features, logits of the assignment and one weight per undirected edge, which all require a gradient."""
    torch.manual_seed(1)
    logits = torch.randn(len(graphs.x), _CLUSTERS, dtype=torch.float64)
    weight = 0.5 + torch.rand(int(_edge_number(graphs).max()) + 1, dtype=torch.float64)
    x, s, w = (value.clone().requires_grad_() for value in (graphs.x, logits, weight))
    return x, s, w


def _dense(
    graphs: Graphs, x: Tensor, logits: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Padded features, adjacency, logits and mask of torch-geometric."""
    edge_index = coalesce(graphs.edge_index)
    rows, mask = to_dense_batch(x, graphs.batch)
    columns, _ = to_dense_batch(logits, graphs.batch)
    return rows, to_dense_adj(edge_index, graphs.batch, weight[_edge_number(graphs)]), columns, mask


def _ragged(
    graphs: Graphs, x: Tensor, logits: Tensor, weight: Tensor
) -> tuple[SoftPooling, Tensor, Tensor, Tensor]:
    """Pooled graphs, assignment, squared norms and degrees."""
    edges = edge_table(coalesce(graphs.edge_index), len(x), weight[_edge_number(graphs)])
    s = logits.softmax(-1)
    pooled = soft_pool(x, s, neighbour_sum(s, edges), graphs.segments)
    return pooled, s, edge_norm(edges, graphs.segments, x.dtype), degrees(edges)


def _assert_same_gradients(
    actual: Callable[[], Tensor], expected: Callable[[], Tensor], inputs: tuple[Tensor, ...]
) -> None:
    ours = torch.autograd.grad(actual(), inputs, allow_unused=True)
    theirs = torch.autograd.grad(expected(), inputs, allow_unused=True)
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        zero = torch.zeros_like(inputs[number])
        assert_equal(
            zero if one is None else one, zero if other is None else other, f"gradient of input {number}"
        )


def _mixed(*tensors: Tensor) -> Tensor:
    """A number that depends on every entry in its own way."""
    return sum(
        (
            (t * torch.linspace(0.1, 2, t.numel(), dtype=t.dtype).reshape(t.shape).cos()).sum()
            for t in tensors
        ),
        torch.zeros((), dtype=torch.float64),
    )


def test_pooled_graphs_and_losses_of_diffpool(graphs: Graphs) -> None:
    inputs = _inputs(graphs)
    count, largest = len(_SIZES), max(_SIZES)

    def ours() -> tuple[Tensor, ...]:
        pooled, s, norm, _ = _ragged(graphs, *inputs)
        distance = link_loss(pooled, norm, graphs.sizes) * graphs.sizes.square()
        entropy = assignment_entropy(s, graphs.segments) * graphs.sizes
        # torch-geometric takes one norm over the whole padded batch, and a mean over padded rows.
        link = distance.square().sum().sqrt() / (count * largest**2)
        return pooled.x, pooled.adjacency, link, entropy.sum() / (count * largest)

    def theirs() -> tuple[Tensor, ...]:
        rows, adjacency, logits, mask = _dense(graphs, *inputs)
        return dense_diff_pool(rows, adjacency, logits, mask)

    for name, one, other in zip(("x", "adjacency", "link", "entropy"), ours(), theirs(), strict=True):
        assert_equal(one, other, name)
    _assert_same_gradients(lambda: _mixed(*ours()), lambda: _mixed(*theirs()), inputs)


def test_losses_of_single_graphs_are_those_of_torch_geometric(graphs: Graphs) -> None:
    x, logits, weight = _inputs(graphs)
    pooled, s, norm, _ = _ragged(graphs, x, logits, weight)
    distance, entropy = link_loss(pooled, norm, graphs.sizes), assignment_entropy(s, graphs.segments)
    rows, adjacency, columns, _ = _dense(graphs, x, logits, weight)
    for graph, n in enumerate(_SIZES):
        _, _, link, mean = dense_diff_pool(rows[graph, :n], adjacency[graph, :n, :n], columns[graph, :n])
        assert_equal(distance[graph], link, f"link loss of graph {graph}")
        assert_equal(entropy[graph], mean, f"entropy of graph {graph}")


def test_pooled_graphs_and_losses_of_mincut(graphs: Graphs) -> None:
    inputs = _inputs(graphs)

    def ours() -> tuple[Tensor, ...]:
        pooled, s, _, degree = _ragged(graphs, *inputs)
        cut = cut_loss(pooled, s, degree, graphs.segments).mean()
        orthogonality = orthogonality_loss(pooled.overlap).mean()
        return pooled.x, normalise_coarse(pooled.adjacency), cut, orthogonality

    def theirs() -> tuple[Tensor, ...]:
        rows, adjacency, logits, mask = _dense(graphs, *inputs)
        return dense_mincut_pool(rows, adjacency, logits, mask)

    for name, one, other in zip(("x", "adjacency", "cut", "orthogonality"), ours(), theirs(), strict=True):
        assert_equal(one, other, name)
    _assert_same_gradients(lambda: _mixed(*ours()), lambda: _mixed(*theirs()), inputs)


def test_coarse_graphs_are_pooled_in_the_same_way(graphs: Graphs) -> None:
    """Graphs of equal size as coarse graphs, without segments."""
    equal = random_graphs([5, 5], density=3)
    inputs = _inputs(equal)
    pooled, s, norm, degree = _ragged(equal, *inputs)
    rows, adjacency, logits, _ = _dense(equal, *inputs)
    dense_s = logits.softmax(-1)
    coarse = soft_pool(rows, dense_s, adjacency @ dense_s)
    for name in ("x", "adjacency", "overlap"):
        assert_equal(getattr(coarse, name), getattr(pooled, name), name)
    assert_equal(assignment_entropy(dense_s), assignment_entropy(s, equal.segments), "entropy")
    cut = cut_loss(pooled, s, degree, equal.segments)
    assert_equal(cut_loss(coarse, dense_s, adjacency.sum(-1)), cut, "cut")
    assert_equal(
        link_loss(coarse, adjacency.square().sum((-2, -1)), 5), link_loss(pooled, norm, equal.sizes), "link"
    )


def test_two_nodes_in_two_clusters() -> None:
    """An edge whose nodes are clusters of their own: A − I has the norm 2, nothing is cut, clusters are equal."""
    edges = edge_table(torch.tensor([[0], [1]]), 2)
    segments = Segments.from_sizes(torch.tensor([2]))
    s = torch.eye(2, dtype=torch.float64)
    pooled = soft_pool(torch.tensor([[3.0], [4.0]]).double(), s, neighbour_sum(s, edges), segments)
    assert pooled.x.tolist() == [[[3], [4]]]
    assert pooled.adjacency.tolist() == [[[0, 1], [1, 0]]]
    assert link_loss(pooled, edge_norm(edges, segments, s.dtype), segments.sizes).tolist() == [2 / 4]
    assert assignment_entropy(s, segments).abs().tolist() == [pytest.approx(0)]
    assert cut_loss(pooled, s, degrees(edges), segments).tolist() == [0]
    assert orthogonality_loss(pooled.overlap).tolist() == [pytest.approx(0)]


def test_graphs_without_nodes_or_edges_have_finite_losses_and_gradients() -> None:
    """A graph without nodes, a node without edges, and one cluster."""
    edges = edge_table(torch.tensor([[1], [2]]), 3)
    segments = Segments.from_sizes(torch.tensor([1, 0, 2]))
    for clusters in (1, 2):
        logits = torch.zeros(3, clusters, dtype=torch.float64, requires_grad=True)
        s = logits.softmax(-1)
        pooled = soft_pool(s, s, neighbour_sum(s, edges), segments)
        link = link_loss(pooled, edge_norm(edges, segments, s.dtype), segments.sizes)
        cut = cut_loss(pooled, s, degrees(edges), segments)
        orthogonality = orthogonality_loss(pooled.overlap)
        assert link[1] == cut[0] == cut[1] == orthogonality[1] == 0
        total = link.sum() + cut.sum() + orthogonality.sum() + assignment_entropy(s, segments).sum()
        (total + normalise_coarse(pooled.adjacency).sum()).backward()
        assert bool(total.isfinite())
        assert logits.grad is not None
        assert bool(logits.grad.isfinite().all())
