"""Training with a fixed split: the test set has no influence on the model and is scored at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import graphcaps
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.metrics import class_metrics
from graphcaps.training.final_training import FinalTraining, train_final

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2},
    training=TrainConfig(epochs=2, batch_size=8, learning_rate=0.01),
)
SPLIT = Split(torch.arange(0, 20), torch.arange(20, 25), torch.arange(25, 36), "column 'part'")


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=36)


def test_test_metrics_are_those_of_the_test_set(store: GraphStore, tmp_path: Path) -> None:
    result = train_final(store, CONFIG, split=SPLIT, device="cpu")
    training = result.training
    assert (training["train_graphs"], training["validation_graphs"], training["test_graphs"]) == (20, 5, 11)
    assert (training["split"], training["validation_share"], training["graphs"]) == (
        "column 'part'",
        None,
        25,
    )
    test_store = store[SPLIT.test]
    assert test_store.y is not None
    expected = class_metrics(test_store.y.numpy(), result.model.predict_proba(test_store))
    assert training["test_metrics"] == expected
    assert training["test_accuracy"] == expected["accuracy"]
    assert {"balanced_accuracy", "roc_auc", "pr_auc", "mcc", "brier"} <= expected.keys()
    result.model.save(tmp_path / "m.safetensors")
    assert graphcaps.load(tmp_path / "m.safetensors").training == training


def test_the_test_set_does_not_influence_the_model(store: GraphStore) -> None:
    """Test graphs with other node labels and classes give an identical model."""
    assert store.y is not None
    labels, y = store.degree.unsqueeze(1) % 3, store.y.clone()
    store = replace(store, node_labels=labels.clone())
    first = int(store.host_node_ptr[25])
    labels[first] = 99
    y[25:] = y[25:].flip(0)
    other = replace(store, node_labels=labels, y=y)
    one = train_final(store, CONFIG, split=SPLIT, device="cpu")
    two = train_final(other, CONFIG, split=SPLIT, device="cpu")
    a, b = one.model.model.state_dict(), two.model.model.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert one.model.recipe.to_dict() == two.model.recipe.to_dict()
    assert one.model.calibration is not None
    assert two.model.calibration is not None
    assert one.model.calibration.to_dict() == two.model.calibration.to_dict()
    assert one.model.info()["profile"] == two.model.info()["profile"]
    assert "test_graphs_with_new_labels" not in one.training
    assert two.training["test_graphs_with_new_labels"] == 1


def test_truncated_test_graphs_are_counted_in_the_notes_alone(store: GraphStore) -> None:
    config = replace(CONFIG, features=replace(CONFIG.features, max_nodes=8))
    (note,) = train_final(store, config, split=SPLIT, device="cpu").training["notes"]
    assert "36 of 36 graphs have more than 8 nodes" in note


def test_without_a_validation_set_one_is_drawn(store: GraphStore) -> None:
    split = replace(SPLIT, train=torch.arange(25), validation=None)
    training = FinalTraining(store, CONFIG, split=split, validation=0.2, device="cpu")
    without_split = FinalTraining(store[torch.arange(25)], CONFIG, validation=0.2, device="cpu")
    assert torch.equal(training.holdout.validation, without_split.holdout.validation)
    assert training.holdout.describe()["validation_share"] == 0.2
    assert training.holdout.describe()["test_graphs"] == 11
    assert "split" not in without_split.holdout.describe()


def test_a_split_in_any_order_is_kept(store: GraphStore) -> None:
    order = torch.from_numpy(np.random.default_rng(0).permutation(36))
    split = Split(order[:20].sort().values, order[20:26].sort().values, order[26:].sort().values)
    holdout = FinalTraining(store, CONFIG, split=split, device="cpu").holdout
    assert store.y is not None
    assert holdout.store.y is not None
    assert holdout.test_store is not None
    assert holdout.test_store.y is not None
    assert split.validation is not None
    assert torch.equal(holdout.store.y[holdout.train], store.y[split.train])
    assert torch.equal(holdout.store.sizes[holdout.validation], store.sizes[split.validation])
    assert torch.equal(holdout.test_store.sizes, store.sizes[split.test])


def test_another_test_set_is_another_run(store: GraphStore, tmp_path: Path) -> None:
    training = FinalTraining(store, CONFIG, split=SPLIT, device="cpu")
    next(training.run())
    training.save(tmp_path / "c")
    other = FinalTraining(store, CONFIG, split=replace(SPLIT, test=torch.arange(25, 30)), device="cpu")
    with pytest.raises(DataError, match="test_graphs"):
        other.resume(tmp_path / "c")
    same = FinalTraining(store, CONFIG, split=SPLIT, device="cpu")
    same.resume(tmp_path / "c")
    assert same.epoch == 1


def test_parts_without_one_of_the_classes_are_refused(store: GraphStore) -> None:
    assert store.y is not None
    one = (store.y == 0).nonzero().squeeze(-1)
    others = (store.y != 0).nonzero().squeeze(-1)
    message = (
        r"every part graphs of every class, got none of class 'ring-clique' in the training set, .* \(given\)"
    )
    with pytest.raises(ArgumentError, match=message):
        FinalTraining(store, CONFIG, split=Split(one, None, others), device="cpu")
    two = others[store.y[others] == 1]
    for split in (Split(torch.arange(20), two[-3:], one[-3:]), Split(torch.arange(20), None, two[-3:])):
        with pytest.raises(ArgumentError, match=r"none of class '.*' in the (validation|test) set"):
            train_final(store, CONFIG, split=split, device="cpu")
    with pytest.raises(ArgumentError, match=r"at least two classes to learn from, got one \(given\)"):
        FinalTraining(store, CONFIG, split=Split(one[:5], None, one[5:]), device="cpu")


def test_class_counts_of_the_parts_are_kept(store: GraphStore) -> None:
    holdout = FinalTraining(store, CONFIG, split=SPLIT, device="cpu").holdout
    assert store.y is not None
    expected = [
        store.y[part].bincount(minlength=3).tolist() for part in (SPLIT.train, SPLIT.validation, SPLIT.test)
    ]
    assert [list(row.values()) for row in holdout.describe()["split_class_counts"].values()] == expected
    drawn = FinalTraining(store, CONFIG, split=replace(SPLIT, validation=None), device="cpu").holdout
    assert drawn.class_counts is not None
    assert drawn.class_counts.counts.sum(1).tolist() == [17, 3, 11]
