"""HaarPool: one level is a sum. Scores are compared with dense matrices in test_coarsening_network."""

import pytest
import torch

from graphcaps.data.precompute import precompute
from graphcaps.errors import ArgumentError
from graphcaps.models.haarpool import HaarPool
from graphcaps.ops.structure.pool_members import pool_members
from tests.graphs import assert_equal, random_graphs


def test_one_level_is_the_sum_divided_by_the_root_of_the_number_of_nodes() -> None:
    graphs, model = random_graphs([6, 9, 1]), HaarPool(5, 2, num_pools=1)
    store = precompute(graphs.as_store(), model.precomputation, dtype=torch.float64)
    (level,) = store.batch(graphs.x).levels
    expected = torch.stack(
        [graphs.one(graph).x.sum(0) / len(graphs.one(graph).x) ** 0.5 for graph in range(3)]
    )
    assert_equal(pool_members(graphs.x, level), expected)


def test_coefficients_keep_the_length_of_rows_that_are_constant_on_clusters() -> None:
    graphs, model = random_graphs([12]), HaarPool(5, 2)
    store = precompute(graphs.as_store(), model.precomputation, dtype=torch.float64)
    level = store.batch(graphs.x).levels[0]
    assert level.segments.num_rows == 7
    once = pool_members(graphs.x, level)
    assert float(once.norm()) < float(graphs.x.norm())  # a projection
    ones = pool_members(torch.ones(12, 1, dtype=torch.float64), level)
    assert float(ones.norm()) == pytest.approx(12**0.5)


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="HaarPool: 'num_pools' must be at least 1, got 0"):
        HaarPool(5, 2, num_pools=0)
