"""What the arguments of the classifier may be, and the configuration that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.engine.config import RunConfig
from graphcaps.errors import ArgumentError
from graphcaps.evaluation.finishing import balanced_weights

__all__ = ["check_parameters", "class_weights", "default_config", "run_config"]

_OWNER = "HGCNClassifier"

# Least value and most of whole numbers; of numbers the same, and whether the ends belong to it.
_WHOLE: dict[str, tuple[int, bool]] = {  # least, and whether None is allowed
    "capsule_dim": (1, False),
    "num_factors": (1, False),
    "routing_iterations": (1, False),
    "epochs": (1, False),
    "batch_size": (1, True),
    "halve_every": (1, False),
    "average_epochs": (1, False),
    "patience": (1, True),
    "max_nodes": (1, True),
    "verbose": (0, False),
}
_REAL: dict[str, tuple[float, float, str]] = {  # least, most, in words
    "dropout": (0, 1, "be at least 0 and below 1, or None"),
    "learning_rate": (0, math.inf, "be above 0 and finite"),
    "weight_decay": (0, math.inf, "be at least 0 and finite"),
    "reconstruction_weight": (0, math.inf, "be at least 0 and finite"),
    "validation": (0, 1, "be at least 0 and below 1"),
}
_CHOICES: dict[str, tuple[Any, ...]] = {
    "parts": (None, "blocks"),
    "calibrate": (True, False, "temperature", "isotonic"),
    "unseen": ("ignore", "refuse"),
    "warm_start": (True, False),
}
_MODEL = ("capsule_dim", "num_factors", "routing_iterations", "dropout", "parts")
_TRAINING = (
    *("epochs", "batch_size", "learning_rate", "halve_every", "weight_decay"),
    *("reconstruction_weight", "average_epochs"),
)


@cache
def default_config() -> RunConfig:
    """The preset ``default``: the one place where default values stand."""
    file = resources.files("graphcaps").joinpath("presets", "default.toml")
    return RunConfig.from_toml(file.read_text("utf-8"), "default")


def check_parameters(given: Mapping[str, Any]) -> None:
    """Refuses arguments that cannot be meant; called by ``fit``, as scikit-learn wants it.

    Raises:
        ArgumentError: Which argument, what it may be, and what it is.
    """
    for name, (least, optional) in _WHOLE.items():
        value = given[name]
        if not (optional and value is None) and not (_is_whole(value) and value >= least):
            words = f"be a whole number from {least} on" + (", or None" if optional else "")
            raise ArgumentError(_OWNER, name, words, repr(value))
    for name, (low, high, words) in _REAL.items():
        value = given[name]
        if name == "dropout" and value is None:
            continue  # the graphs decide
        sound = isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) < high
        if not sound or (name == "learning_rate" and not value > 0):
            raise ArgumentError(_OWNER, name, words, repr(value))
    for name, known in _CHOICES.items():
        if not any(given[name] is choice or given[name] == choice for choice in known):
            raise ArgumentError(_OWNER, name, f"be one of {', '.join(map(repr, known))}", repr(given[name]))
    capsules = given["num_capsules"]
    listed = capsules if isinstance(capsules, tuple | list) else (capsules,)
    if not listed or not all(_is_whole(count) and count >= 1 for count in listed):
        words = "be a whole number from 1 on, or several, one per level"
        raise ArgumentError(_OWNER, "num_capsules", words, repr(capsules))
    if given["capsule_dim"] % given["num_factors"]:
        words = f"divide 'capsule_dim', {given['capsule_dim']}, without remainder"
        raise ArgumentError(_OWNER, "num_factors", words, given["num_factors"])
    weights = given["class_weight"]
    if not (
        weights is None
        or isinstance(weights, Mapping)
        or (isinstance(weights, str) and weights == "balanced")
    ):
        words = "be None, 'balanced' or a dictionary from class to weight"
        raise ArgumentError(_OWNER, "class_weight", words, repr(weights))
    if given["on_epoch"] is not None and not callable(given["on_epoch"]):
        raise ArgumentError(_OWNER, "on_epoch", "be a function or None", repr(given["on_epoch"]))
    if not isinstance(given["device"], str):
        raise ArgumentError(
            _OWNER, "device", "be a text such as 'cpu', 'cuda' or 'auto'", repr(given["device"])
        )


def run_config(given: Mapping[str, Any], name: str) -> RunConfig:
    """The default preset with the given arguments in the place of its own."""
    base = default_config()
    capsules = given["num_capsules"]
    listed = capsules if isinstance(capsules, tuple | list) else (capsules,)
    features = replace(base.features, max_nodes=_plain(given["max_nodes"]))
    changed = replace(base, dataset=name, features=features)
    changed = changed.with_model(
        num_capsules=tuple(int(count) for count in listed), **{key: _plain(given[key]) for key in _MODEL}
    )
    changed = changed.with_training(**{key: _plain(given[key]) for key in _TRAINING})
    same = replace(changed, dataset=base.dataset) == base
    return changed if same else replace(changed, source="default, changed by arguments")


def class_weights(given: Any, classes: np.ndarray, y: Tensor) -> Tensor | None:
    """What a graph of each class counts, ``[O]``, or ``None`` where all count 1.

    Raises:
        ArgumentError: If a dictionary names a class that is not there, or a weight is not a number above 0.
    """
    if given is None:
        return None
    if isinstance(given, str):
        return balanced_weights(y, len(classes))
    known = classes.tolist()
    for name in given:
        if name not in known:
            found = ", ".join(map(repr, known[:5]))
            raise ArgumentError(_OWNER, "class_weight", f"name classes among {found}", repr(name))
    weights = [given.get(name, 1.0) for name in known]
    for weight in weights:
        if not isinstance(weight, Real) or not 0 < float(weight) < math.inf:
            raise ArgumentError(_OWNER, "class_weight", "hold numbers above 0", repr(weight))
    return torch.tensor([float(weight) for weight in weights])


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    """A numpy number, as searches over parameters give, as Python's own."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else value
