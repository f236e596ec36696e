"""Local degree profiles: their values equal torch-geometric's, and their bins are logarithmic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import LocalDegreeProfile

from graphcaps.data.convert.pyg_graphs import to_pyg
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.ldp_forest import LDPForest, local_degree_profile
from graphcaps.ops.edges import clean_edges


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=30)


def star_and_point() -> GraphStore:
    """A star of three rays with one more edge at the first of them, and a node without edges."""
    ends = torch.tensor([[0, 0, 0, 1], [1, 2, 3, 4]])
    return GraphStore.from_clean_edges("star", torch.tensor([0, 5, 6]), clean_edges(ends[0], ends[1], 6))


def test_worked_example():
    third = 4 / 3
    assert local_degree_profile(star_and_point()) == pytest.approx(
        np.array(
            [
                [3, 1, 2, third, np.sqrt(2) / 3],
                [2, 1, 3, 2, 1],
                [1, 3, 3, 3, 0],
                [1, 3, 3, 3, 0],
                [1, 2, 2, 2, 0],
                [0, 0, 0, 0, 0],
            ]
        )
    )


def test_profiles_equal_torch_geometric(store):
    profile, ptr = local_degree_profile(store), store.node_ptr.tolist()
    for graph, data in enumerate(to_pyg(store[:4])):
        bare = Data(edge_index=data.edge_index, num_nodes=data.num_nodes)
        expected = LocalDegreeProfile()(bare).x.numpy()
        # torch-geometric adds 1e-5 to the variance.
        own = profile[ptr[graph] : ptr[graph + 1]]
        np.testing.assert_allclose(own[:, :4], expected[:, :4], rtol=1e-6)
        np.testing.assert_allclose(own[:, 4] ** 2, expected[:, 4] ** 2, atol=2e-5)


def test_histograms_of_a_worked_example():
    model = LDPForest(2, bins=4, trees=1)
    store = star_and_point()
    rows = model._columns(store, np.arange(2), np.array([3.0, 3.0, 3.0, 3.0, 1.0]))
    # log(1 + x) / log(4) · 4 of 0, 1, 2, 3 is 0, 2, 3.17, 4.
    degree, minimum = rows[0, :4].tolist(), rows[0, 4:8].tolist()
    assert degree == [0, 0, 3, 2]
    assert minimum == [0, 0, 2, 3]
    assert rows[:, -2:].tolist() == [[5, 4], [1, 0]]
    assert rows[1, :20].reshape(5, 4).tolist() == [[1, 0, 0, 0]] * 5
    # Values above the largest one of training fall into the last bin.
    assert model._columns(store, np.arange(1), np.ones(5))[0, :4].tolist() == [0, 0, 0, 5]


def test_bins_are_those_of_the_training_graphs(store):
    assert store.y is not None
    model = LDPForest(3, trees=3)
    model.fit(store, np.arange(10), store.y.numpy()[:10])
    nodes = int(store.node_ptr[10])
    assert np.array_equal(model.columns, local_degree_profile(store)[:nodes].max(0))
    assert model._num_columns(model.columns) == 252


def test_options_and_states_are_checked(store):
    assert store.y is not None
    with pytest.raises(ArgumentError, match="LDPForest: 'bins' must be at least 1, got 0"):
        LDPForest(2, bins=0)
    model = LDPForest(3, trees=3)
    model.fit(store, np.arange(10), store.y.numpy()[:10])
    state = model.state()
    with pytest.raises(ArgumentError, match="LDPForest: 'profile_max' must be at least 0"):
        LDPForest(3, trees=3).load_state(state | {"profile_max": -state["profile_max"] - 1})
