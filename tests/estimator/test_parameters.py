"""Parameters of HGCNClassifier: defaults and checks."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from graphcaps import HGCNClassifier
from graphcaps.errors import ArgumentError
from graphcaps.estimator.parameters import default_config
from graphcaps.training import Callback
from tests.estimator.small_classifier import small
from tests.small_models import bonded, labelled, planted


def test_defaults_equal_the_preset():
    config = default_config()
    defaults = {name: entry.default for name, entry in inspect.signature(HGCNClassifier).parameters.items()}
    for name, value in config.model_arguments.items():
        assert name == "formulation" or defaults[name] == value
    by_model, of_features = ("dropout", "class_residual"), ("degree_onehot", "max_nodes")
    assert config.by_data == ("batch_size", *by_model, *of_features, "reconstruct_up_to")
    assert defaults["batch_size"] is defaults["dropout"] is defaults["max_nodes"] is None
    training = ("epochs", "learning_rate", "halve_every", "reconstruction_weight", "average_epochs")
    molecules = default_config("molecules")
    for name in training:
        assert defaults[name] == getattr(config.training, name) == getattr(molecules.training, name)
    assert config.model_arguments == molecules.model_arguments
    assert defaults["weight_decay"] is None  # that of the preset
    model = HGCNClassifier(epochs=1, device="cpu", random_state=0).fit(planted()[:12])
    assert model.model_.config.source == "default, changed by arguments"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "'epochs' must be an integer of at least 1, got 0"),
        ({"epochs": 2.5}, "'epochs' must be an integer"),
        ({"epochs": True}, "'epochs' must be an integer"),
        ({"patience": 0}, "'patience' must be an integer of at least 1, or None"),
        ({"dropout": 1.0}, "'dropout' must be at least 0 and below 1"),
        ({"learning_rate": 0}, "'learning_rate' must be above 0 and finite"),
        ({"learning_rate": "fast"}, "'learning_rate' must be above 0"),
        ({"validation": -0.1}, "'validation' must be at least 0 and below 1"),
        ({"num_capsules": ()}, "'num_capsules' must be a positive integer, or several"),
        ({"num_factors": 3}, "'num_factors' must divide 'capsule_dim', 8"),
        ({"class_weight": "equal"}, "'class_weight' must be None, 'balanced' or a dictionary"),
        ({"class_weight": {"nobody": 1.0}}, "'class_weight' must have classes among"),
        ({"class_weight": {"ring-star": -1.0}}, "'class_weight' must have positive numbers as values"),
        (
            {"metric": "auc"},
            "'metric' must be one of 'loss', 'accuracy', 'balanced-accuracy', 'roc-auc', 'pr-auc'",
        ),
        ({"calibrate": "platt"}, "'calibrate' must be one of True, False, 'temperature', 'isotonic'"),
        ({"unseen": "hide"}, "'unseen' must be one of"),
        (
            {"edge_labels": True},
            "'edge_labels' must be one of None, False, 'counts', 'messages', 'both', got True",
        ),
        ({"edge_labels": "messages"}, "'edge_labels' must be left out for graphs without edge labels"),
        ({"callbacks": 3}, "'callbacks' must be None or a list of graphcaps.training.Callback"),
        ({"callbacks": Callback()}, "'callbacks' must be a list"),
        ({"device": 0}, "'device' must be a string"),
    ],
)
def test_arguments_are_checked_by_fit(change, message):
    model = small(**change)  # the constructor does not validate
    with pytest.raises(ArgumentError, match=message.replace("(", r"\(")):
        model.fit(labelled())


def test_edge_labels_are_read_as_the_parameter_says() -> None:
    store = bonded()
    recipes = {}
    for use in (None, False, "counts", "messages", "both"):
        model = small(epochs=1, edge_labels=use)
        recipes[use] = model.fit(replace(store, catalogue_name="MUTAG")).model_.recipe
        assert model.model_.config.features.edge_labels == (use or None)
    assert recipes[None] == recipes[False]
    columns = {use: len(recipe.column_names()) for use, recipe in recipes.items()}
    assert columns[False] == columns["messages"] < columns["counts"] == columns["both"]
    assert recipes["messages"].edge_kinds == recipes["both"].edge_kinds != ()


def test_molecules_can_be_read_without_their_bonds() -> None:
    pytest.importorskip("rdkit")
    smiles, y = ["CCO", "CCN", "CCC", "CCF", "C=C", "C=O"], [0, 0, 0, 1, 1, 1]
    models = {use: small(epochs=1, edge_labels=use).fit(smiles, y).model_ for use in (None, False, "both")}
    uses = {use: model.config.features.edge_labels for use, model in models.items()}
    assert uses == {None: "messages", False: None, "both": "both"}


@pytest.mark.parametrize("given", [None, 0.0003, 0.001, 0.01])
def test_a_weight_decay_is_used_as_it_is_given(given: float | None) -> None:
    """Also one that the preset of other graphs has."""
    pytest.importorskip("rdkit")
    graphs, smiles = planted()[:12], ["CCO", "CCN", "CCC", "CCF"]
    of_graphs = small(epochs=1, weight_decay=given).fit(graphs).model_.config.training.weight_decay
    of_smiles = small(epochs=1, weight_decay=given).fit(smiles, [0, 0, 1, 1]).model_.config.training
    assert of_graphs == (0.0003 if given is None else given)
    assert of_smiles.weight_decay == (0.001 if given is None else given)
