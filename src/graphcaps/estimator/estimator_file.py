"""The model file of ``HGCNClassifier``: a model file of ``graphcaps train`` with an entry for the classifier."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphcaps.errors import ArgumentError, DataError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.model_file import load
from graphcaps.nn import HGCN

__all__ = ["EstimatorState", "load_estimator", "save_estimator"]

_ENTRY = "estimator"  # of the training record in the file
_NOT_SAVED = ("callbacks",)


@dataclass(frozen=True)
class EstimatorState:
    """A fitted classifier.

    Args:
        parameters (dict): Arguments of the constructor.
        classes (ndarray): The class labels, ascending.
        num_features (int): Number of node columns.
        num_epochs (int): Number of epochs trained.
        history (list): The metrics of each epoch.
        model (FittedModel): The trained model.
        graph_column (str, optional): Column of the ``DataFrame`` that the graphs were read from.
    """

    parameters: Mapping[str, Any]
    classes: np.ndarray
    num_features: int
    num_epochs: int
    history: list[dict[str, float]]
    model: FittedModel
    graph_column: str | None = None


def save_estimator(state: EstimatorState, path: str | Path) -> None:
    """Writes the model file of a fitted classifier.

    Raises:
        ArgumentError: If the class labels are neither numbers, strings nor booleans.
    """
    labels = state.classes.tolist()
    if not all(isinstance(label, str | int | float | bool) for label in labels):
        kind = type(labels[0]).__name__
        raise ArgumentError("HGCNClassifier.save", "classes_", "be numbers or strings to be saved", kind)
    record = {
        "parameters": {
            name: _to_json(value) for name, value in state.parameters.items() if name not in _NOT_SAVED
        },
        "classes": labels,
        "dtype": state.classes.dtype.str if state.classes.dtype.kind != "O" else "O",
        "features": state.num_features,
        "column": state.graph_column,
        "history": state.history,
    }
    replace(state.model, training=state.model.training | {_ENTRY: record}).save(path)


def load_estimator(path: str | Path, names: Collection[str]) -> EstimatorState:
    """Reads a fitted classifier from a model file.

    Class labels of a file that ``graphcaps train`` wrote are the class names in the file.

    Args:
        path (str or Path): The model file.
        names (collection): Names of the parameters; others in the file are left out.

    Raises:
        DataError: If the file is invalid, or its model is not an HGCN.
    """
    fitted = load(path)
    if not isinstance(fitted.model, HGCN):
        fix = "Use graphcaps.load for it."
        raise DataError(path, "a model 'hgcn'", f"a model '{fitted.config.model}'", fix=fix)
    try:
        return _restore(fitted, fitted.training.get(_ENTRY, {}), names)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DataError(path, f"an entry of HGCNClassifier.save under '{_ENTRY}'", f"'{error}'") from error


def _restore(fitted: FittedModel, record: dict[str, Any], names: Collection[str]) -> EstimatorState:
    parameters = record["parameters"] if record else _parameters_of(fitted)
    arguments = {name: value for name, value in parameters.items() if name in names}
    if isinstance(arguments.get("num_capsules"), list):
        arguments["num_capsules"] = tuple(arguments["num_capsules"])
    labels = np.array(record["classes"], dtype=record["dtype"]) if record else np.array(fitted.class_names)
    if len(labels) != len(fitted.class_names):
        raise ValueError(f"{len(labels)} class labels for {len(fitted.class_names)} classes")
    columns = (fitted.recipe.num_attributes or 0) + len(fitted.recipe.label_values or ())
    return EstimatorState(
        arguments,
        labels,
        int(record.get("features", columns)),
        int(fitted.training.get("epochs_run", fitted.training.get("epochs", 0))),
        list(record.get("history", [])),
        replace(fitted, training={name: value for name, value in fitted.training.items() if name != _ENTRY}),
        record.get("column"),
    )


def _parameters_of(fitted: FittedModel) -> dict[str, Any]:
    """Parameters of the configuration of a model that ``graphcaps train`` wrote."""
    training, features = fitted.config.as_dict()["training"], fitted.config.features
    read = {"max_nodes": features.max_nodes or 0, "edge_labels": features.edge_labels or False}
    names = ",".join(fitted.part_names[1:]) or None
    restarts = fitted.training.get("restarts", {}).get("count", 1)
    kept = {"n_estimators": len(fitted.members), "n_init": restarts, "companion": names}
    return fitted.config.model_arguments | training | read | kept


def _to_json(value: Any) -> Any:
    """A value in JSON types; ``None`` for functions and random generators."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        keys = all(isinstance(key, str) for key in value)  # JSON has only string keys
        return {key: _to_json(item) for key, item in value.items()} if keys else None
    return value if value is None or isinstance(value, str | int | float | bool) else None
