"""Fits classical models: one fit of a replica, and the model to keep.

A fit has no epochs. Its metrics are those of a training of one epoch, so that records, files and reports are the same
for all models: losses are log losses, and nothing is selected.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps._io.provenance import describe_hardware
from graphcaps.config import RunConfig
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.quality.summary import describe_empty_graphs
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.fitted_model import FittedModel, training_summary
from graphcaps.inference.probabilities import MIN_PROBABILITY, CalibrationMethod, class_prior
from graphcaps.models.builder import build_classical, recipe_arguments
from graphcaps.models.classical import ClassicalModel
from graphcaps.training.auto_config import check_run_types, resolve_config
from graphcaps.training.calibration import calibrate_model
from graphcaps.training.device import choose_device
from graphcaps.training.final_training import FinalResult
from graphcaps.training.fingerprint import data_digest, run_fingerprint
from graphcaps.training.holdout import check_labels, evaluate_test_set, split_holdout
from graphcaps.training.replicas import Replica
from graphcaps.training.trainer import EpochEnd, TrainingError

__all__ = ["FIT_RULE", "ClassicalTraining", "fit_replica", "train_classical"]

FIT_RULE = "fitted once to the training graphs"
"""In place of the rule by which other models select an epoch."""


def fit_replica(
    store: GraphStore, config: RunConfig, replica: Replica, *, jobs: int | None = None
) -> tuple[ClassicalModel, EpochEnd]:
    """Fits the model of one replica and measures it.

    Args:
        store (GraphStore): All graphs, with labels.
        config (RunConfig): Names the model and its arguments.
        replica (Replica): Training, validation and test graphs, and the seed. The model is fitted to the training
            graphs with nodes; a graph without nodes is predicted by the class frequencies of the training graphs.
        jobs (int, optional): Number of threads; results do not depend on it. (default: that of torch)

    Returns:
        tuple: The fitted model, and its metrics as those of the only epoch.
    """
    assert store.y is not None
    y = store.y.cpu().numpy()
    began = time.perf_counter()
    jobs = torch.get_num_threads() if jobs is None else jobs
    model = build_classical(config, store.num_classes, seed=replica.seed, jobs=jobs)
    train = _indices(replica.train)
    has_nodes = store.sizes.cpu().numpy() > 0
    fitted = train[has_nodes[train]]
    model.fit(store, fitted, y[fitted])
    prior = class_prior(store.y[replica.train.to(store.y.device)], store.num_classes).numpy()
    metrics = {}
    for name, part in (
        ("train", train),
        ("validation", _indices(replica.validation)),
        ("test", _indices(replica.test)),
    ):
        p = np.tile(prior, (len(part), 1))  # stays for graphs without nodes, as in other models
        p[has_nodes[part]] = model.predict_proba(store, part[has_nodes[part]])
        metrics[name] = _loss_and_accuracy(p, y[part])
    event = EpochEnd(
        epoch=1,
        epochs=1,
        seconds=time.perf_counter() - began,
        train_loss=metrics["train"][0],
        train_accuracy=metrics["train"][1],
        validation_loss=metrics["validation"][0],
        validation_accuracy=metrics["validation"][1],
        test_accuracy=metrics["test"][1],
    )
    return model, event


def _indices(graphs: Tensor) -> NDArray[np.int64]:
    return graphs.cpu().numpy().astype(np.int64)


def _loss_and_accuracy(
    probability: NDArray[np.float64], y: NDArray[np.int64]
) -> tuple[list[float], list[float]]:
    """Log loss and accuracy as lists of one number; empty without graphs."""
    if not len(y):
        return [], []
    true_class = probability[np.arange(len(y)), y]
    loss = -np.log(np.maximum(true_class, MIN_PROBABILITY)).mean()
    return [float(loss)], [float((probability.argmax(1) == y).mean())]


class ClassicalTraining:
    """The fit of a classical model to keep: all graphs but a validation set, which calibrates its probabilities.

    It is used as a :class:`graphcaps.training.final_training.FinalTraining` of one epoch that has no checkpoints. The
    same store, configuration, seed and validation fraction give the same bits.

    Args:
        store (GraphStore): Graphs with labels.
        config (RunConfig): Names the model and its arguments.
        seed (int): Seed of the validation split and of the model. (default: 0)
        validation (float): Fraction of each class in the validation set; 0 for none. (default: 0.1)
        device (str): ``"cpu"`` or ``"auto"``. (default: "auto")
        calibrate (str, optional): ``"temperature"`` or ``"isotonic"``: calibration of probabilities on the validation
            set; ``None`` leaves them as they are. (default: "temperature")
        split (Split, optional): Training, validation and test graphs, as in
            :class:`graphcaps.training.final_training.FinalTraining`. (default: no test set)

    Raises:
        ArgumentError: If the graphs are of fewer than two classes, or cannot be split, or an argument is unknown.
        UsageError: If the graphs have no labels, or the device is a GPU.
    """

    def __init__(
        self,
        store: GraphStore,
        config: RunConfig,
        *,
        seed: int = 0,
        validation: float = 0.1,
        device: str = "auto",
        calibrate: CalibrationMethod | None = "temperature",
        split: Split | None = None,
    ) -> None:
        check_run_types(store, config, "train")
        self._data_notes = tuple(filter(None, [describe_empty_graphs(store)]))
        self.holdout = split_holdout(store, check_labels(store, seed), split, validation, seed)
        self.source = self.holdout.store
        self.config, self.seed, self.calibrate = resolve_config(config, self.source), seed, calibrate
        self.device = choose_device(device, "train", self.config.model)
        build_classical(self.config, self.source.num_classes)  # raises on unknown arguments
        self.data_digest = data_digest(self.source)
        no_test = torch.empty(0, dtype=torch.long)
        self.replica = Replica(self.holdout.train, self.holdout.validation, no_test, seed=seed)
        self.fingerprint = run_fingerprint(self.config, self.data_digest, [self.replica])
        if self.holdout.test_store is not None:
            self.fingerprint["test_graphs"] = data_digest(self.holdout.test_store)[:16]
        self._fitted: tuple[ClassicalModel, EpochEnd] | None = None

    @property
    def run_digest(self) -> str:
        """SHA-256 of the fingerprint, stored in the model file."""
        return hashlib.sha256(json.dumps(self.fingerprint, sort_keys=True).encode()).hexdigest()

    @property
    def epoch(self) -> int:
        """1 after the fit, 0 before."""
        return int(self._fitted is not None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on checkpoints: none."""
        return ()

    def run(self, checkpoint: str | Path | None = None, every: int | None = None) -> Iterator[EpochEnd]:
        """Fits the model and yields its metrics as those of the only epoch; no checkpoint is written."""
        self._fitted = fit_replica(self.source, self.config, self.replica)
        yield self._fitted[1]

    def save(self, path: str | Path) -> int:
        """Writes nothing: an interrupted fit starts again.

        Returns:
            int: 0, the number of epochs that were saved.
        """
        return 0

    def resume(self, path: str | Path) -> None:
        """Refuses a checkpoint, which must be of another training.

        Raises:
            DataError: Always.
        """
        expected = f"no checkpoint, since the model '{self.config.model}' is fitted without epochs"
        raise DataError(path, expected, "one of another training", fix="Start again with --overwrite.")

    def result(self) -> FinalResult:
        """The calibrated model, evaluated on the test graphs if there are any. Call after :meth:`run`.

        Raises:
            TrainingError: If the model was not fitted.
        """
        if self._fitted is None:
            raise TrainingError("The model is not fitted; call run() before result().")
        model, event = self._fitted
        recipe = FeatureRecipe(**recipe_arguments(self.config.features)).fit(self.source)  # type: ignore[arg-type]
        fitted = FittedModel(model, self.config, recipe, self.source.class_names, self._describe(event))
        fitted = replace(fitted, profile=TrainingProfile.from_store(self.source))
        if self.holdout.validation.numel():
            fitted = calibrate_model(fitted, self.source, self.holdout.validation, self.calibrate)
        if self.holdout.test_store is not None:
            fitted = evaluate_test_set(fitted, self.holdout.test_store)
        return FinalResult(fitted, (event,), 1, fitted.training)

    def _describe(self, event: EpochEnd) -> dict[str, Any]:
        """Provenance of the model, JSON-safe."""
        has_validation = bool(event.validation_loss)
        return training_summary(
            self.source,
            digest=self.data_digest,
            run=self.run_digest,
            **self.holdout.describe(),
            seed=self.seed,
            epochs=1,
            epochs_run=1,
            epoch=1,
            rule=FIT_RULE,
            train_loss=event.train_loss[0],
            train_accuracy=event.train_accuracy[0],
            validation_loss=event.validation_loss[0] if has_validation else None,
            validation_accuracy=event.validation_accuracy[0] if has_validation else None,
            seconds=round(event.seconds, 3),
            hardware=describe_hardware(self.device),
            notes=list(self._data_notes),
        )


def train_classical(
    store: GraphStore,
    config: RunConfig,
    *,
    seed: int = 0,
    validation: float = 0.1,
    calibrate: CalibrationMethod | None = "temperature",
    split: Split | None = None,
) -> FinalResult:
    """Fits a classical model to all graphs but a validation set; arguments as in :class:`ClassicalTraining`."""
    training = ClassicalTraining(
        store, config, seed=seed, validation=validation, calibrate=calibrate, split=split
    )
    for _ in training.run():
        pass
    return training.result()
