"""Folds of unequal size, batches that are never full and missing classes: replicas stay independent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.evaluation import cross_validate
from graphcaps.evaluation.replica_groups import plan_groups
from graphcaps.models.gin import GIN
from graphcaps.nn import HGCN
from graphcaps.training import EpochEnd, Replica, Trainer
from graphcaps.training.final_training import train_final
from graphcaps.training.replicas import pick_replica, stack_replicas
from tests.graphs import Graphs, random_graphs

METRICS = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_accuracy")
SETTINGS: dict[str, dict[str, Any]] = {
    "hgcn": {"capsule_dim": 8, "num_capsules": (3,), "dropout": 0.3},
    "gin": {"hidden": 8, "num_layers": 2},
}
BOTH_MODELS = pytest.mark.parametrize("kind", ["hgcn", "gin"])
STEP_MODES = pytest.mark.parametrize("steps", ["eager", "bucketed"])


def _graphs(classes: list[int]) -> Graphs:
    sizes = torch.randint(2, 12, (len(classes),), generator=torch.Generator().manual_seed(2)).tolist()
    return replace(random_graphs(sizes, seed=6), y=torch.tensor(classes))


def _maker(kind: str, classes: int) -> Callable[[tuple[int, ...]], nn.Module]:
    model: Any = HGCN if kind == "hgcn" else GIN
    return lambda lead: model(5, classes, lead=lead, **SETTINGS[kind])


def _train(
    kind: str, graphs: Graphs, replicas: list[Replica], batch_size: int, steps: Any = "eager"
) -> tuple[Trainer, list[EpochEnd]]:
    model = stack_replicas(_maker(kind, int(graphs.y.max()) + 1), replicas, torch.float64)
    config = TrainConfig(epochs=3, batch_size=batch_size, learning_rate=0.01)
    trainer = Trainer(model, graphs.as_store(), graphs.x, replicas, config, step_mode=steps)
    return trainer, list(trainer.run())


def _assert_equal_to_single_trainings(
    kind: str, graphs: Graphs, replicas: list[Replica], batch_size: int, steps: Any
) -> tuple[Trainer, list[EpochEnd]]:
    trainer, together = _train(kind, graphs, replicas, batch_size, steps)
    for f, replica in enumerate(replicas):
        _, alone = _train(kind, graphs, [replica], batch_size)
        for many, one in zip(together, alone, strict=True):
            for name in METRICS:
                assert getattr(many, name)[f] == pytest.approx(getattr(one, name)[0], abs=1e-9), (f, name)
    return trainer, together


def _config(kind: str, **training: Any) -> RunConfig:
    return RunConfig(
        model=kind,
        model_arguments=SETTINGS[kind],
        features=FeatureConfig(degree_onehot=4, propagation=1),
        training=TrainConfig(**({"epochs": 2, "batch_size": 8} | training)),
    )


@BOTH_MODELS
@STEP_MODES
def test_folds_of_unequal_size(kind: str, steps: str) -> None:
    """16, 17 and 17 training graphs: the last batch holds one graph in two folds and none in the third."""
    graphs = _graphs([0] * 13 + [1] * 12)
    (group,) = plan_groups(stratified_folds(graphs.y, 3), "paper", [0])
    validation = torch.arange(4)  # so that validation metrics are compared too
    replicas = [replace(replica, validation=validation) for replica in group.replicas]
    assert sorted(replica.train.numel() for replica in replicas) == [16, 17, 17]
    trainer, _ = _assert_equal_to_single_trainings(kind, graphs, replicas, 8, steps)
    assert sorted(trainer.adam.steps.tolist()) == [6, 9, 9]  # three epochs


@BOTH_MODELS
@STEP_MODES
def test_fewer_graphs_than_a_batch(kind: str, steps: str) -> None:
    """A batch size above the number of graphs equals one batch of all graphs."""
    graphs = _graphs([0, 1] * 5)
    (group,) = plan_groups(stratified_folds(graphs.y, 3), "held-out", [0])
    replicas = list(group.replicas)
    most = max(replica.train.numel() for replica in replicas)
    assert min(replica.train.numel() for replica in replicas) < most
    wide, events = _train(kind, graphs, replicas, 1000, steps)
    _, exact = _train(kind, graphs, replicas, most)
    assert wide.adam.steps.tolist() == [3, 3, 3]  # one update per epoch
    for one, other in zip(events, exact, strict=True):
        for name in METRICS:
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-9), name


@BOTH_MODELS
@STEP_MODES
def test_a_class_missing_from_a_training_set(kind: str, steps: str) -> None:
    """Class 2 has one graph: two replicas train without it and still equal their single trainings."""
    graphs = _graphs([0, 1] * 8 + [2])
    (group,) = plan_groups(stratified_folds(graphs.y, 3), "held-out", [0])
    replicas = list(group.replicas)
    seen = [2 in graphs.y[replica.train] for replica in replicas]
    assert sorted(seen) == [False, False, True]  # one has it in its test set, one in its validation set
    _, events = _assert_equal_to_single_trainings(kind, graphs, replicas, 8, steps)
    assert all(math.isfinite(value) for event in events for name in METRICS for value in getattr(event, name))


@BOTH_MODELS
def test_classes_missing_from_a_test_set(kind: str) -> None:
    """Test sets of one class, of another, of a class without training graphs, and an empty one."""
    graphs = _graphs([0, 1] * 8 + [2])
    train, none = torch.arange(12), torch.arange(0)
    tests = [torch.tensor([12, 14]), torch.tensor([13, 15, 1]), torch.tensor([16]), none]
    replicas = [Replica(train, none, test, fold=fold) for fold, test in enumerate(tests)]
    trainer, events = _train(kind, graphs, replicas, 8)
    assert events[-1].validation_loss == []
    for f, test in enumerate(tests[:-1]):
        model: Any = pick_replica(trainer.model, _maker(kind, 3), f).eval()
        predictions = model.forward_batch(graphs.as_batch()).class_scores.argmax(-1)
        assert events[-1].test_accuracy[f] == pytest.approx(
            (predictions == graphs.y)[test].double().mean().item()
        )
    assert math.isnan(events[-1].test_accuracy[3])


@BOTH_MODELS
def test_a_ledger_of_a_class_with_one_graph(kind: str) -> None:
    """Every graph is in one test set, that of the rare class too, and a note names the class."""
    store = _graphs([0, 1] * 8 + [2]).as_store()
    ledger = cross_validate(store, _config(kind), folds=3, protocol="both")
    assert any("has 1 graph for 3 folds" in note for note in ledger.notes)
    assert list(ledger.estimates) == ["held-out", "C", "C*", "optimism"]
    assert all(0 <= ledger.estimates[name].mean <= 100 for name in ("held-out", "C", "C*"))
    for record in ledger.records:
        curves = record.curves
        assert int(curves.test_graphs.sum()) == 17
        parts = curves.train_graphs + curves.validation_graphs + curves.test_graphs
        assert parts.tolist() == [17, 17, 17]
        assert (curves.test_right <= curves.test_graphs[:, None]).all()


@BOTH_MODELS
def test_a_ledger_of_fewer_graphs_than_a_batch(kind: str) -> None:
    """Curves do not depend on the batch size once a batch holds all graphs."""
    store = _graphs([0, 1] * 4).as_store()
    one, other = (
        cross_validate(store, _config(kind, batch_size=size), folds=4, protocol="paper") for size in (6, 512)
    )
    assert one.records[0].curves == other.records[0].curves
    assert one.records[0].curves.train_graphs.tolist() == [6, 6, 6, 6]


def _single_class(label: int) -> GraphStore:
    """Ten graphs of one class; two class names."""
    store = _graphs([0, 1] * 5).as_store()
    return replace(store, y=torch.full((10,), label))


@pytest.mark.parametrize("label", [0, 1])
@BOTH_MODELS
def test_a_single_class_is_refused_before_training(
    kind: str, label: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("training started")

    monkeypatch.setattr(Trainer, "__init__", fail)
    for call in (
        lambda: cross_validate(_single_class(label), _config(kind), folds=3),
        lambda: train_final(_single_class(label), _config(kind)),
    ):
        with pytest.raises(ArgumentError, match=r"at least two classes, got only class '?\d'?") as raised:
            call()
        assert str(raised.value).count(". ") == 0
        assert str(raised.value).endswith(".")
