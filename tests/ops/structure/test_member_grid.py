"""The grid of members against loops over graphs, coarse nodes and members."""

from __future__ import annotations

import torch

from graphcaps.ops.structure.member_grid import member_grid
from graphcaps.types import CoarseLevel, GraphBatch
from tests.coarse_levels import levelled_store


def _loops(level: CoarseLevel, replica: int, w: int, k: int) -> list[list[list[int]]]:
    """Source rows, −1 where there is none."""
    members, grid = level.members, []
    for a, b in level.segments.ptr[replica].unfold(0, 2, 1).tolist():
        rows = []
        for row in range(a, min(b, a + w)):
            first, end = members.segments.ptr[replica, row : row + 2].tolist()
            found = members.source[replica, first:end].tolist()[:k]
            rows.append(found + [-1] * (k - len(found)))
        grid.append(rows + [[-1] * k] * (w - len(rows)))
    return grid


def test_equals_loops() -> None:
    """Replicas, padding and a graph without nodes; more and fewer coarse nodes and members than the grid has."""
    store, _ = levelled_store()
    graphs = torch.tensor([[0, 1, 3], [4, 2, -1]])
    batch: GraphBatch = store.batch(torch.zeros(store.num_nodes, 1, dtype=torch.float64), graphs)
    for w, k in ((3, 4), (7, 12)):
        grid = member_grid(batch.levels[0], w, k)
        assert grid.source.shape == (2, 3, w, k)
        assert (grid.source[grid.unused] == 0).all()
        found = grid.source.masked_fill(grid.unused, -1)
        assert found.tolist() == [_loops(batch.levels[0], f, w, k) for f in range(2)]
