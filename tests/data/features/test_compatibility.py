"""Graphs that a recipe cannot encode are found all at once, each with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps.data import FeatureRecipe
from graphcaps.data.features.compatibility import check_graphs
from graphcaps.errors import ArgumentError
from tests.graphs import random_graphs


def store_with(labels: list[list[int]], attributes: torch.Tensor | None = None):
    store = random_graphs([2, 3, 1], seed=2).as_store()
    return replace(store, node_labels=torch.tensor(labels), node_attributes=attributes)


SEEN = store_with([[0, 5], [1, 5], [2, 6], [0, 6], [1, 5], [2, 5]], torch.zeros(6, 2, dtype=torch.float64))
RECIPE = FeatureRecipe(degree_onehot=None, propagation=0).fit(SEEN)


def test_compatible_graphs_have_no_reason():
    checked = check_graphs(SEEN, RECIPE)
    assert (checked.errors, checked.unseen) == ({}, {})
    assert checked.require() is SEEN


def test_every_label_column_and_every_graph_is_checked():
    new = replace(SEEN, node_labels=torch.tensor([[0, 5], [1, 5], [8, 6], [9, 6], [8, 7], [2, -1]]))
    expected = {
        1: "node labels 8, 9 in label column 0, on 3 nodes, not seen in training; "
        "node label 7 in label column 1, on 1 node, not seen in training",
        2: "node label -1 in label column 1, on 1 node, not seen in training",
    }
    refused, ignored = check_graphs(new, RECIPE), check_graphs(new, RECIPE, unseen="ignore")
    assert (refused.errors, refused.unseen) == (expected, {})
    assert (ignored.errors, ignored.unseen) == ({}, expected)
    assert check_graphs(new, replace(RECIPE, labels=False, label_values=())).errors == {}


def test_attributes_are_named_by_node_within_the_graph():
    attributes = torch.zeros(6, 2, dtype=torch.float64)
    attributes[3, 1], attributes[4, 0], attributes[5, 0] = float("nan"), float("inf"), 1e300
    new = replace(SEEN, node_attributes=attributes)
    expected = {
        1: "attribute 1 of node 1 is nan, which is not a finite number",
        2: "attribute 0 of node 0 is 1e+300, too large to compute with",
    }
    assert check_graphs(new, RECIPE).errors == expected
    assert check_graphs(new, RECIPE, unseen="ignore").errors == expected
    assert list(check_graphs(new, RECIPE, dtype=torch.float64).errors) == [1]
    attributes[5, 0] = 1e16  # squares of sums exceed float32
    assert check_graphs(new, RECIPE).errors[2] == "attribute 0 of node 0 is 1e+16, too large to compute with"
    scaled = replace(RECIPE, standardise=True, attribute_mean=(0.0, 0.0), attribute_std=(1e6, 0.0))
    attributes[5, 1] = 1e300  # constant in training, and not read
    assert list(check_graphs(new, scaled).errors) == [1]


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
        assert set(check_graphs(new, RECIPE).errors) == refused


def test_other_numbers_of_columns_are_refused():
    with pytest.raises(ArgumentError, match=r"verb: 'graphs' must have 2 node label columns, .* got 1 node"):
        check_graphs(replace(SEEN, node_labels=SEEN.node_labels[:, :1]), RECIPE, owner="verb")
    with pytest.raises(ArgumentError, match=r"must have 2 node attribute columns, .* got no node attribute"):
        check_graphs(replace(SEEN, node_attributes=None), RECIPE)


def test_require_raises_or_warns_once_with_one_sentence():
    new = replace(
        SEEN, name="new", node_labels=torch.tensor([[0, 5], [1, 5], [8, 6], [0, 6], [1, 5], [9, 5]])
    )
    with pytest.raises(ArgumentError) as caught:
        check_graphs(new, RECIPE, owner="verb", argument="X").require()
    assert str(caught.value) == (
        "verb: 'X' must hold graphs that the model can read, got graph 1 of new: node label 8 in label column 0, on "
        "1 node, not seen in training (2 such graphs). Pass unseen='ignore' to encode unseen labels as zeros."
    )
    with pytest.warns(UserWarning, match="encoded as zeros") as warned:
        assert check_graphs(new, RECIPE, owner="verb", unseen="ignore").require() is new
    assert [str(warning.message) for warning in warned] == [
        "verb: unseen labels are encoded as zeros in 2 of 3 graphs. Graph 1: node label 8 in label column 0, on 1 "
        "node, not seen in training."
    ]
    with pytest.raises(ArgumentError, match=r"verb: 'unseen' must be 'refuse' or 'ignore', got 'zero'\."):
        check_graphs(new, RECIPE, owner="verb", unseen="zero")  # type: ignore[arg-type]


def test_text_labels_are_named_by_their_text():
    names = {5: "red", 7: "blue"}
    checked = check_graphs(replace(SEEN, node_labels=SEEN.node_labels + 2, label_names=names), RECIPE)
    assert checked.errors[0] == (
        "node label 3 in label column 0, on 1 node, not seen in training; "
        "node label 'blue' in label column 1, on 2 nodes, not seen in training"
    )


def test_selected_graphs_are_neither_refused_nor_warned_about():
    new = replace(SEEN, node_labels=SEEN.node_labels + 9)
    checked = check_graphs(new, RECIPE, unseen="ignore").select(torch.tensor([2, 0]))
    assert checked.require().sizes.tolist() == [1, 2]


def test_without_warnings_graphs_are_refused_but_not_warned_about():
    checked = check_graphs(replace(SEEN, node_labels=SEEN.node_labels + 9), RECIPE, unseen="ignore")
    checked = replace(checked, others={0: "element Si on 1 atom"}, truncated={1: "it has 9 nodes"})
    assert checked.without_warnings().require() is checked.store
    with pytest.raises(ArgumentError, match=r"graph 2 of .*: too large"):
        replace(checked, errors={2: "too large"}).without_warnings().require()


# ---------------------------------------------------------------------- names of attributes
NAMED = replace(
    SEEN,
    node_attributes=torch.arange(12, dtype=torch.float64).reshape(6, 2),
    source_columns={"node_attributes": ("mass", "charge")},
)
NAMED_RECIPE = FeatureRecipe(degree_onehot=None, propagation=0).fit(NAMED)


def renamed(*names: str):
    return replace(NAMED, source_columns={"node_attributes": names})


def test_attributes_in_another_order_are_matched_by_name():
    swapped = replace(renamed("charge", "mass"), node_attributes=NAMED.node_attributes.flip(1))
    checked = check_graphs(swapped, NAMED_RECIPE).require()
    assert checked.column_names("node_attributes") == ("mass", "charge")
    assert torch.equal(checked.node_attributes, NAMED.node_attributes)
    assert torch.equal(NAMED_RECIPE.apply(swapped), NAMED_RECIPE.apply(NAMED))
    assert check_graphs(NAMED, NAMED_RECIPE).require() is NAMED


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("a", "b"), "no 'mass', 'charge' and 'a', 'b', which the model does not know"),
        (("mass", "b"), "no 'charge' and 'b', which the model does not know"),
    ],
)
def test_attributes_of_other_names_are_refused_with_their_names(names, problem):
    with pytest.raises(ArgumentError) as caught:
        check_graphs(renamed(*names), NAMED_RECIPE, owner="predict")
    assert str(caught.value) == (
        "predict: 'graphs' must have the node attributes 'mass', 'charge', as the graphs that the model was trained "
        f"on, got {problem} in {NAMED.name}."
    )


def test_attributes_without_names_are_matched_by_position():
    unnamed = replace(NAMED, source_columns={})
    assert check_graphs(unnamed, NAMED_RECIPE).require() is unnamed
    recipe = FeatureRecipe(degree_onehot=None, propagation=0).fit(unnamed)
    new = renamed("a", "b")
    assert check_graphs(new, recipe).require() is new
    ignoring = FeatureRecipe(degree_onehot=None, propagation=0, attributes=False).fit(NAMED)
    assert check_graphs(new, ignoring).require() is new


def test_an_attribute_that_is_not_finite_is_named():
    attributes = NAMED.node_attributes.clone()
    attributes[3, 1] = float("nan")
    checked = check_graphs(replace(NAMED, node_attributes=attributes), NAMED_RECIPE)
    assert checked.errors == {1: "attribute 'charge' of node 1 is nan, which is not a finite number"}
