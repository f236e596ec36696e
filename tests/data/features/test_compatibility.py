"""Graphs that a recipe cannot encode are found all at once, each with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps.data import FeatureRecipe
from graphcaps.data.features.compatibility import check_columns, check_compatible, find_incompatible
from graphcaps.errors import ArgumentError
from tests.graphs import random_graphs


def store_with(labels: list[list[int]], attributes: torch.Tensor | None = None):
    store = random_graphs([2, 3, 1], seed=2).as_store()
    return replace(store, node_labels=torch.tensor(labels), node_attributes=attributes)


SEEN = store_with([[0, 5], [1, 5], [2, 6], [0, 6], [1, 5], [2, 5]], torch.zeros(6, 2, dtype=torch.float64))
RECIPE = FeatureRecipe(degree_onehot=None, propagation=0).fit(SEEN)


def test_compatible_graphs_have_no_reason():
    assert find_incompatible(SEEN, RECIPE) == {}
    check_compatible(SEEN, RECIPE)


def test_every_label_column_and_every_graph_is_checked():
    new = replace(SEEN, node_labels=torch.tensor([[0, 5], [1, 5], [8, 6], [9, 6], [8, 7], [2, -1]]))
    assert find_incompatible(new, RECIPE) == {
        1: "node labels 8, 9 in label column 0, on 3 nodes, not seen in training; "
        "node label 7 in label column 1, on 1 node, not seen in training",
        2: "node label -1 in label column 1, on 1 node, not seen in training",
    }
    assert find_incompatible(new, RECIPE, unseen="ignore") == {}
    assert find_incompatible(new, replace(RECIPE, labels=False, label_values=())) == {}


def test_attributes_are_named_by_node_within_the_graph():
    attributes = torch.zeros(6, 2, dtype=torch.float64)
    attributes[3, 1], attributes[4, 0], attributes[5, 0] = float("nan"), float("inf"), 1e300
    new = replace(SEEN, node_attributes=attributes)
    expected = {
        1: "attribute 1 of node 1 is nan, which is not a finite number",
        2: "attribute 0 of node 0 is 1e+300, too large to compute with",
    }
    assert find_incompatible(new, RECIPE) == expected
    assert find_incompatible(new, RECIPE, unseen="ignore") == expected
    assert list(find_incompatible(new, RECIPE, dtype=torch.float64)) == [1]


def test_agrees_with_the_recipe_graph_by_graph():
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        labels = torch.randint(0, 8, (6, 2), generator=generator)
        new = replace(SEEN, node_labels=labels)
        refused = set()
        for graph in range(3):
            try:
                RECIPE.apply(new[graph])
            except ArgumentError:
                refused.add(graph)
        assert set(find_incompatible(new, RECIPE)) == refused


def test_other_numbers_of_columns_are_refused():
    with pytest.raises(ArgumentError, match=r"verb: 'graphs' must have 2 node label columns, .* got 1 node"):
        check_columns(replace(SEEN, node_labels=SEEN.node_labels[:, :1]), RECIPE, "verb")
    with pytest.raises(ArgumentError, match=r"must have 2 node attribute columns, .* got no node attribute"):
        check_columns(replace(SEEN, node_attributes=None), RECIPE)
