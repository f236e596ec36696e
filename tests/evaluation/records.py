"""Records for tests, made without training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.evaluation import EpochRecords, RecordKey, SeedRecord
from graphcaps.evaluation.fold_metrics import FoldMetrics
from graphcaps.evaluation.graph_predictions import GraphPredictions
from graphcaps.evaluation.record import DatasetFingerprint, Protocol

CONFIG = RunConfig(model_arguments={"num_capsules": (5,)}, training=TrainConfig(epochs=4))


def curves(seed: int = 0, folds: int = 3, epochs: int = 4, validation: int = 6) -> EpochRecords:
    """Random counts; parts of 20, ``validation`` and 7 graphs."""
    draw = np.random.default_rng(seed)
    shape = (folds, epochs)
    return EpochRecords(
        draw.integers(0, 200_000, shape),
        draw.integers(0, 21, shape),
        draw.integers(0, 200_000, shape) * (validation > 0),
        draw.integers(0, validation + 1, shape),
        draw.integers(0, 8, shape),
        np.full(folds, 20),
        np.full(folds, validation),
        np.full(folds, 7),
    )


def record(
    seed: int = 0, protocol: Protocol = "held-out", dataset: str = "MUTAG", **changes: Any
) -> SeedRecord:
    """A record; equal arguments give equal records."""
    plain = SeedRecord(
        RecordKey(dataset, "hgcn", protocol, seed),
        CONFIG,
        DatasetFingerprint(graphs=33, nodes=500, edges=600, classes=2, y_sha256="ab" * 32, sha256="ef" * 32),
        12345,
        curves(seed, validation=6 if protocol == "held-out" else 0),
        1.5,
        "2026-01-31T12:00:00Z",
        {"graphcaps": "0.1.0", "torch": "2.0"},
        "2 cores",
        ("A note.",),
    )
    return replace(plain, **changes)


def measured_record(seed: int = 0) -> SeedRecord:
    """A record with metrics, predictions, class weights, and an epoch that is selected by MCC."""
    draw = np.random.default_rng(seed)
    p = draw.uniform(size=39)  # 6 validation and 7 test graphs of three folds
    predictions = GraphPredictions(
        np.arange(39) % 33,
        np.repeat([0, 1, 2], 13),
        np.tile(np.repeat([0, 1], [6, 7]), 3),
        np.tile([0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1, 1, 0], 3),
        np.stack([1 - p, p], 1),
    )
    return record(
        seed,
        metric="mcc",
        class_weight="balanced",
        curves=replace(curves(seed), validation_metric=draw.integers(-(10**6), 10**6 + 1, (3, 4))),
        metrics=FoldMetrics.from_predictions(
            predictions, ("inactive", "active"), {fold: np.array([fold]) for fold in range(3)}
        ),
        predictions=predictions,
        peak_memory=10**9,
    )
