"""Fits of classical models: metrics, the model to keep, and what does not apply to them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.concatenation import concat_stores
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, UsageError
from graphcaps.inference.model_file import load
from graphcaps.models.majority import Majority
from graphcaps.models.wl_forest import WLForest
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.classical_fit import fit_replica
from graphcaps.training.classical_training import ClassicalTraining
from graphcaps.training.device import choose_device
from graphcaps.training.final_training import FinalTraining, make_training, train_final
from graphcaps.training.replicas import Replica
from graphcaps.training.trainer import TrainingError

FOREST = RunConfig(model="wl-forest", model_arguments={"trees": 15})
MAJORITY = RunConfig(model="majority")


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=60)


def run(training: ClassicalTraining):
    (event,) = training.run()
    return training.result(), event


def test_metrics_of_a_replica_are_log_losses_and_accuracies(store):
    y = store.y.numpy()
    replica = Replica(torch.arange(30), torch.arange(30, 45), torch.arange(45, 60), seed=2)
    fit = fit_replica(store, FOREST, replica)
    model, event = fit.model, fit.event
    for name, graphs in (("train", np.arange(30)), ("validation", np.arange(30, 45))):
        p = model.predict_proba(store, graphs)
        loss = -np.log(np.clip(p[np.arange(len(graphs)), y[graphs]], 1e-12, 1)).mean()
        assert getattr(event, f"{name}_loss") == pytest.approx([loss])
        assert getattr(event, f"{name}_accuracy") == [(p.argmax(1) == y[graphs]).mean()]
    test = np.arange(45, 60)
    assert event.test_accuracy == [(model.predict_proba(store, test).argmax(1) == y[test]).mean()]
    assert (event.epoch, event.epochs) == (1, 1)
    assert model.seed == 2


def test_a_part_without_graphs_has_no_metrics(store):
    none = torch.empty(0, dtype=torch.long)
    event = fit_replica(store, MAJORITY, Replica(torch.arange(60), none, none)).event
    assert event.validation_loss == event.validation_accuracy == event.test_accuracy == []
    assert event.train_loss == pytest.approx([math.log(3)])


def test_an_impossible_class_has_a_finite_loss(store):
    first_class = (store.y == 0).nonzero().flatten()
    others = (store.y != 0).nonzero().flatten()
    event = fit_replica(store, MAJORITY, Replica(first_class, others, others)).event
    assert event.validation_loss == pytest.approx([-math.log(1e-12)])
    assert event.validation_accuracy == [0.0]


def test_the_number_of_threads_does_not_change_a_fit(store):
    replica = Replica(torch.arange(40), torch.arange(40, 50), torch.arange(50, 60))
    models = [fit_replica(store, FOREST, replica, jobs=jobs).model for jobs in (1, 2)]
    first, second = (model.predict_proba(store, np.arange(60)) for model in models)
    assert np.array_equal(first, second)


def test_the_model_to_keep_is_fitted_to_the_training_graphs_and_calibrated_on_the_others(store):
    training = ClassicalTraining(store, FOREST, seed=1, validation=0.2)
    assert training.epoch == 0
    result, event = run(training)
    assert training.epoch == 1
    train, y = training.holdout.train.numpy(), store.y.numpy()
    expected = WLForest(3, trees=15, seed=1)
    expected.fit(store, train, y[train])
    assert np.array_equal(result.model.scores(store).numpy(), expected.predict_proba(store, np.arange(60)))
    assert result.model.calibration is not None
    assert result.model.calibration.graphs == training.holdout.validation.numel() == 12
    assert result.model.profile is not None
    facts = result.training
    assert facts["rule"] == "fitted once to the training graphs"
    assert (facts["epochs"], facts["epoch"], facts["seed"], facts["train_graphs"]) == (1, 1, 1, 48)
    assert facts["validation_accuracy"] == event.validation_accuracy[0]
    assert facts["validation_metrics"]["accuracy"] == pytest.approx(event.validation_accuracy[0])


def test_the_same_run_gives_the_same_file(store, tmp_path: Path):
    scores = []
    for name in ("one", "two"):
        result, _ = run(ClassicalTraining(store, FOREST, seed=5))
        result.model.save(tmp_path / f"{name}.safetensors")
        scores.append(load(tmp_path / f"{name}.safetensors").predict_proba(store))
    assert np.array_equal(*scores)
    other, _ = run(ClassicalTraining(store, FOREST, seed=6))
    assert not np.array_equal(other.model.predict_proba(store), scores[0])


def test_one_call_fits_the_same_model(store):
    split = Split(torch.arange(40), None, torch.arange(40, 60), name="made")
    events = []
    options = {"seed": 5, "validation": 0.2, "calibrate": None, "split": split, "device": "cpu"}
    result = train_final(store, FOREST, on_epoch=events.append, **options)
    expected, _ = run(ClassicalTraining(store, FOREST, **options))
    assert np.array_equal(result.model.predict_proba(store), expected.model.predict_proba(store))
    assert result.training["run"] == expected.training["run"]
    assert result.training["test_accuracy"] == expected.training["test_accuracy"]
    assert list(result.history) == events
    assert len(events) == result.epoch == 1


def test_options_of_a_training_with_epochs_are_refused(store):
    first = train_final(store, MAJORITY).model
    given = {"patience": (3, "3"), "class_weight": (torch.ones(3), r"\[1\.0, 1\.0, 1\.0\]")}
    for name, (value, shown) in (given | {"start": (first, "a model 'majority'")}).items():
        problem = (
            f"^train: '{name}' must be left out with the model 'wl-forest', which is fitted without epochs"
        )
        with pytest.raises(ArgumentError, match=rf"{problem}, got {shown}\.$"):
            train_final(store, FOREST, **{name: value})
    with pytest.raises(ArgumentError, match="train: 'config' must be a RunConfig, got dict"):
        make_training(store, {})


def test_without_validation_graphs_all_are_fitted_and_nothing_is_calibrated(store):
    result, event = run(ClassicalTraining(store, MAJORITY, validation=0))
    assert event.validation_loss == []
    assert result.model.calibration is None
    assert result.training["train_graphs"] == 60
    assert result.training["validation_accuracy"] is None
    assert isinstance(result.model.model, Majority)


def test_calibration_can_be_left_out(store):
    result, _ = run(ClassicalTraining(store, FOREST, calibrate=None))
    assert result.model.calibration is None
    assert "validation_metrics" in result.training


def test_test_graphs_of_a_split_are_evaluated_and_not_fitted(store):
    split = Split(torch.arange(40), torch.arange(40, 50), torch.arange(50, 60), name="made")
    training = ClassicalTraining(store, FOREST, split=split)
    result, _ = run(training)
    assert len(training.source) == 50
    test = store[torch.arange(50, 60)]
    accuracy = (result.model.predict(test) == np.array(store.class_names)[test.y.numpy()]).mean()
    assert result.training["test_accuracy"] == pytest.approx(accuracy)
    changed = replace(store, y=torch.cat([store.y[:50], store.y[50:].flip(0)]))
    again, _ = run(ClassicalTraining(changed, FOREST, split=split))
    assert np.array_equal(again.model.predict_proba(store), result.model.predict_proba(store))
    assert ClassicalTraining(changed, FOREST, split=split).run_digest != training.run_digest


def test_the_digest_names_the_run(store):
    digests = {
        ClassicalTraining(store, config, seed=seed).run_digest
        for config in (FOREST, MAJORITY, RunConfig(model="wl-forest"))
        for seed in (0, 1)
    }
    assert len(digests) == 6
    assert ClassicalTraining(store, FOREST).run_digest == ClassicalTraining(store, FOREST).run_digest


def test_a_result_needs_a_fit_and_there_are_no_checkpoints(store, tmp_path: Path):
    training = ClassicalTraining(store, MAJORITY)
    with pytest.raises(TrainingError, match="call run"):
        training.result()
    assert training.save(tmp_path / "checkpoint") == 0
    assert not (tmp_path / "checkpoint").exists()
    with pytest.raises(DataError, match="no checkpoint, since the model 'majority' is fitted without epochs"):
        training.resume(tmp_path / "checkpoint")


def test_features_and_training_settings_are_those_that_apply(store):
    config = replace(FOREST, training=TrainConfig(epochs=50, learning_rate=0.1), by_data=("batch_size",))
    resolved = resolve_config(config, store)
    assert resolved.training == TrainConfig(epochs=1)
    assert resolved.features == WLForest.features()
    assert resolved.by_data == ()
    assert resolved.model_arguments == {"trees": 15}


def test_a_gpu_is_refused_and_auto_is_the_cpu(store):
    assert choose_device("auto", model="wl-forest").type == "cpu"
    with pytest.raises(UsageError, match="The model 'wl-forest' runs on the CPU; use device='cpu' or 'auto'"):
        ClassicalTraining(store, FOREST, device="cuda")


def test_bad_arguments_are_refused_before_the_fit(store):
    with pytest.raises(UsageError, match="has no class labels"):
        ClassicalTraining(replace(store, y=None), FOREST)
    with pytest.raises(ArgumentError, match="at least two classes"):
        ClassicalTraining(replace(store, y=torch.zeros(60, dtype=torch.long)), FOREST)
    with pytest.raises(ArgumentError, match="'depth' must be one of iterations"):
        ClassicalTraining(store, RunConfig(model="wl-forest", model_arguments={"depth": 1}))
    with pytest.raises(ArgumentError, match="'seed' must be a whole number"):
        ClassicalTraining(store, FOREST, seed=-1)


def test_a_network_does_not_start_from_a_classical_model(store):
    result, _ = run(ClassicalTraining(store, MAJORITY))
    config = RunConfig(model="gin", model_arguments={"hidden": 4}, training=TrainConfig(epochs=1))
    with pytest.raises(ArgumentError, match="'start' must be"):
        FinalTraining(store, config, start=result.model)


@pytest.mark.parametrize("config", [FOREST, MAJORITY])
def test_graphs_without_nodes_are_left_out_of_the_fit_and_get_the_class_prior(store, config):
    empty = GraphStore(
        "empty",
        torch.zeros(4, dtype=torch.long),
        torch.zeros(1, dtype=torch.long),
        torch.zeros(0, dtype=torch.int32),
        y=torch.tensor([0, 0, 1]),
        class_names=store.class_names,
    )
    joined = concat_stores([replace(store, truth={}), empty])
    joined = replace(joined, y=torch.cat([store.y, empty.y]), class_names=store.class_names)
    replica = Replica(
        torch.tensor([*range(40), 60]), torch.tensor([61, 62]), torch.tensor([*range(40, 60), 61])
    )
    fit = fit_replica(joined, config, replica)
    model, event = fit.model, fit.event
    without = fit_replica(
        store, config, Replica(torch.arange(40), torch.arange(40, 50), torch.arange(50, 60))
    ).model
    assert np.array_equal(
        model.predict_proba(store, np.arange(60)), without.predict_proba(store, np.arange(60))
    )
    prior = np.bincount(joined.y[replica.train], minlength=3) / 41
    assert event.validation_loss == pytest.approx([-(np.log(prior[0]) + np.log(prior[1])) / 2])
    result, _ = run(ClassicalTraining(joined, config))
    assert "3 of 63 graphs have no nodes" in result.training["notes"][0]
    assert np.array_equal(result.model.predict_proba(empty), np.tile(result.model.class_prior, (3, 1)))
