"""The contract of classical models, tested on every registered one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from graphcaps.config import FeatureConfig, RunConfig
from graphcaps.data.coerce import concat_stores
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError, UsageError
from graphcaps.inference.fitted_model import FittedModel, load
from graphcaps.models import ClassicalModel, find_model, is_classical, model_names
from graphcaps.models.builder import build_classical, recipe_arguments

CLASSICAL = [name for name in model_names() if is_classical(name)]
SMALL = {"trees": 12}  # options that make a model fast, where it has them
every_classical_model = pytest.mark.parametrize("name", CLASSICAL)


def small_config(name: str) -> RunConfig:
    options = find_model(name).options()
    return RunConfig(model=name, model_arguments={key: SMALL[key] for key in SMALL if key in options})


def build(name: str, num_classes: int = 3, **arguments: int) -> ClassicalModel:
    return build_classical(small_config(name), num_classes, **arguments)


@pytest.fixture(scope="module")
def store() -> GraphStore:
    """Forty graphs of three classes, with two label columns and two attributes."""
    graphs = load_dataset("planted-parts")[torch.arange(0, 300, 300 // 40)[:40]]
    rows = torch.arange(graphs.num_nodes)
    degree_label = graphs.degree.clamp(max=4)
    attributes = torch.stack([graphs.degree.double(), (rows % 7).double()], dim=1)
    labels = torch.stack([degree_label, rows % 2], dim=1)
    return replace(graphs, node_labels=labels, node_attributes=attributes)


def targets(store: GraphStore, indices: np.ndarray) -> np.ndarray:
    assert store.y is not None
    return store.y.numpy()[indices]


def fit(name: str, store: GraphStore, indices: np.ndarray | None = None, **arguments: int) -> ClassicalModel:
    indices = np.arange(30) if indices is None else indices
    model = build(name, store.num_classes, **arguments)
    model.fit(store, indices, targets(store, indices))
    return model


def permute_nodes(store: GraphStore, seed: int = 0) -> GraphStore:
    """The same graphs with the nodes of each in another order."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for graph in range(len(store)):
        single = store[graph]
        order = torch.randperm(single.num_nodes, generator=generator)
        new_index = order.argsort()
        degree = single.degree[order]
        rows = [
            new_index[single.neighbours[first:end].long()]
            for first, end in zip(
                single.edge_ptr[order].tolist(), single.edge_ptr[order + 1].tolist(), strict=True
            )
        ]
        parts.append(
            replace(
                single,
                edge_ptr=torch.nn.functional.pad(degree.cumsum(0), (1, 0)),
                neighbours=torch.cat([row.sort().values for row in rows]).int(),
                node_labels=None if single.node_labels is None else single.node_labels[order],
                node_attributes=None if single.node_attributes is None else single.node_attributes[order],
                truth={key: value[order] for key, value in single.truth.items()},
            )
        )
    return concat_stores(parts)


@every_classical_model
def test_probabilities_are_rows_that_sum_to_one(name, store):
    probability = fit(name, store).predict_proba(store, np.arange(40))
    assert probability.shape == (40, 3)
    assert probability.dtype == np.float64
    assert (probability >= 0).all()
    np.testing.assert_allclose(probability.sum(1), 1, atol=1e-12)


@every_classical_model
def test_a_seed_and_any_number_of_threads_give_the_same_bits(name, store):
    expected = fit(name, store, seed=3).predict_proba(store, np.arange(40))
    for jobs in (1, 2):
        again = fit(name, store, seed=3, jobs=jobs)
        assert np.array_equal(again.predict_proba(store, np.arange(40)), expected)


@every_classical_model
def test_a_second_fit_replaces_the_first(name, store):
    model = fit(name, store, np.arange(25))
    model.fit(store, np.arange(10, 40), targets(store, np.arange(10, 40)))
    expected = fit(name, store, np.arange(10, 40)).predict_proba(store, np.arange(10))
    assert np.array_equal(model.predict_proba(store, np.arange(10)), expected)


@every_classical_model
def test_the_order_of_nodes_does_not_matter(name, store):
    expected = fit(name, store).predict_proba(store, np.arange(40))
    permuted = permute_nodes(store)
    assert not torch.equal(permuted.neighbours, store.neighbours)
    assert np.array_equal(fit(name, permuted).predict_proba(store, np.arange(40)), expected)
    assert np.array_equal(fit(name, store).predict_proba(permuted, np.arange(40)), expected)


