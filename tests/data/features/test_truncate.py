"""Truncation against a computation of one graph at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.features.truncate import truncate_nodes
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError


def make(seed: int, graphs: int = 4) -> GraphStore:
    draw = np.random.default_rng(seed)
    arrays = []
    for _ in range(graphs):
        n = int(draw.integers(1, 10))
        E = int(draw.integers(0, 3 * n))
        arrays.append(
            GraphArrays(
                n,
                torch.from_numpy(draw.integers(0, n, (2, E))),
                int(draw.integers(0, 2)),
                node_labels=torch.from_numpy(draw.integers(0, 5, (n, 1))),
                node_attributes=torch.from_numpy(draw.normal(size=(n, 2))),
                edge_labels=torch.from_numpy(draw.integers(0, 5, (E, 1))),
                edge_attributes=torch.from_numpy(draw.normal(size=(E, 2))),
                edge_weight=torch.from_numpy(draw.uniform(0.5, 2, E)),
                truth={"part": torch.from_numpy(draw.integers(0, 3, n))},
            )
        )
    return store_from_graphs(arrays)


def edges_of(store: GraphStore, g: int) -> dict[tuple[int, int], int]:
    """Entries of one graph: (node, neighbour) to the row of the entry."""
    first, end = int(store.node_ptr[g]), int(store.node_ptr[g + 1])
    return {
        (i, int(store.neighbours[entry])): entry
        for i in range(end - first)
        for entry in range(int(store.edge_ptr[first + i]), int(store.edge_ptr[first + i + 1]))
    }


@given(seed=st.integers(0, 10_000), limit=st.integers(1, 9))
def test_truncation_equals_one_graph_at_a_time(seed: int, limit: int) -> None:
    store = make(seed)
    x = torch.randn(store.num_nodes, 3)
    truncated = truncate_nodes(store, limit, x)
    result = truncated.store
    kept_rows: list[int] = []
    removed_edges = 0
    for g in range(len(store)):
        first = int(store.node_ptr[g])
        n = int(store.node_ptr[g + 1]) - first
        degree = store.degree[first : first + n].tolist()
        kept = sorted(sorted(range(n), key=lambda i: (-degree[i], i))[:limit])
        kept_rows += [first + i for i in kept]
        position = {i: new for new, i in enumerate(kept)}
        before, after = edges_of(store, g), edges_of(result, g)
        expected = {
            (position[i], position[j]): e for (i, j), e in before.items() if i in position and j in position
        }
        assert after.keys() == expected.keys()
        removed_edges += (len(before) - len(expected)) // 2
        for pair, entry in expected.items():
            for column in ("edge_labels", "edge_attributes", "edge_weight"):
                assert torch.equal(getattr(result, column)[after[pair]], getattr(store, column)[entry])
    assert truncated.nodes.tolist() == kept_rows
    assert truncated.x is not None
    assert torch.equal(truncated.x, x[kept_rows])
    for column in ("node_labels", "node_attributes"):
        assert torch.equal(getattr(result, column), getattr(store, column)[kept_rows])
    assert torch.equal(result.truth["part"], store.truth["part"][kept_rows])
    assert result.y is not None
    assert result.y.tolist() == store.y.tolist()  # type: ignore[union-attr]
    assert truncated.truncated_graphs == int((store.sizes > limit).sum())
    assert truncated.removed_nodes == store.num_nodes - result.num_nodes
    assert truncated.removed_edges == removed_edges


def test_ties_keep_the_lower_index_and_the_order_of_nodes() -> None:
    # A ring of four (degree 2 each) and a leaf at node 3, which then has degree 3.
    ring = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 0, 4]])
    truncated = truncate_nodes(store_from_graphs([GraphArrays(5, ring)]), 3)
    assert truncated.nodes.tolist() == [0, 1, 3]
    assert edges_of(truncated.store, 0).keys() == {(0, 1), (1, 0), (0, 2), (2, 0)}
    assert repr(truncated).endswith("truncated_graphs=1, removed_nodes=2, removed_edges=3)")


def test_features_are_those_of_the_whole_graph() -> None:
    star = torch.tensor([[0, 0, 0], [1, 2, 3]])
    store = store_from_graphs([GraphArrays(4, star)])
    x = FeatureRecipe(degree_onehot=None, propagation=0).fit(store).apply(store)
    truncated = truncate_nodes(store, 2, x)
    assert truncated.x is not None
    assert truncated.x[:, 1].tolist() == [3, 1]  # not [1, 1], the degrees after truncation
    assert truncated.store.degree.tolist() == [1, 1]


def test_no_graph_over_the_limit_returns_the_store_itself() -> None:
    store = make(1)
    truncated = truncate_nodes(store, 100)
    assert truncated.store is store
    assert truncated.x is None
    assert truncated.nodes.tolist() == list(range(store.num_nodes))
    assert (truncated.truncated_graphs, truncated.removed_nodes, truncated.removed_edges) == (0, 0, 0)


def test_wrong_arguments_are_refused() -> None:
    store = make(1)
    for limit in (0, -3, 1.5):
        with pytest.raises(ArgumentError, match=rf"'max_nodes' must be a positive integer, got {limit}"):
            truncate_nodes(store, limit)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=rf"'x' must have one row per node, {store.num_nodes}, got 1"):
        truncate_nodes(store, 2, torch.zeros(1, 3))
