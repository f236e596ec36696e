"""What the base class of classical models does for all of them; the contract itself is tested in test_contract.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps.config import FeatureConfig, RunConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, ShapeError, UsageError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.model_file import load
from graphcaps.models import find_classical_model, find_graph_model, is_classical
from graphcaps.models.builder import build_classical, model_factory
from graphcaps.models.majority import Majority
from graphcaps.models.wl_forest import WLForest


@pytest.fixture(scope="module")
def store() -> GraphStore:
    graphs = planted_parts(num_graphs=42)[:40]
    labels = (torch.arange(graphs.num_nodes) % 3).reshape(-1, 1)
    return replace(graphs, node_labels=labels)


def fitted_forest(store: GraphStore) -> FittedModel:
    config = RunConfig(model="wl-forest", model_arguments={"trees": 10}, features=WLForest.features())
    model = build_classical(config, store.num_classes)
    assert store.y is not None
    model.fit(store, np.arange(30), store.y.numpy()[:30])
    recipe = FeatureRecipe.from_config(config.features).fit(store)
    return FittedModel(model, config, recipe, store.class_names)


def test_the_registry_tells_the_two_kinds_apart():
    assert is_classical("wl-forest")
    assert not is_classical("hgcn")
    assert find_classical_model("majority") is Majority
    with pytest.raises(
        ArgumentError, match="model 'gin': 'kind' must be fitted without gradient training, got GIN"
    ):
        find_classical_model("gin")
    with pytest.raises(ArgumentError, match="'kind' must be trained by gradient descent, got WLForest"):
        find_graph_model("wl-forest")
    with pytest.raises(ArgumentError, match="be trained by gradient descent"):
        model_factory(RunConfig(model="majority"), 3, 2)


def test_seed_and_jobs_are_no_options():
    assert set(WLForest.options()) == {"iterations", "trees", "max_columns"}
    assert not Majority.options()
    with pytest.raises(ArgumentError, match="'seed' must be one of iterations, trees"):
        build_classical(RunConfig(model="wl-forest", model_arguments={"seed": 1}), 2)
    with pytest.raises(ArgumentError, match="'trees' must be left out, since there are no options"):
        build_classical(RunConfig(model="majority", model_arguments={"trees": 1}), 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trees": "many"}, "'trees' must be a whole number, got 'many'"),
        ({"trees": 10**7}, "'trees' must be at most 1,000,000"),
        ({"iterations": -1}, "'iterations' must be at least 0, got -1"),
    ],
)
def test_options_are_checked_as_those_of_networks(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        build_classical(RunConfig(model="wl-forest", model_arguments=arguments), 2)


def test_features_describe_what_a_model_reads():
    nothing = {"degree": False, "degree_onehot": None, "propagation": 0, "max_nodes": None}
    assert WLForest.features() == FeatureConfig(labels=True, attributes=False, edge_labels=None, **nothing)
    assert Majority.features() == FeatureConfig(labels=False, attributes=False, edge_labels=None, **nothing)


def test_invalid_arguments_are_rejected(store):
    model = Majority(3)
    with pytest.raises(ArgumentError, match="at least one training graph"):
        model.fit(store, np.zeros(0, np.int64), np.zeros(0, np.int64))
    with pytest.raises(ShapeError, match="have one class per graph, 3"):
        model.fit(store, np.arange(3), np.zeros(2, np.int64))
    with pytest.raises(ArgumentError, match="hold classes from 0 to 2, got 0 to 3"):
        model.fit(store, np.arange(2), np.array([0, 3]))
    with pytest.raises(ArgumentError, match="be from 0 to 39, got 0 to 40"):
        model.fit(store, np.array([0, 40]), np.zeros(2, np.int64))
    with pytest.raises(ArgumentError, match="be from 0 to 39, got -1 to -1"):
        model.predict_proba(store, np.array([-1]))
    with pytest.raises(ShapeError, match="be one axis of integers"):
        model.fit(store, np.array([0.5]), np.zeros(1, np.int64))
    for arguments in ({"seed": -1}, {"jobs": 0}, {"num_classes": 0}):
        with pytest.raises(ArgumentError, match="be at least"):
            Majority(**({"num_classes": 2} | arguments))


def test_a_fitted_model_has_no_capsules_and_runs_on_the_cpu(store, tmp_path: Path):
    fitted = fitted_forest(store)
    with pytest.raises(ArgumentError, match="'model' must have capsules, got a model without"):
        fitted.embed(store)
    with pytest.raises(ArgumentError, match="Other models have no capsules to explain"):
        fitted.explain(store[0])
    with pytest.raises(ArgumentError, match="must be a network, got WLForest"):
        fitted.export(tmp_path / "model.pt2")
    assert fitted.to("cpu") is fitted
    assert fitted.dtype == torch.float64
    with pytest.raises(UsageError, match="runs on the CPU"):
        fitted.to("cuda")


def test_a_fitted_model_describes_itself(store):
    info = fitted_forest(store).info()
    assert info["model"]["scores"] == "probabilities"
    assert info["model"]["parameters"] > 100
    assert info["expects"]["reads"] == ["edges", "node_labels"]
    assert info["expects"]["node_labels"] == [[0, 1, 2]]


def test_unseen_labels_are_refused_unless_they_are_to_be_ignored(store):
    fitted = fitted_forest(store)
    strange = replace(store[:3], node_labels=store[:3].node_labels + 7)
    with pytest.raises(ArgumentError, match="label"):
        fitted.predict(strange)
    with pytest.warns(UserWarning, match="labels"):
        assert fitted.predict_proba(strange, unseen="ignore").shape == (3, store.num_classes)


def test_a_configuration_of_another_model_is_not_saved(store, tmp_path: Path):
    fitted = fitted_forest(store)
    for config, message in (
        (replace(fitted.config, model_arguments={"trees": 11}), "be of 11 trees, got 10"),
        (RunConfig(model="majority"), "'prior'"),
        (RunConfig(model="gin"), "be fitted without gradient training"),
    ):
        with pytest.raises(ArgumentError, match=message):
            replace(fitted, config=config).save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_file_with_damaged_trees_is_refused(store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fitted, path = fitted_forest(store), tmp_path / "model.safetensors"
    state = fitted.model.state()
    children = state["children"].clone()
    children[0, 0] = 0  # a circle, on which a prediction would never end
    monkeypatch.setattr(WLForest, "state", lambda self: state | {"children": children})
    with pytest.raises(ArgumentError, match="'children' must be later nodes"):
        fitted.save(path)
    with monkeypatch.context() as patch:
        patch.setattr(WLForest, "load_state", lambda self, state: None)
        fitted.save(path)
    with pytest.raises(DataError, match="'children' must be later nodes"):
        load(path)