@every_classical_model
def test_the_place_of_graphs_in_the_store_and_other_graphs_do_not_matter(name, store):
    train, rest = np.arange(30), np.arange(30, 40)
    expected = fit(name, store, train).predict_proba(store, rest)
    order = np.random.default_rng(0).permutation(40)
    moved, place = store[torch.from_numpy(order)], np.argsort(order)
    assert np.array_equal(fit(name, moved, place[train]).predict_proba(moved, place[rest]), expected)
    without = fit(name, store[torch.arange(30)])
    assert np.array_equal(without.predict_proba(store, rest), expected)


@every_classical_model
def test_a_graph_alone_is_predicted_as_in_a_batch(name, store):
    model = fit(name, store)
    together = model.predict_proba(store, np.arange(40))
    for graph in (0, 7, 39):
        assert np.array_equal(model.predict_proba(store[graph], np.arange(1)), together[[graph]])
        assert np.array_equal(model.predict_proba(store, np.array([graph])), together[[graph]])
    assert model.predict_proba(store, np.zeros(0, np.int64)).shape == (0, 3)


@every_classical_model
def test_a_class_that_is_absent_in_training_keeps_its_column(name, store):
    first_two = np.flatnonzero(store.y.numpy() < 2)
    model = build(name)
    model.fit(store, first_two, targets(store, first_two))
    probability = model.predict_proba(store, np.arange(40))
    assert probability.shape == (40, 3)
    np.testing.assert_allclose(probability.sum(1), 1, atol=1e-12)
    assert probability[:, 2].max() < 0.5


@every_classical_model
def test_training_graphs_of_one_class_are_predicted_as_that_class(name, store):
    one_class = np.flatnonzero(store.y.numpy() == 1)
    model = build(name)
    model.fit(store, one_class, targets(store, one_class))
    assert (model.predict_proba(store, np.arange(40)).argmax(1) == 1).all()


@every_classical_model
def test_unseen_labels_and_graphs_without_edges_are_predicted(name, store):
    model = fit(name, store)
    strange = replace(store, node_labels=store.node_labels + 1000)
    np.testing.assert_allclose(model.predict_proba(strange, np.arange(40)).sum(1), 1, atol=1e-12)
    nodes = store.num_nodes
    no_edges = replace(
        store, edge_ptr=torch.zeros(nodes + 1, dtype=torch.long), neighbours=torch.zeros(0, dtype=torch.int32)
    )
    bare = fit(name, no_edges)
    for other in (no_edges, store):
        np.testing.assert_allclose(bare.predict_proba(other, np.arange(40)).sum(1), 1, atol=1e-12)
    unlabelled = replace(no_edges, node_labels=None, node_attributes=None)
    np.testing.assert_allclose(
        fit(name, unlabelled).predict_proba(unlabelled, np.arange(40)).sum(1), 1, atol=1e-12
    )


@every_classical_model
def test_two_training_graphs_are_enough(name, store):
    two = np.array([np.flatnonzero(store.y.numpy() == label)[0] for label in (0, 1)])
    model = build(name)
    model.fit(store, two, targets(store, two))
    np.testing.assert_allclose(model.predict_proba(store, np.arange(40)).sum(1), 1, atol=1e-12)


@every_classical_model
def test_the_state_restores_the_same_predictions(name, store):
    model = fit(name, store)
    state = model.state()
    assert state
    assert all(isinstance(value, Tensor) for value in state.values())
    restored = build(name)
    restored.load_state(state)
    assert np.array_equal(
        restored.predict_proba(store, np.arange(40)), model.predict_proba(store, np.arange(40))
    )
    model.fit(store, np.arange(5), targets(store, np.arange(5)))  # the state is a copy
    again = build(name)
    again.load_state(state)
    assert np.array_equal(
        again.predict_proba(store, np.arange(40)), restored.predict_proba(store, np.arange(40))
    )


@every_classical_model
def test_a_state_of_other_sizes_is_refused(name, store):
    state = fit(name, store).state()
    with pytest.raises(ArgumentError):
        build(name, 4).load_state(state)
    with pytest.raises(ArgumentError):
        build(name).load_state({})
    with pytest.raises(ArgumentError):
        build(name).load_state(state | {"unknown": torch.zeros(1)})


