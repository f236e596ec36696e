"""A small search that takes about a second, for tests."""

from __future__ import annotations

from functools import cache
from typing import Any

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 4, "num_capsules": (2,), "num_factors": 2},
    features=FeatureConfig(degree_onehot=3, propagation=1),
    training=TrainConfig(epochs=4, batch_size=4),
)
SPACE: dict[str, Any] = {
    "training": {"learning_rate": {"low": 1e-3, "high": 1e-1, "log": True}},
    "model": {"dropout": {"low": 0.0, "high": 0.6}, "num_capsules": [[2], [3]]},
}
OPTIONS: dict[str, Any] = {
    "space": SPACE, "trials": 8, "batch": 4, "per_shape": 2, "folds": 3, "reduction": 2, "device": "cpu",
    "sampler": "random",
}  # fmt: skip


@cache
def graphs() -> GraphStore:
    """Twelve graphs of three classes; treat as read-only."""
    return planted_parts(num_graphs=12)
