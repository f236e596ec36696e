"""Trainers on several streams of a GPU: equal to one trainer, reproducible, and resumed as one trainer is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from graphcaps import load_dataset
from graphcaps.config import TrainConfig
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.nn import HGCN
from graphcaps.training import Trainer
from graphcaps.training.divided_trainer import DividedTrainer
from graphcaps.training.stream_trainer import StreamTrainer
from graphcaps.training.trainer_factory import make_trainer
from tests.gpu.test_cuda_graphs import _replicas

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

CONFIG = TrainConfig(epochs=4, batch_size=16, learning_rate=0.002, weight_decay=0.001, average_epochs=2)


def _trainer(monkeypatch: pytest.MonkeyPatch, streams: int, **arguments: Any) -> Trainer | DividedTrainer:
    monkeypatch.setattr("graphcaps.training.trainer_factory.GPU_STREAMS", streams)
    store = load_dataset("planted-parts")[:200]
    x = encode_graphs(store, FeatureRecipe()).x
    settings = {"capsule_dim": 32, "num_capsules": (6,), "dropout": 0.2} | arguments

    def make(lead: tuple[int, ...]) -> HGCN:
        return HGCN(x.size(-1), store.num_classes, lead=lead, **settings)

    replicas = _replicas(len(store))
    return make_trainer(make, store.to("cuda"), x.cuda(), replicas, CONFIG, torch.device("cuda"))


def test_streams_equal_one_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    single, streams = _trainer(monkeypatch, 1), _trainer(monkeypatch, 3)
    assert isinstance(single, Trainer)
    assert isinstance(streams, StreamTrainer)
    assert streams.captured
    for _ in range(4):
        one, other = single.run_epoch(), streams.run_epoch()
        for name in ("train_loss", "validation_loss"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=2e-3), name
    streams.close()


def test_streams_are_reproducible_and_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit, also from a state that was taken between two epochs, and with kept weights."""
    unbroken = _trainer(monkeypatch, 2)
    first = [unbroken.run_epoch() for _ in range(2)]
    unbroken.keep([0, 3])
    state = {name: value.clone() for name, value in unbroken.state().items()}
    last = [unbroken.run_epoch() for _ in range(2)]
    again = _trainer(monkeypatch, 2)
    assert [again.run_epoch().train_loss for _ in range(2)] == [event.train_loss for event in first]
    resumed = _trainer(monkeypatch, 2)
    resumed.load_state(state)
    assert [resumed.run_epoch().train_loss for _ in range(2)] == [event.train_loss for event in last]
    end = unbroken.state()
    assert all(torch.equal(value, end[name]) for name, value in resumed.state().items())


def test_steps_that_cannot_be_captured_are_trained_in_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HGCN, "capturable", False)
    trainer = _trainer(monkeypatch, 2)
    assert isinstance(trainer, Trainer)
    assert trainer.run_epoch().epoch == 1


def test_the_state_of_one_trainer_continues_on_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    single = _trainer(monkeypatch, 1)
    single.run_epoch()
    streams = _trainer(monkeypatch, 2)
    streams.load_state(single.state())
    one, other = single.run_epoch(), streams.run_epoch()
    assert replace(one, seconds=0).train_loss == pytest.approx(other.train_loss, abs=2e-3)