def fitted_model(name: str, store: GraphStore) -> FittedModel:
    config = replace(small_config(name), features=find_classical_features(name))
    recipe = FeatureRecipe(**recipe_arguments(config.features)).fit(store)
    return FittedModel(fit(name, store), config, recipe, store.class_names)


def find_classical_features(name: str) -> FeatureConfig:
    kind = find_model(name)
    assert issubclass(kind, ClassicalModel)
    return kind.features()


@every_classical_model
def test_a_model_file_restores_the_same_predictions(name, store, tmp_path):
    fitted = fitted_model(name, store)
    fitted.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.predict_proba(store), fitted.predict_proba(store))
    assert (loaded.predict(store) == fitted.predict(store)).all()
    info = loaded.info()["model"]
    assert info["scores"] == "probabilities"
    assert info["parameters"] > 0
    assert set(find_model(name).options()) == set(info["arguments"])


@every_classical_model
def test_a_fitted_model_has_no_capsules_and_runs_on_the_cpu(name, store, tmp_path):
    fitted = fitted_model(name, store)
    with pytest.raises(ArgumentError, match="be one of the 0 capsule levels"):
        fitted.embed(store)
    with pytest.raises(ArgumentError, match="Other models have no capsules to explain"):
        fitted.explain(store[0])
    with pytest.raises(ArgumentError, match="be an HGCN"):
        fitted.export(tmp_path / "model.pt2")
    assert fitted.to("cpu") is fitted
    with pytest.raises(UsageError, match="runs on the CPU"):
        fitted.to("cuda")


@every_classical_model
def test_unknown_options_are_rejected(name):
    with pytest.raises(ArgumentError, match=f"model '{name}': 'depth' must be"):
        build_classical(RunConfig(model=name, model_arguments={"depth": 3}), 2)
    for argument in ("seed", "jobs"):  # arguments of a run, not options of a model
        with pytest.raises(ArgumentError, match=f"'{argument}' must be"):
            build_classical(RunConfig(model=name, model_arguments={argument: 1}), 2)


@every_classical_model
def test_options_of_the_wrong_type_are_rejected(name):
    for option, parameter in find_model(name).options().items():
        wrong: object = 3 if isinstance(parameter.default, str) else "three"
        with pytest.raises(ArgumentError, match=f"'{option}' must be"):
            build_classical(RunConfig(model=name, model_arguments={option: wrong}), 2)


@every_classical_model
def test_invalid_arguments_are_rejected(name, store):
    model = build(name)
    with pytest.raises(ArgumentError, match="at least one training graph"):
        model.fit(store, np.zeros(0, np.int64), np.zeros(0, np.int64))
    with pytest.raises(ShapeError, match="have one class per graph, 3"):
        model.fit(store, np.arange(3), np.zeros(2, np.int64))
    with pytest.raises(ArgumentError, match="hold classes from 0 to 2, got 0 to 3"):
        model.fit(store, np.arange(2), np.array([0, 3]))
    with pytest.raises(ArgumentError, match="be from 0 to 39, got 0 to 40"):
        model.fit(store, np.array([0, 40]), np.zeros(2, np.int64))
    with pytest.raises(ShapeError, match="be one axis of integers"):
        model.fit(store, np.array([0.5]), np.zeros(1, np.int64))
    for arguments in ({"seed": -1}, {"jobs": 0}):
        with pytest.raises(ArgumentError, match="be at least"):
            build(name, **arguments)
    with pytest.raises(ArgumentError, match="'num_classes' must be at least 1"):
        build(name, 0)


@every_classical_model
def test_what_a_model_does_not_read_changes_nothing(name, store):
    kind = find_model(name)
    assert issubclass(kind, ClassicalModel)
    expected = fit(name, store).predict_proba(store, np.arange(40))
    changed: Mapping[str, GraphStore] = {
        "node_labels": replace(store, node_labels=store.node_labels.flip(0)),
        "node_attributes": replace(store, node_attributes=store.node_attributes.flip(0)),
        "edge_labels": replace(store, edge_labels=torch.ones(store.neighbours.numel(), 1, dtype=torch.long)),
        "edges": replace(
            store,
            edge_ptr=torch.zeros(store.num_nodes + 1, dtype=torch.long),
            neighbours=torch.zeros(0, dtype=torch.int32),
        ),
    }
    for what, other in changed.items():
        same = np.array_equal(fit(name, other).predict_proba(other, np.arange(40)), expected)
        assert same == (what not in kind.inputs), what
