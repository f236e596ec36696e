"""Structures of a store: joined, selected, and bounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from graphcaps.data.precompute import compute_structure
from graphcaps.errors import ArgumentError
from graphcaps.ops.structure.precomputation import GraphStructure, PlainGraph
from graphcaps.ops.structure.structure import SizeBound, StoredLevel
from tests.coarse_levels import NeighbourLevels, levelled_store


def test_a_level_is_what_was_computed_of_each_graph() -> None:
    store, _ = levelled_store()
    assert store.structure is not None
    first, top = store.structure.levels
    assert first.node_ptr.tolist() == [0, 3, 8, 8, 9, 11]  # the third graph has no nodes
    assert top.node_ptr.tolist() == [0, 1, 2, 2, 3, 4]
    # Graph 1 has 9 nodes; node 2 of its 5 coarse nodes has the multiples of 3 as members.
    node = 3 + 2
    members = slice(first.member_ptr[node], first.member_ptr[node + 1])
    assert first.members[members].tolist() == [0, 3, 6]
    assert first.owners[members].tolist() == [2, 2, 2]
    assert first.weights is not None
    assert first.edge_weight is not None
    assert torch.allclose(first.weights[members, 1], torch.tensor(3.0, dtype=torch.float64))
    edges = slice(first.edge_ptr[node], first.edge_ptr[node + 1])
    assert first.neighbours[edges].tolist() == [1, 3]  # the diagonal is left out
    assert first.edge_weight[edges].tolist() == [2, 3]
    assert (first.max_size, first.max_degree) == (5, 2)
    assert store.structure.columns is not None
    assert store.structure.columns.squeeze(-1).tolist() == store.degree.tolist()


@pytest.mark.parametrize("graphs", [[1, 4], [3, 0, 0], [2], []])
def test_selected_graphs_have_the_structure_of_these_graphs_alone(graphs: list[int]) -> None:
    store, _ = levelled_store()
    chosen = store[torch.tensor(graphs, dtype=torch.long)]
    expected = compute_structure(chosen.with_structure(None), NeighbourLevels())
    assert chosen.structure is not None
    for actual, wanted in zip(chosen.structure.levels, expected.levels, strict=True):
        for name in ("node_ptr", "edge_ptr", "neighbours", "edge_weight", "entry_ptr", "member_ptr", "members",
                     "owners", "weights", "host_node_ptr", "host_entry_ptr"):  # fmt: skip
            a, b = getattr(actual, name), getattr(wanted, name)
            assert (a is None and b is None) or torch.equal(a, b), name
    assert torch.equal(chosen.structure.columns, expected.columns)


def test_arrays_restore_a_level() -> None:
    store, _ = levelled_store()
    for level in store.structure.levels:
        restored = StoredLevel.from_arrays(store.sizes, level.arrays())
        for name, value in vars(level).items():
            other = getattr(restored, name)
            assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, name


def test_a_bound_holds_for_every_batch_and_is_reached() -> None:
    generator = np.random.default_rng(0)
    sizes = generator.integers(0, 30, 40)
    counts = np.where(sizes > 0, generator.integers(0, 50, 40), 0)
    bound = SizeBound.of(torch.from_numpy(sizes), torch.from_numpy(counts))
    for _ in range(500):
        batch = generator.integers(0, 40, generator.integers(1, 6))
        spare_rows, spare_graphs = generator.integers(0, 3, 2)
        total = bound.total(sizes[batch].sum() + spare_rows, len(batch) + spare_graphs)
        assert total >= counts[batch].sum()
    largest = counts.argmax()
    assert bound.total(int(sizes[largest]), 1) == counts[largest]
    assert SizeBound.of(torch.tensor([4, 8]), torch.tensor([2, 4])).total(24, 4) == 12  # half the nodes


def test_a_structure_must_be_as_stated() -> None:
    @dataclass(frozen=True)
    class Wrong(NeighbourLevels):
        def compute(self, graph: PlainGraph) -> GraphStructure:
            return GraphStructure(super().compute(graph).levels[:1])

    store, _ = levelled_store()
    expected = r"'compute' must give levels with \(2, 0\) weights and 1 columns for graph 0, got \(2,\) and 0"
    with pytest.raises(ArgumentError, match=expected):
        compute_structure(store, Wrong())
