"""Scores of graphs by models that were not trained on them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.errors import ArgumentError
from graphcaps.evaluation import held_out_scores as module
from graphcaps.evaluation.cross_validation import FOLDS_SEED, cross_validate
from graphcaps.evaluation.epoch_selection import held_out
from graphcaps.evaluation.held_out_scores import BestReplicaWeights, held_out_scores
from graphcaps.training.early_stopping import BestWeights
from graphcaps.training.trainer import EpochEnd

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2},
    features=FeatureConfig(degree_onehot=4, propagation=1),
    training=TrainConfig(epochs=3, learning_rate=0.01),
)


def event(epoch: int, losses: list[float]) -> EpochEnd:
    return EpochEnd(epoch, 60, 0.0, losses, losses, losses, losses, [])


def test_each_replica_keeps_the_weights_of_a_single_training():
    draw = np.random.default_rng(0)
    curves = 1 + draw.normal(size=(3, 60)).cumsum(1) / 10
    model = torch.nn.Linear(1, 1)
    many = torch.nn.Module()
    many.register_buffer("w", torch.zeros(3, 2))
    best = BestReplicaWeights(many, 60, patience=9)
    singles = [BestWeights(True, 60) for _ in range(3)]
    stopped = [False] * 3
    histories: list[list[EpochEnd]] = [[] for _ in range(3)]
    for epoch in range(1, 61):
        many.w.fill_(epoch)
        best.update(many, event(epoch, curves[:, epoch - 1].tolist()))
        for f, single in enumerate(singles):
            if stopped[f]:
                continue
            histories[f].append(event(epoch, [float(curves[f, epoch - 1])]))
            single.update(model, histories[f])
            stopped[f] = single.should_stop(histories[f], 9)
        if best.done:
            break
    assert best.epochs.tolist() == [single.epoch for single in singles]
    assert best.weights["w"][:, 0].tolist() == best.epochs.tolist()
    assert best.done == all(stopped)


def test_every_graph_is_scored_by_a_model_not_trained_on_it():
    store = planted_parts(num_graphs=45)
    found = held_out_scores(store, CONFIG, folds=3, device="cpu")
    assert np.isfinite(found.scores).all()
    assert np.isfinite(found.validation_scores).all()
    assert (found.fold != found.validation_fold).all()
    folds = stratified_folds(store.y, 3, FOLDS_SEED)
    for fold in range(3):
        np.testing.assert_array_equal(np.flatnonzero(found.fold == fold), folds.held_out(fold).test.sort()[0])
    assert found.epochs.tolist() == [3, 3, 3]
    assert found.score_kind == "lengths"


def test_accuracy_equals_that_of_the_cross_validation():
    """The same folds, weights and order: the last of three epochs, as both rules have it then."""
    store = planted_parts(num_graphs=45)
    found = held_out_scores(store, CONFIG, folds=3, device="cpu")
    ledger = cross_validate(store, CONFIG, folds=3, device="cpu")
    (record,) = ledger.records
    last = np.asarray(record.curves.test_accuracy)[:, -1]
    right = found.scores.argmax(1) == found.y
    ours = [right[found.fold == fold].mean() for fold in range(3)]
    np.testing.assert_allclose(ours, last)
    assert held_out(record.curves.validation_loss, record.curves.test_accuracy).accuracies.shape == (3,)


def test_patience_ends_the_training(monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 1)
    seen: list[int] = []
    config = CONFIG.with_training(epochs=40, learning_rate=1e-9)
    store = planted_parts(num_graphs=30)
    held_out_scores(
        store, config, folds=3, patience=2, device="cpu", on_epoch=lambda event: seen.append(event.epoch)
    )
    assert seen[-1] < 40


def test_graphs_without_labels_and_trunks_are_refused():
    store = planted_parts(num_graphs=30)
    with pytest.raises(ArgumentError, match="have a class for every graph"):
        held_out_scores(replace(store, y=None), CONFIG, device="cpu")
    arguments = CONFIG.model_arguments | {"trunk": "gin"}
    with pytest.raises(ArgumentError, match="without a trunk"):
        held_out_scores(store, replace(CONFIG, model_arguments=arguments), folds=3, device="cpu")
