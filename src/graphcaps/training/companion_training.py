"""Fits the companions of a trained model and mixes them with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.store import GraphStore
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.mixture import Mixture
from graphcaps.inference.probabilities import CalibrationMethod
from graphcaps.metrics import class_metrics
from graphcaps.training.calibration import calibrate_model
from graphcaps.training.classical_fit import fit_replica
from graphcaps.training.companion_weights import fit_mixture
from graphcaps.training.replicas import Replica

__all__ = ["OutOfFold", "add_companions"]

_METRICS = ("accuracy", "log_loss", "ece")


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Predictions of training graphs by models that were not trained on them.

    Args:
        replicas (sequence): The inner trainings; ``test`` are the graphs that each predicts.
        probabilities (ndarray): Uncalibrated probabilities of these graphs, one replica after another, ``[n, O]``.
    """

    replicas: Sequence[Replica]
    probabilities: np.ndarray


def add_companions(
    fitted: FittedModel,
    source: GraphStore,
    configs: Sequence[RunConfig],
    replica: Replica,
    method: CalibrationMethod | None,
    *,
    out_of_fold: OutOfFold | None = None,
    sample_weight: Tensor | None = None,
) -> FittedModel:
    """The model with companions that are fitted to its training graphs, and with weights of the mixture.

    A companion is what a training of its own gives: fitted to the training graphs, calibrated on the validation graphs.

    Args:
        fitted (FittedModel): The trained and calibrated network.
        source (GraphStore): Training and validation graphs, with classes.
        configs (sequence): Configurations of the companions, resolved.
        replica (Replica): Training and validation graphs, and the seed.
        method (str, optional): Calibration of companions and mixture; ``None`` for none.
        out_of_fold (OutOfFold, optional): Predictions of the network that choose the weights, in place of those of the
            validation graphs.
        sample_weight (Tensor, optional): Weight of each graph in the fits of companions, ``[G]``.
    """
    assert source.y is not None
    counts = {"class_counts": fitted.training.get("class_counts")}
    companions = []
    for config in configs:
        fit = fit_replica(source, config, replica, sample_weight=sample_weight)
        recipe = FeatureRecipe.from_config(config.features).fit(source)
        companion = FittedModel(fit.model, config, recipe, fitted.class_names, counts, fitted.versions)
        companion = calibrate_model(companion, source, replica.validation, method)
        companions.append(replace(companion, training=counts))
    K = 1 + len(companions)
    fitted = replace(fitted, companions=tuple(companions), mixture=Mixture((1 / K,) * K, 0, False))
    graphs, y = source[replica.validation], source.y[replica.validation].cpu().numpy()
    checked = fitted.check(graphs).without_warnings()
    answer = fitted.answer(checked)
    assert answer.parts is not None
    if out_of_fold is None:
        rows = (graphs.sizes > 0).cpu().numpy()
        parts = [p[rows] for p in answer.parts.probabilities]
        mixture = fit_mixture(parts, y[rows], method, stacked=False)
    else:
        mixture = _stack(source, configs, out_of_fold, method, sample_weight)
    fitted = replace(fitted, mixture=mixture)
    mixed = fitted.mix(answer.members, checked)
    metrics = class_metrics(y, mixed.probabilities)
    summary = {
        "names": list(fitted.part_names),
        "weights": list(mixture.weights),
        "graphs": mixture.graphs,
        "stacked": mixture.stacked,
        "validation": [
            _select(class_metrics(y, p)) for p in (*answer.parts.probabilities, mixed.probabilities)
        ],
    }
    results = {
        "validation_metrics": metrics,
        "validation_accuracy": metrics["accuracy"],
        "companion": summary,
    }
    return replace(fitted, training=fitted.training | results)


def _stack(
    source: GraphStore,
    configs: Sequence[RunConfig],
    out_of_fold: OutOfFold,
    method: CalibrationMethod | None,
    sample_weight: Tensor | None,
) -> Mixture:
    """The mixture that the out-of-fold predictions of network and companions choose."""
    assert source.y is not None
    parts = [out_of_fold.probabilities]
    for config in configs:
        rows = []
        for replica in out_of_fold.replicas:
            fit = fit_replica(source, config, replica, sample_weight=sample_weight)
            rows.append(fit.probabilities[replica.validation.numel() :])
        parts.append(np.concatenate(rows))
    graphs = np.concatenate([replica.test.cpu().numpy() for replica in out_of_fold.replicas])
    has_nodes = source.sizes.cpu().numpy()[graphs] > 0
    y = source.y.cpu().numpy()[graphs][has_nodes]
    return fit_mixture([p[has_nodes] for p in parts], y, method, stacked=True)


def _select(metrics: dict[str, float | None]) -> dict[str, float | None]:
    return {name: metrics[name] for name in _METRICS}
