"""A data set above an artificial limit of the GPU's memory stays on the host, and trains to the same losses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps import load_dataset
from graphcaps.presets import load_preset
from graphcaps.training import streaming
from graphcaps.training.final_training import FinalTraining
from graphcaps.training.trainer import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_a_small_limit_streams_the_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    store = load_dataset("planted-parts")[:120]
    config = replace(load_preset("default"), dataset=store.name).with_training(epochs=3)
    losses = []
    for fraction, device in ((0.5, "cuda"), (0.0, "cpu")):
        monkeypatch.setattr(streaming, "MAX_RESIDENT_FRACTION", fraction)
        training = FinalTraining(store, config, device="cuda")
        assert isinstance(training.trainer, Trainer)
        assert training.trainer.store.device.type == device
        list(training.run())
        losses.append([event.validation_loss[0] for event in training.history])
        assert training.result().model.predict_proba(store).shape == (120, store.num_classes)
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)
