"""Training with sampled reconstruction: configuration, replicas, bucketed steps, resuming and saving."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import graphcaps
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.errors import ArgumentError
from graphcaps.models.builder import model_factory
from graphcaps.training import Replica, Trainer, pick_replica, stack_replicas
from tests.graphs import assert_equal, random_graphs
from tests.small_models import HGCN_SMALL, planted, train_small

TOML = """
[model]
capsule_dim = 8
num_capsules = [4]
dropout = 0.2
reconstruct_up_to = 9

[training]
epochs = 4
batch_size = 3
learning_rate = 0.01
reconstruction_weight = 0.5
"""
CONFIG = RunConfig.from_toml(TOML)
GRAPHS = random_graphs([30, 4, 12, 9, 25, 3, 8, 17, 40, 5, 11, 6], seed=2)
INDICES = torch.arange(12)
REPLICAS = [
    Replica(INDICES[:9], INDICES[9:10], INDICES[10:]),
    Replica(INDICES[2:], INDICES[:1], INDICES[1:2], fold=1),
    Replica(
        torch.tensor([5, 6, 9, 1]), INDICES[:2], INDICES[2:4], fold=2
    ),  # no graph large enough to be sampled
]


def _trainer(
    replicas: list[Replica],
    steps: Any = "auto",
    config: RunConfig = CONFIG,
    dtype: torch.dtype = torch.float64,
) -> Trainer:
    model = stack_replicas(model_factory(config, 5, 2), replicas, dtype)
    return Trainer(model, GRAPHS.as_store(), GRAPHS.x.to(dtype), replicas, config.training, step_mode=steps)


def _config_with(up_to: int | None) -> RunConfig:
    arguments = CONFIG.model_arguments | {"reconstruct_up_to": up_to}
    return RunConfig(model_arguments=arguments, training=CONFIG.training)


def test_the_loss_falls_and_differs_from_the_exact_loss() -> None:
    long = TrainConfig(**(CONFIG.training.__dict__ | {"epochs": 12}))
    config = RunConfig(model_arguments=CONFIG.model_arguments, training=long)
    trainer = _trainer(REPLICAS, config=config)
    losses = torch.tensor([event.train_loss for event in trainer.run()])
    assert bool((losses[-5:].mean(0) < losses[:5].mean(0)).all())
    assert trainer.state()["model.decoder.step"].tolist() == [36, 48, 24]
    sampled, exact = (
        next(iter(_trainer(REPLICAS, config=config).run())).train_loss
        for config in (CONFIG, _config_with(None))
    )
    assert sampled[:2] != exact[:2]
    assert sampled[2] == pytest.approx(exact[2], abs=1e-12)


def test_a_replica_equals_a_single_training() -> None:
    together = _trainer(REPLICAS)
    events = list(together.run())
    make = model_factory(CONFIG, 5, 2)
    for f, replica in enumerate(REPLICAS):
        alone = _trainer([replica])
        for one, event in zip(alone.run(), events, strict=True):
            assert one.train_loss[0] == pytest.approx(event.train_loss[f], abs=1e-9)
        states = [pick_replica(t.model, make, n).state_dict() for t, n in ((together, f), (alone, 0))]
        for name, value in states[0].items():
            assert_equal(value.double(), states[1][name].double(), name, 1e-7)


def test_bucketed_steps_equal_eager_steps() -> None:
    exact, padded = (_trainer(REPLICAS, steps) for steps in ("eager", "bucketed"))
    for one, other in zip(exact.run(), padded.run(), strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, abs=1e-9)
    assert torch.equal(exact.state()["model.decoder.step"], padded.state()["model.decoder.step"])


@pytest.mark.parametrize("steps", ["eager", "bucketed"])
def test_resumed_training_equals_an_uninterrupted_one(steps: Any) -> None:
    uninterrupted, interrupted, resumed = (_trainer(REPLICAS, steps, dtype=torch.float32) for _ in range(3))
    list(uninterrupted.run())
    interrupted.run_epoch()
    interrupted.run_epoch()
    resumed.load_state(copy.deepcopy(interrupted.state()))
    list(resumed.run())
    for name, value in uninterrupted.state().items():
        assert torch.equal(resumed.state()[name], value), name


def test_a_saved_model_keeps_the_sampling(tmp_path: Path) -> None:
    model = train_small(planted(), arguments=HGCN_SMALL | {"reconstruct_up_to": 12})
    model.save(tmp_path / "m.safetensors")
    loaded = graphcaps.load(str(tmp_path / "m.safetensors"))
    assert loaded.config.model_arguments["reconstruct_up_to"] == 12
    assert int(loaded.model.decoder.step) == int(model.model.decoder.step) > 0  # type: ignore[union-attr]
    for name, value in model.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value), name
    assert torch.equal(loaded.scores(planted()), model.scores(planted()))


def test_a_string_is_refused_for_reconstruct_up_to() -> None:
    config = RunConfig.from_toml('[model]\nreconstruct_up_to = "few"')
    with pytest.raises(ArgumentError, match=r"'reconstruct_up_to' must be a whole number, got 'few'\."):
        model_factory(config, 5, 2)
