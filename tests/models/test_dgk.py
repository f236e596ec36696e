"""The deep graph kernel: it equals its definition, and keeps what the selected setting reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.colour_counts import count_colours
from graphcaps.models.dgk import DGK


@pytest.fixture(scope="module")
def store() -> GraphStore:
    graphs = planted_parts(num_graphs=30)
    labels = (torch.arange(graphs.num_nodes) * 7 % 5 // 2).reshape(-1, 1)
    return replace(graphs, node_labels=labels)


@pytest.fixture(scope="module")
def fitted(store) -> DGK:
    model = DGK(3, iterations=(0, 1, 2), dimension=(2, 6), C=(1.0,))
    model.fit(store, np.arange(30), store.y.numpy())
    return model


def test_the_kernel_equals_its_definition(store):
    model = DGK(3, iterations=(0, 1, 2), dimension=(3, 8))
    columns = model._fit_columns(store, np.arange(20))
    left, right = (model._rows(store, indices, columns) for indices in (np.arange(20, 30), np.arange(20)))
    colours = count_colours(store, 2)
    for h, d in model.settings:
        read = columns.vocabulary.iteration <= h
        E = np.where(read[:, None], columns.vectors[:, : int(d)], 0)
        M = E @ E.T * (columns.vocabulary.iteration[:, None] == columns.vocabulary.iteration)
        phi = colours.select(np.arange(30), columns.vocabulary).toarray()
        k = phi @ M @ phi.T
        root = np.sqrt(np.diag(k))
        expected = k / np.outer(root, root)
        np.testing.assert_allclose(model._kernel(left, right, (h, d)), expected[20:, :20], atol=1e-5)


def test_vectors_are_those_of_colours_of_several_training_graphs(store):
    train = np.arange(10)
    columns = DGK(3, iterations=(2,), min_graphs=3)._fit_columns(store, train)
    colours = count_colours(store, 2)
    occurs = np.bincount(colours.counts[train].indices, minlength=len(colours.vocabulary))
    assert len(columns.vocabulary) == (occurs >= 3).sum() < len(colours.vocabulary)
    assert columns.vectors.shape == (len(columns.vocabulary), 50)


def test_settings_are_pairs_in_the_order_of_preference(store, fitted):
    model = DGK(2, iterations=(3, 1), dimension=(10, 5))
    assert model.settings == [(1, 5), (1, 10), (3, 5), (3, 10)]
    assert list(fitted.selected) == ["iterations", "dimension", "C"]
    assert tuple(fitted.selected.values())[:2] in fitted.settings


def test_only_what_the_selected_setting_reads_is_kept(fitted):
    h, d = fitted.setting
    state = fitted.state()
    S = fitted.machine.num_supports
    assert state["support_rows"].shape == (S, h + 1, d)
    assert state["colour_vectors"].shape == (len(state["colour"]), d)
    assert int(state["colour_iteration"].max()) <= h


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": (-1,)}, "DGK: 'iterations' must be at least 0"),
        ({"dimension": (0, 3)}, "DGK: 'dimension' must be at least 1"),
        ({"dimension": ()}, "DGK: 'dimension' must be one or more different values"),
        ({"min_graphs": 0}, "DGK: 'min_graphs' must be at least 1"),
    ],
)
def test_options_out_of_range_are_rejected(options, message):
    with pytest.raises(ArgumentError, match=message):
        DGK(2, **options)


def test_a_state_of_other_options_is_refused(fitted):
    state = fitted.state()
    with pytest.raises(ArgumentError, match=r"'selected_setting' must be one of \(1, 3\), got \("):
        DGK(3, iterations=(1,), dimension=(3,), C=(1.0,)).load_state(state)
    same = DGK(3, iterations=(0, 1, 2), dimension=(2, 6), C=(1.0,))
    for name in ("support_rows", "colour_vectors"):
        with pytest.raises(ArgumentError, match=f"DGK: '{name}' must have the shape"):
            same.load_state(state | {name: state[name][:-1]})
    same.load_state(state)
    assert same.selected == fitted.selected
