"""What all trainings of a model to keep share: fingerprint, description and the steps that finish a model."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.training.classical_training import ClassicalTraining
from graphcaps.training.final_training import FinalTraining, make_training
from graphcaps.training.single_training import SingleTraining

NETWORK = RunConfig(model="gin", model_arguments={"hidden": 8}, training=TrainConfig(epochs=2, batch_size=8))
CONFIGS = [NETWORK, RunConfig(model="majority")]
SPLIT = Split(torch.arange(24), torch.arange(24, 30), torch.arange(30, 36), "made")


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=36)


def make(store: GraphStore, config: RunConfig, split: Split | None = SPLIT) -> SingleTraining:
    return make_training(store, config, seed=3, device="cpu", split=split)


def test_the_model_decides_the_training(store: GraphStore) -> None:
    network, classical = (make(store, config) for config in CONFIGS)
    assert isinstance(network, FinalTraining)
    assert isinstance(classical, ClassicalTraining)
    assert (network.has_epochs, classical.has_epochs) == (True, False)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_model_is_calibrated_on_validation_graphs_and_evaluated_on_test_graphs(
    store: GraphStore, config: RunConfig
) -> None:
    training = make(store, config)
    assert training.epoch == len(list(training.history)) == 0
    events = tuple(training.run())
    assert training.epoch == len(events) == training.config.training.epochs
    result = training.result()
    assert result.history == events
    assert result.model.calibration is not None
    assert result.model.calibration.graphs == 6
    assert result.model.profile is not None
    facts = result.training
    assert (facts["train_graphs"], facts["validation_graphs"], facts["test_graphs"]) == (24, 6, 6)
    assert facts["train_loss"] == events[result.epoch - 1].train_loss[0]
    assert facts["test_metrics"]["accuracy"] == facts["test_accuracy"]
    assert set(training.describe()) <= set(facts)


@pytest.mark.parametrize("config", CONFIGS)
def test_the_digest_is_that_of_the_fingerprint(store: GraphStore, config: RunConfig) -> None:
    training = make(store, config)
    text = json.dumps(training.fingerprint, sort_keys=True)
    assert training.run_digest == hashlib.sha256(text.encode()).hexdigest()
    assert "test_graphs" in training.fingerprint
    assert "test_graphs" not in make(store, config, None).fingerprint
    assert make(store, config).run_digest == training.run_digest != make(store, config, None).run_digest


def test_both_kinds_of_models_are_described_by_the_same_entries(store: GraphStore) -> None:
    entries = []
    for config in CONFIGS:
        training = make(store, config)
        for _ in training.run():
            pass
        entries.append(list(training.describe()))
    # A classical model has no epochs that a metric could select.
    assert [name for name in entries[0] if name != "metric"] == entries[1]
