"""Replicas with numbers of their own: each equals a single training with its numbers, also after others are dropped."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.errors import ArgumentError
from graphcaps.models.builder import join_builders, model_factory
from graphcaps.nn import HGCN
from graphcaps.training import EpochEnd, Replica, Trainer, stack_replicas
from graphcaps.training.multiprocess import ProcessPoolTrainer, TrainerFactory, make_trainer
from graphcaps.training.replica_settings import ReplicaSettings
from graphcaps.training.replicas import select_replicas
from graphcaps.training.trainer import StepMode
from tests.training.test_trainer import _graphs, _replicas

SHARED = TrainConfig(epochs=3, batch_size=4)
NUMBERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a": ({"learning_rate": 0.01, "halve_every": 1, "weight_decay": 0.0}, {"dropout": 0.0}),
    "b": ({"learning_rate": 0.002, "weight_decay": 0.01, "reconstruction_weight": 0.0}, {"dropout": 0.4}),
    "c": (
        {"learning_rate": 0.005, "halve_every": 2, "reconstruction_weight": 0.7},
        {"dropout": 0.65, "upper_margin": 0.8, "lower_margin": 0.25},
    ),
}
MODELS: dict[str, dict[str, Any]] = {
    "hgcn": {"capsule_dim": 8, "num_capsules": (4,)},
    "hgcn, sage": {"capsule_dim": 8, "num_capsules": (4,), "trunk": "sage"},
    "gin": {"hidden": 8},
}


def _settings(model: str, names: str = "abc", **changes: Any) -> dict[str, ReplicaSettings]:
    settings = {}
    for name in names:
        training, options = NUMBERS[name]
        if model == "gin":
            options = {"dropout": options["dropout"]}
        config = RunConfig(model=model.partition(",")[0], model_arguments=MODELS[model] | options)
        training = replace(SHARED, **(training | changes))
        settings[name] = ReplicaSettings(model_factory(config, 5, 2), training)
    return settings


def _four() -> list[Replica]:
    """Variants a to c, and c again, on training sets of 3, 8 and 9 graphs."""
    sets = _replicas()
    return [replace(sets[number], variant=name) for name, number in (("a", 2), ("b", 0), ("c", 2), ("c", 1))]


def _trainer(
    settings: dict[str, ReplicaSettings], replicas: list[Replica], mode: StepMode = "eager", **options: Any
) -> Trainer:
    graphs = _graphs()
    each = [settings[replica.variant] for replica in replicas]
    builders = {name: one.builder for name, one in settings.items()}
    model = stack_replicas(
        join_builders([one.builder for one in each]), replicas, torch.float64, variants=builders
    )
    configs = [one.training for one in each]
    return Trainer(
        *(model, graphs.as_store(), graphs.x, replicas, SHARED),
        step_mode=mode, replica_configs=configs, **options,
    )  # fmt: skip


def _alone(settings: ReplicaSettings, replica: Replica) -> list[EpochEnd]:
    """The replica trained by itself, with plain numbers."""
    graphs = _graphs()
    model = stack_replicas(settings.builder, [replica], torch.float64)
    return list(Trainer(model, graphs.as_store(), graphs.x, [replica], settings.training).run())


def _assert_same(events: list[EpochEnd], f: int, alone: list[EpochEnd]) -> None:
    for many, single in zip(events, alone, strict=True):
        for name in ("train_loss", "validation_loss", "train_accuracy", "validation_accuracy"):
            assert getattr(many, name)[f] == pytest.approx(getattr(single, name)[0], abs=1e-9), name


@pytest.mark.parametrize("mode", ["eager", "bucketed"])
@pytest.mark.parametrize("model", [*MODELS])
def test_a_replica_equals_a_single_training_with_its_numbers(model: str, mode: StepMode) -> None:
    settings, replicas = _settings(model), _four()
    events = list(_trainer(settings, replicas, mode).run())
    for f, replica in enumerate(replicas):
        _assert_same(events, f, _alone(settings[replica.variant], replica))
    assert len({round(loss, 6) for loss in events[-1].train_loss}) == 4


def test_a_number_that_is_not_finite_leaves_the_other_replicas_as_they_are() -> None:
    settings, replicas = _settings("hgcn"), _four()
    wild = settings | {"b": replace(settings["b"], training=replace(SHARED, learning_rate=1e6))}
    trainer = _trainer(wild, replicas, allow_divergence=True)
    with torch.no_grad():
        next(iter(trainer.model.parameters()))[1] = math.nan
    events = list(trainer.run())
    assert math.isnan(events[-1].validation_loss[1])
    assert math.isnan(events[-1].train_loss[1])
    for f in (0, 2, 3):
        _assert_same(events, f, _alone(settings[replicas[f].variant], replicas[f]))


@pytest.mark.parametrize("model", [*MODELS])
@pytest.mark.parametrize("average", [1, 3], ids=["", "averaged"])
def test_dropping_replicas_equals_not_dropping_them(model: str, average: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(f"{__name__}.SHARED", replace(SHARED, average_epochs=average))
    settings, replicas = _settings(model, average_epochs=average), _four()
    whole = _trainer(settings, replicas)
    whole.run_epoch()
    state = {name: value.clone() for name, value in whole.state().items()}
    expected = [whole.run_epoch(), whole.run_epoch()]
    kept = [3, 1]  # in any order
    few = _trainer(settings, [replicas[f] for f in kept])
    epoch = state.pop("epoch")
    few.load_state(select_replicas(state, kept) | {"epoch": epoch})
    events = [few.run_epoch(), few.run_epoch()]
    assert few.epoch == 3
    for many, some in zip(expected, events, strict=True):
        for name in ("train_loss", "validation_loss"):
            values = getattr(many, name)
            assert getattr(some, name) == pytest.approx([values[f] for f in kept], abs=1e-9), name


def test_several_processes_train_numbers_of_their_own() -> None:
    settings, replicas, graphs = _settings("hgcn"), _four(), _graphs()
    threads = torch.get_num_threads()
    events = []
    for count in (1, 2):
        torch.set_num_threads(count)
        try:
            build = TrainerFactory(
                *(settings["a"].builder, graphs.as_store(), graphs.x.float(), SHARED, torch.device("cpu")),
                settings=settings,
            )
            trainer = make_trainer(build, replicas)
            assert isinstance(trainer, ProcessPoolTrainer) == (count == 2)
            events.append(trainer.run_epoch())
        finally:
            torch.set_num_threads(threads)
            trainer.close()
    assert events[0].train_loss == pytest.approx(events[1].train_loss, abs=2e-4)


def test_other_differences_are_refused() -> None:
    settings = _settings("hgcn")
    wide = replace(settings["b"].builder, arguments={**settings["b"].builder.arguments, "capsule_dim": 16})
    with pytest.raises(ArgumentError, match="'capsule_dim' must be the same for all replicas"):
        join_builders([settings["a"].builder, wide])
    settings["b"] = replace(settings["b"], training=replace(SHARED, batch_size=9))
    with pytest.raises(ArgumentError, match="'batch_size' must be the same for all replicas, 4, got 9"):
        _trainer(settings, _four())


@pytest.mark.parametrize(
    ("margins", "words"),
    [
        ({"upper_margin": 0.1}, "'lower_margin' must be at least 0 and below 'upper_margin', 0.1, got 0.1"),
        ({"lower_margin": -0.1}, "'lower_margin' must be at least 0"),
        ({"upper_margin": 1.1}, "'upper_margin' must be at most 1"),
        ({"upper_margin": torch.tensor([0.5, 0.05])}, "below 'upper_margin', 0.05"),
    ],
)
def test_margins_out_of_range_are_refused(margins: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        HGCN(3, 2, lead=(2,), **margins)


def test_the_validation_loss_has_the_published_margins() -> None:
    torch.manual_seed(0)
    batch = _graphs().as_batch()
    models = [HGCN(5, 2, capsule_dim=8, upper_margin=upper).double() for upper in (0.9, 0.6)]
    models[1].load_state_dict(models[0].state_dict())
    for training in (True, False):
        outputs = [model.train(training).forward_batch(batch) for model in models]
        losses = [
            float(model.loss(out, batch.y).total.detach()) for model, out in zip(models, outputs, strict=True)
        ]
        assert (losses[0] == losses[1]) != training
