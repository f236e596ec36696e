"""Trainings with companions: parts that equal trainings of their own, resuming, committees and files."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.features.encoding import encode_checked
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.mixture import Mixture
from graphcaps.inference.model_file import load
from graphcaps.inference.predictions import predict_store
from graphcaps.metrics import class_metrics
from graphcaps.nn.capsule_use import CapsuleCollapseWarning
from graphcaps.training import Replica, Trainer, companion_weights, stack_replicas
from graphcaps.training.classical_fit import fit_replica
from graphcaps.training.companion_weights import fit_mixture
from graphcaps.training.early_stopping import BestWeights, epoch_scale
from graphcaps.training.final_training import FinalTraining, make_training, train_final
from graphcaps.training.loop import TrainingLoop
from graphcaps.training.replicas import replica_model
from tests.small_models import HGCN_SMALL, labelled
from tests.training.small_forests import few_trees

__all__ = ["few_trees"]

CONFIG = RunConfig(
    model_arguments=HGCN_SMALL, training=TrainConfig(epochs=2, batch_size=8, learning_rate=0.01)
)
OPTIONS: dict[str, Any] = {"validation": 0.2, "device": "cpu"}


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapsuleCollapseWarning)
        yield


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return labelled()


@pytest.fixture(scope="module")
def fitted(few_trees: None, store: GraphStore) -> FittedModel:
    """A committee of two networks with two companions."""
    return train_final(store, CONFIG, members=2, companion="wl-forest,features-trees", **OPTIONS).model


def with_weights(fitted: FittedModel, *weights: float) -> FittedModel:
    assert fitted.mixture is not None
    return replace(fitted, mixture=replace(fitted.mixture, weights=weights))


def test_weight_one_of_a_part_gives_that_part_bit_by_bit(
    few_trees: None, fitted: FittedModel, store: GraphStore
) -> None:
    network = with_weights(fitted, 1.0, 0.0, 0.0)
    np.testing.assert_array_equal(network.predict_proba(store), fitted.network.predict_proba(store))
    assert not fitted.network.companions
    alone = train_final(store, RunConfig(model="wl-forest"), **OPTIONS).model
    forest = with_weights(fitted, 0.0, 1.0, 0.0)
    np.testing.assert_array_equal(forest.predict_proba(store), alone.predict_proba(store))
    mixed = fitted.predict_proba(store)
    assert abs(mixed - network.predict_proba(store)).max() > 0.01
    assert abs(mixed - alone.predict_proba(store)).max() > 0.01


def test_probabilities_are_the_calibrated_weighted_mean(fitted: FittedModel, store: GraphStore) -> None:
    answer = fitted.answer(store)
    assert answer.parts is not None
    assert fitted.mixture is not None
    assert fitted.mixture.calibration is not None
    w, q = fitted.mixture.weights, answer.parts.probabilities
    assert answer.parts.names == ("hgcn", "wl-forest", "features-trees")
    expected = fitted.mixture.calibration.apply(w[0] * q[0] + w[1] * q[1] + w[2] * q[2])
    np.testing.assert_array_equal(fitted.predict_proba(store), expected)
    np.testing.assert_array_equal(q[0], fitted.member_probabilities(store).mean(0))
    classes = np.array(fitted.class_names)[expected.argmax(-1)]
    np.testing.assert_array_equal(fitted.predict(store), classes)
    assert sum(w) == pytest.approx(1)
    assert min(w) > 0


def test_the_weights_are_those_of_out_of_fold_predictions(few_trees: None, store: GraphStore) -> None:
    training = FinalTraining(store, CONFIG, companion="wl-forest", **OPTIONS)
    assert len(training.stacking) == 5
    for event in training.run():
        assert len(event.train_loss) == 1
    result = training.result()
    mixture = result.model.mixture
    assert mixture is not None
    assert mixture.stacked
    assert store.y is not None
    assert mixture.graphs == training.holdout.train.numel()
    network, forest, ys = [], [], []
    for replica in training.stacking:  # each inner network trained by itself, on its own store
        graphs = torch.cat([replica.train, replica.validation])
        own = store[graphs]
        inner = _train_alone(own, replica, training)
        network.append(inner.network.predict_proba(store[replica.test]))
        fit = fit_replica(store, RunConfig(model="wl-forest"), replica)
        forest.append(fit.probabilities[replica.validation.numel() :])
        ys.append(store.y[replica.test].numpy())
    parts = [np.concatenate(network), np.concatenate(forest)]
    expected = fit_mixture(parts, np.concatenate(ys), "temperature", stacked=True)
    np.testing.assert_allclose(mixture.weights, expected.weights, atol=1e-5)
    assert mixture.calibration is not None
    assert expected.calibration is not None
    assert mixture.calibration.temperature == pytest.approx(expected.calibration.temperature, abs=1e-4)


def _train_alone(own: GraphStore, replica: Replica, training: FinalTraining) -> FittedModel:
    """A network of one inner training: the same encoding, initial weights and order of graphs."""
    count = replica.train.numel()
    moved = replace(
        replica,
        train=torch.arange(count),
        validation=torch.arange(count, len(own)),
        test=torch.arange(0),
    )
    encoded = encode_checked(own, training.recipe, dtype=torch.float32)
    model = stack_replicas(training._factory, [moved])
    trainer = Trainer(model, encoded.store, encoded.x, [moved], training.config.training)
    settings = training.config.training
    best = BestWeights(True, settings.epochs, epoch_scale([moved], settings))
    loop = TrainingLoop(trainer, [best])
    loop.run_all()
    network = replica_model(best.weights(loop), training._factory, 0)
    return FittedModel(network, training.config, training.recipe, own.class_names)


def test_many_validation_graphs_choose_the_weights_themselves(
    few_trees: None, store: GraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion_weights, "MIN_VALIDATION", 6)
    training = FinalTraining(store, CONFIG, companion="wl-forest", **OPTIONS)
    assert training.stacking == []
    fitted = train_final(store, CONFIG, companion="wl-forest", **OPTIONS).model
    graphs = store[training.holdout.validation]
    assert fitted.mixture is not None
    assert not fitted.mixture.stacked
    assert graphs.y is not None
    parts = fitted.answer(graphs).parts
    assert parts is not None
    y = graphs.y.numpy()
    expected = fit_mixture([*parts.probabilities], y, "temperature", stacked=False)
    assert expected.weights == fitted.mixture.weights
    metrics = class_metrics(y, fitted.predict_proba(graphs))
    assert fitted.training["validation_metrics"] == metrics
    assert fitted.training["validation_accuracy"] == metrics["accuracy"]
    assert fitted.training["companion"]["names"] == ["hgcn", "wl-forest"]
    np.testing.assert_allclose(
        [each["log_loss"] for each in fitted.training["companion"]["validation"]],
        [class_metrics(y, p)["log_loss"] for p in (*parts.probabilities, fitted.predict_proba(graphs))],
    )


def test_a_resumed_training_gives_the_same_bits(few_trees: None, store: GraphStore, tmp_path: Path) -> None:
    whole = train_final(store, CONFIG, companion="wl-forest", **OPTIONS).model
    first = FinalTraining(store, CONFIG, companion="wl-forest", **OPTIONS)
    next(first.run())
    first.save(tmp_path / "checkpoint")
    second = FinalTraining(store, CONFIG, companion="wl-forest", **OPTIONS)
    second.resume(tmp_path / "checkpoint")
    for _ in second.run():
        pass
    resumed = second.result().model
    assert resumed.mixture == whole.mixture
    np.testing.assert_array_equal(resumed.predict_proba(store), whole.predict_proba(store))
    other = FinalTraining(store, CONFIG, companion="features-trees", **OPTIONS)
    with pytest.raises(DataError, match="companion wl-forest"):
        other.resume(tmp_path / "checkpoint")


def test_a_saved_model_predicts_the_same_bits(
    few_trees: None, fitted: FittedModel, store: GraphStore, tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    fitted.save(path)
    loaded = load(path)
    np.testing.assert_array_equal(loaded.predict_proba(store), fitted.predict_proba(store))
    np.testing.assert_array_equal(loaded.disagreement(store), fitted.disagreement(store))
    assert loaded.mixture == fitted.mixture
    assert loaded.part_names == ("hgcn", "wl-forest", "features-trees")
    for entry in ("network_weight", "graphs", "stacked", "calibration"):
        assert loaded.info()["model"]["companion"][entry] == fitted.info()["model"]["companion"][entry]
    assert loaded.training == fitted.training
    rows = list(predict_store(loaded, store, parts=True).rows())
    for row in rows:
        network, forest, trees = row["parts"]
        assert (network["model"], forest["model"], trees["model"]) == loaded.part_names
        assert sum(part["contribution"] for part in row["parts"]) == pytest.approx(1)
        share = network["weight"] * network["probability"]
        total = sum(part["weight"] * part["probability"] for part in row["parts"])
        assert network["contribution"] == pytest.approx(share / total)
        assert network["probability"] == network["probabilities"][row["class"]]
    assert "parts" not in next(iter(predict_store(loaded, store).rows()))
    with pytest.raises(ArgumentError, match=r"be left out for a model without a companion.*--companion"):
        predict_store(loaded.network, store, parts=True)


def test_graphs_without_nodes_get_the_class_frequencies(fitted: FittedModel, store: GraphStore) -> None:
    empty = torch.tensor([], dtype=torch.long)
    nodeless = replace(
        store[torch.tensor([0])],
        node_ptr=torch.tensor([0, 0]),
        edge_ptr=torch.tensor([0]),
        neighbours=store.neighbours[:0],
        node_labels=store.node_labels[empty],  # type: ignore[index]
        node_attributes=store.node_attributes[empty],  # type: ignore[index]
        truth={},
    )
    np.testing.assert_array_equal(fitted.predict_proba(nodeless)[0], fitted.class_prior)
    assert next(iter(predict_store(fitted, nodeless, parts=True).rows()))["error"] is None


def test_a_companion_that_reads_other_columns_checks_them(few_trees: None, store: GraphStore) -> None:
    config = replace(CONFIG, features=FeatureConfig(attributes=False, degree_onehot=4, propagation=0))
    fitted = train_final(store, config, companion="features-trees", **OPTIONS).model
    assert fitted.network.predict_proba(replace(store, node_attributes=None)).shape == (30, 3)
    with pytest.raises(ArgumentError, match="have 2 node attribute columns, as the graphs that the model"):
        fitted.predict_proba(replace(store, node_attributes=None))


def test_a_companion_needs_validation_graphs(store: GraphStore) -> None:
    with pytest.raises(ArgumentError, match="come with validation graphs, which choose its weight"):
        FinalTraining(store, CONFIG, companion="wl-forest", validation=0, device="cpu")


def test_any_model_has_companions(few_trees: None, store: GraphStore) -> None:
    for config in (
        RunConfig(model="gin", model_arguments={"hidden": 8, "num_layers": 2}, training=CONFIG.training),
        RunConfig(model="wl-forest"),
    ):
        training = make_training(store, config, companion="features-trees", **OPTIONS)
        for _ in training.run():
            pass
        fitted = training.result().model
        assert fitted.part_names == (config.model, "features-trees")
        assert fitted.mixture is not None
        assert fitted.mixture.stacked
        assert np.isfinite(fitted.predict_proba(store)).all()
    with pytest.raises(ArgumentError, match="must differ from the model itself"):
        make_training(store, RunConfig(model="wl-forest"), companion="wl-forest", **OPTIONS)


def test_without_calibration_nothing_is_calibrated(few_trees: None, store: GraphStore) -> None:
    fitted = train_final(store, CONFIG, companion="wl-forest", calibrate=None, **OPTIONS).model
    assert fitted.mixture is not None
    assert fitted.mixture.calibration is None
    assert fitted.companions[0].calibration is None
    answer = fitted.answer(store)
    assert answer.parts is not None
    w, q = fitted.mixture.weights, answer.parts.probabilities
    np.testing.assert_array_equal(answer.probabilities, w[0] * q[0] + w[1] * q[1])


def test_an_export_of_a_model_with_a_companion_is_refused(fitted: FittedModel, tmp_path: Path) -> None:
    message = (
        r"be a network without a companion, got the companion wl-forest, features-trees.*network\.export"
    )
    with pytest.raises(ArgumentError, match=message):
        fitted.export(tmp_path / "m.pt2")


def test_members_of_a_mixture_must_match(fitted: FittedModel) -> None:
    with pytest.raises(ArgumentError, match="have a weight for the network and each of 2 companions, got 2"):
        replace(fitted, mixture=Mixture((0.5, 0.5), 1, False))
    with pytest.raises(ArgumentError, match="have a weight for the network and each of 0 companions"):
        replace(fitted, companions=())
    with pytest.raises(ArgumentError, match="be classical models, got 'hgcn'"):
        replace(fitted, companions=(fitted.network, fitted.network))
