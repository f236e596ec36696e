"""CliquePool: its levels and its refusals. Scores are compared with dense matrices in test_coarsening_network."""

from itertools import pairwise

import pytest

from graphcaps.data.precompute import precompute
from graphcaps.errors import ArgumentError
from graphcaps.models.cliquepool import CliquePool
from tests.graphs import tiny_graphs


def test_rows_of_a_level_are_cliques() -> None:
    # A triangle with a tail, an edge, and a single node.
    graphs, model = tiny_graphs(), CliquePool(5, 2, num_pools=1).double()
    batch = precompute(graphs.as_store(), model.precomputation).batch(graphs.x)
    (level,) = batch.levels
    assert level.segments.index.tolist() == [0, 0, 1, 2]
    ptr = level.members.segments.ptr.tolist()
    rows = [level.members.source[a:b].tolist() for a, b in pairwise(ptr)]
    assert rows == [[0, 1, 2], [3], [4, 5], [6]]
    assert model.forward_batch(batch).class_scores.shape == (3, 2)


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="CliquePool: 'num_pools' must be at least 1, got 0"):
        CliquePool(5, 2, num_pools=0)
    with pytest.raises(ArgumentError, match="CliquePool: 'reduction' must be 'max' or 'mean', got 'sum'"):
        CliquePool(5, 2, reduction="sum")
    with pytest.raises(ArgumentError, match="CliquePool: 'hidden' must be at least 1, got 0"):
        CliquePool(5, 2, hidden=0)
