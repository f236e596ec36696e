"""EigenPool: from training to a model file. Scores are compared with dense matrices in test_coarsening_network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import graphcaps
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.cache import cache_contents
from graphcaps.data.structures.eigen_modes import EigenLevels
from graphcaps.errors import ArgumentError
from graphcaps.models.eigenpool import EigenPool
from graphcaps.training.final_training import train_final
from graphcaps.training.training_inputs import prepare_inputs
from tests.small_models import planted

CONFIG = RunConfig(
    model="eigenpool",
    model_arguments={"hidden": 8, "num_layers": 1, "cluster_sizes": (4,), "modes": 2},
    training=TrainConfig(epochs=1, batch_size=16),
)


def test_from_training_to_predictions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    store = planted()
    model = train_final(store, CONFIG, seed=0).model
    assert cache_contents().files == 1
    path = tmp_path / "model.safetensors"
    model.save(path)
    probabilities = graphcaps.load(path).predict_proba(store)
    assert np.array_equal(probabilities, model.predict_proba(store))
    # A graph has the same probabilities alone: its clusters depend on it alone.
    assert np.allclose(graphcaps.load(path).predict_proba(store[[3]]), probabilities[3], atol=1e-6)
    with pytest.raises(ArgumentError, match="must be one that can be exported, got EigenPool"):
        model.export(tmp_path / "model.pt2")
    # An evaluation of the same graphs starts from the same inputs, and reads the file.
    monkeypatch.setattr(EigenLevels, "compute", None)
    assert prepare_inputs(store, CONFIG, torch.device("cpu"), owner="test").store.structure is not None


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="EigenPool: 'modes' must be at least 1, got 0"):
        EigenPool(5, 2, modes=0)
    with pytest.raises(ArgumentError, match="EigenPool: 'cluster_sizes' must be at least 2, got 1"):
        EigenPool(5, 2, cluster_sizes=(3, 1))
