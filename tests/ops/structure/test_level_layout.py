"""Levels and columns of a batch against those of each graph alone."""

from __future__ import annotations

import pytest
import torch

from graphcaps.data.batching import collate_padded
from graphcaps.data.store import GraphStore
from graphcaps.ops.propagation.propagation import neighbour_sum
from graphcaps.training.streaming import StreamedStore
from graphcaps.types import GraphBatch
from tests.coarse_levels import levelled_store

BATCH = torch.tensor([[1, 0, 4], [3, 2, -1], [-1, -1, -1], [4, 1, 1]])


def describe(store: GraphStore, batch: GraphBatch, graphs: torch.Tensor) -> None:
    """Asserts that every graph of every replica has its coarse edges, members, weights and columns."""
    structure = store.structure
    assert structure is not None
    for f, b in torch.cartesian_prod(*(torch.arange(size) for size in graphs.shape)).tolist():
        graph = int(graphs[f, b])
        below = batch.segments
        for level, stored in zip(batch.levels, structure.levels, strict=True):
            rows = slice(*level.segments.ptr[f, b : b + 2].tolist())
            assert level.segments.index[f, rows].eq(b).all()
            if graph < 0:
                assert rows.start == rows.stop
                below = level.segments
                continue
            nodes = range(*stored.node_ptr[graph : graph + 2].tolist())
            assert level.edges.node[f, rows].tolist() == list(nodes)
            for row, node in zip(range(rows.start, rows.stop), nodes, strict=True):
                entries = slice(*level.members.segments.ptr[f, row : row + 2].tolist())
                wanted = slice(*stored.member_ptr[node : node + 2].tolist())
                first = int(below.ptr[f, b])
                assert (level.members.source[f, entries] - first).tolist() == stored.members[wanted].tolist()
                assert level.members.segments.index[f, entries].eq(row).all()
                if stored.weights is not None:
                    assert torch.equal(level.members.weights[f, entries], stored.weights[wanted])
            below = level.segments
    real = batch.edges.node >= 0
    assert torch.equal(batch.columns[real], structure.columns[batch.edges.node[real]])


@pytest.mark.parametrize("form", ["exact", "bounded", "streamed"])
def test_levels_of_a_batch(form: str) -> None:
    store, graphs = levelled_store()
    if form == "exact":
        batch = store.batch(graphs.x, BATCH)
        assert [level.segments.num_rows for level in batch.levels] == [12, 3]  # of the last replica
    elif form == "bounded":
        batch = collate_padded(store, graphs.x, BATCH, 25)
    else:
        batch = StreamedStore(store, torch.device("cpu")).batch(graphs.x, BATCH)
        # The nodes of a streamed batch are those of a store of its own, but its levels compute the same.
        x = torch.randn(4, 12, 3, dtype=torch.float64)
        expected = store.batch(graphs.x, BATCH).levels[0]
        assert torch.equal(neighbour_sum(x, batch.levels[0].edges), neighbour_sum(x, expected.edges))
        assert torch.equal(batch.levels[0].members.source, expected.members.source)
        return
    describe(store, batch, BATCH)


def test_graphs_without_nodes_only() -> None:
    store, graphs = levelled_store()
    alone = store[[2, 2]]
    batch = alone.batch(graphs.x[:0])
    assert [level.segments.ptr.tolist() for level in batch.levels] == [[0, 0, 0]] * 2
    assert not any(level.segments.row_mask.any() for level in batch.levels)
    assert batch.columns.shape == (1, 1)


def test_a_store_without_a_structure_has_no_levels() -> None:
    store, graphs = levelled_store()
    batch = store.with_structure(None).batch(graphs.x)
    assert batch.levels == ()
    assert batch.columns is None
