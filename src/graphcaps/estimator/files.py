"""A classifier as a model file: what it was given and what it calls its classes stand in the header."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcaps.errors import ArgumentError, DataError
from graphcaps.fitted import FittedModel
from graphcaps.model_file import load

if TYPE_CHECKING:
    from graphcaps.estimator.classifier import HGCNClassifier

__all__ = ["load_estimator", "save_estimator"]

_ENTRY = "estimator"


def save_estimator(model: HGCNClassifier, path: str | Path) -> None:
    """Writes the model file of a fitted classifier.

    Raises:
        ArgumentError: If the classes are neither numbers, text nor truth values.
    """
    classes = model.classes_
    listed = classes.tolist()
    if not all(isinstance(name, str | int | float | bool) for name in listed):
        kind = type(listed[0]).__name__
        raise ArgumentError("HGCNClassifier.save", "classes_", "be numbers or text to be saved", kind)
    told = {
        "parameters": {name: _plain(value) for name, value in model.get_params(deep=False).items()},
        "classes": listed,
        "dtype": classes.dtype.str if classes.dtype.kind != "O" else "O",
        "label_codes": model._label_codes,
        "attributes": model._asks_attributes,
        "features": model.n_features_in_,
        "history": model.history_,
    }
    fitted = model.model_
    replace(fitted, training=fitted.training | {_ENTRY: told}).save(path)


def load_estimator(kind: type[HGCNClassifier], path: str | Path) -> HGCNClassifier:
    """A fitted classifier from a model file; one of ``graphcaps train`` calls its classes as the file does.

    Raises:
        DataError: If the file is not sound, or its model is no HGCN.
    """
    fitted = load(path)
    if fitted.config.model != "hgcn":
        fix = "Use graphcaps.load for it."
        raise DataError(path, "a model 'hgcn'", f"a model '{fitted.config.model}'", fix=fix)
    told = fitted.training.get(_ENTRY, {})
    try:
        return _build(kind, fitted, told)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DataError(path, f"what HGCNClassifier.save writes under '{_ENTRY}'", f"'{error}'") from error


def _build(kind: type[HGCNClassifier], fitted: FittedModel, told: dict[str, Any]) -> HGCNClassifier:
    parameters = told["parameters"] if told else _parameters_of(fitted)
    known = inspect.signature(kind).parameters
    made = {name: value for name, value in parameters.items() if name in known}
    if isinstance(made.get("num_capsules"), list):
        made["num_capsules"] = tuple(made["num_capsules"])
    model = kind(**made)
    model.model_ = replace(
        fitted, training={name: value for name, value in fitted.training.items() if name != _ENTRY}
    )
    names = np.array(told["classes"], dtype=told["dtype"]) if told else np.array(fitted.class_names)
    if len(names) != len(fitted.class_names):
        raise ValueError(f"{len(names)} classes for {len(fitted.class_names)}")
    model.classes_ = names
    model._label_codes = {str(name): int(code) for name, code in told.get("label_codes", {}).items()}
    columns = (fitted.recipe.num_attributes or 0) + len(fitted.recipe.label_values or ())
    model._asks_attributes = bool(told.get("attributes", fitted.recipe.num_attributes))
    model.n_features_in_ = int(told.get("features", columns))
    model.history_ = list(told.get("history", []))
    model.n_iter_ = int(fitted.training.get("epochs_run", fitted.training.get("epochs", 0)))
    return model


def _parameters_of(fitted: FittedModel) -> dict[str, Any]:
    """Arguments that would train such a model, of a file that no classifier wrote."""
    training = fitted.config.as_dict()["training"]
    return fitted.config.model_arguments | training | {"max_nodes": fitted.config.features.max_nodes}


def _plain(value: Any) -> Any:
    """What JSON can hold; functions and generators are left out."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        keys = all(isinstance(key, str) for key in value)  # JSON has no others: the weights cannot be kept
        return {key: _plain(item) for key, item in value.items()} if keys else None
    return value if value is None or isinstance(value, str | int | float | bool) else None
