"""Parameters of ``HGCNClassifier``: their defaults, their checks and the configuration that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from numbers import Integral, Real
from typing import Any, get_args

from graphcaps.chemistry.featurizers import FEATURIZERS
from graphcaps.config import CommitteeConfig, RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.metrics import SelectionMetric
from graphcaps.nn.context import context_kinds
from graphcaps.training.loop import Callback
from graphcaps.types import EdgeLabelUse

__all__ = ["OWNER", "check_parameters", "committee", "default_config", "run_config"]

OWNER = "HGCNClassifier"  # first word of the messages of this package


@cache
def default_config(preset: str = "default") -> RunConfig:
    """The preset ``default``, the single source of default values, or another one of the package."""
    file = resources.files("graphcaps").joinpath("presets", f"{preset}.toml")
    return RunConfig.from_toml(file.read_text("utf-8"), preset)


_INTEGERS: dict[str, tuple[int, bool]] = {  # minimum, and whether None is allowed
    "capsule_dim": (1, False),
    "num_factors": (1, False),
    "routing_iterations": (1, False),
    "context_layers": (1, True),
    "epochs": (1, False),
    "batch_size": (1, True),
    "halve_every": (1, False),
    "average_epochs": (1, False),
    "n_estimators": (1, True),
    "n_init": (1, False),
    "patience": (1, True),
    "max_nodes": (0, True),
    "verbose": (0, False),
}
_REALS: dict[str, tuple[float, float, str]] = {  # minimum, excluded maximum, condition in words
    "dropout": (0, 1, "be at least 0 and below 1, or None"),
    "learning_rate": (0, math.inf, "be above 0 and finite"),
    "weight_decay": (0, math.inf, "be at least 0 and finite, or None"),
    "reconstruction_weight": (0, math.inf, "be at least 0 and finite"),
    "validation": (0, 1, "be at least 0 and below 1"),
}
_OPTIONAL_REALS = ("dropout", "weight_decay")  # None: by the number of graphs, and by the preset
_CHOICES: dict[str, tuple[Any, ...]] = {
    "preset": ("default", "best"),
    "parts": (None, "blocks"),
    "context": (None, "none", *context_kinds()),
    "context_jumping": (None, True, False),
    "calibrate": (True, False, "temperature", "isotonic"),
    "featurizer": (None, *FEATURIZERS),
    "edge_labels": (None, False, *get_args(EdgeLabelUse)),
    "unseen": ("ignore", "refuse"),
    "warm_start": (True, False),
    "metric": get_args(SelectionMetric),
}
_MODEL_PARAMETERS = (
    *("capsule_dim", "num_factors", "routing_iterations", "dropout", "parts"),
    *("context", "context_layers", "context_jumping"),
)
_TRAINING_PARAMETERS = (
    *("epochs", "batch_size", "learning_rate", "halve_every", "weight_decay"),
    *("reconstruction_weight", "average_epochs"),
)


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Checks the parameters of :class:`HGCNClassifier`.

    Raises:
        ArgumentError: If a parameter is invalid.
    """
    for name, (minimum, optional) in _INTEGERS.items():
        value = parameters[name]
        if not (optional and value is None) and not (_is_integer(value) and value >= minimum):
            words = f"be an integer of at least {minimum}" + (", or None" if optional else "")
            raise ArgumentError(OWNER, name, words, repr(value))
    for name, (low, high, words) in _REALS.items():
        value = parameters[name]
        if name in _OPTIONAL_REALS and value is None:
            continue
        valid = isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) < high
        if not valid or (name == "learning_rate" and not value > 0):
            raise ArgumentError(OWNER, name, words, repr(value))
    for name, choices in _CHOICES.items():
        if not any(parameters[name] is choice or parameters[name] == choice for choice in choices):
            raise ArgumentError(
                OWNER, name, f"be one of {', '.join(map(repr, choices))}", repr(parameters[name])
            )
    capsules = parameters["num_capsules"]
    listed = capsules if isinstance(capsules, tuple | list) else (capsules,)
    if not listed or not all(_is_integer(count) and count >= 1 for count in listed):
        words = "be a positive integer, or several, one per level"
        raise ArgumentError(OWNER, "num_capsules", words, repr(capsules))
    if parameters["capsule_dim"] % parameters["num_factors"]:
        words = f"divide 'capsule_dim', {parameters['capsule_dim']}, without remainder"
        raise ArgumentError(OWNER, "num_factors", words, parameters["num_factors"])
    weights = parameters["class_weight"]
    if not (
        weights is None
        or isinstance(weights, Mapping)
        or (isinstance(weights, str) and weights == "balanced")
    ):
        words = "be None, 'balanced' or a dictionary from class to weight"
        raise ArgumentError(OWNER, "class_weight", words, repr(weights))
    companion = parameters["companion"]
    if companion is not None and not isinstance(companion, str):
        words = "be the name of a classical model, such as 'wl-forest', 'none' or None"
        raise ArgumentError(OWNER, "companion", words, repr(companion)[:60])
    callbacks = parameters["callbacks"]
    listed = callbacks if isinstance(callbacks, list | tuple) else (callbacks,)
    if callbacks is not None and not all(isinstance(each, Callback) for each in listed):
        words = "be None or a list of graphcaps.training.Callback"
        raise ArgumentError(OWNER, "callbacks", words, repr(callbacks))
    if isinstance(callbacks, Callback):
        raise ArgumentError(OWNER, "callbacks", "be a list", repr(callbacks), "Put it into a list.")
    jobs = parameters["n_jobs"]
    if not (jobs is None or (_is_integer(jobs) and jobs != 0)):
        raise ArgumentError(OWNER, "n_jobs", "be None, a positive integer, or −1 for all cores", repr(jobs))
    if not isinstance(parameters["device"], str):
        raise ArgumentError(
            OWNER, "device", "be a string such as 'cpu', 'cuda' or 'auto'", repr(parameters["device"])
        )


def committee(parameters: Mapping[str, Any]) -> CommitteeConfig:
    """Members and companion of the preset, replaced by ``n_estimators`` and ``companion`` where they are given."""
    members, companion = _to_python(parameters["n_estimators"]), parameters["companion"]
    return default_config(parameters["preset"]).with_committee(members=members, companion=companion).committee


def run_config(parameters: Mapping[str, Any], store: GraphStore) -> RunConfig:
    """The preset for the graphs, changed by the parameters of :class:`HGCNClassifier`.

    Molecules from SMILES have the preset ``molecules``, other graphs ``default``; with ``preset="best"`` they are
    ``best-molecules`` and ``best``. Parameters in which they differ are ``None`` by default, which keeps the value of
    the preset.

    Raises:
        ArgumentError: If ``edge_labels`` says how to use labels that the graphs do not have.
    """
    of_molecules = {"default": "molecules", "best": "best-molecules"}
    preset = parameters["preset"]
    base = default_config(preset if store.featurizer is None else of_molecules[preset])
    capsules = parameters["num_capsules"]
    listed = capsules if isinstance(capsules, tuple | list) else (capsules,)
    limit = _to_python(parameters["max_nodes"])
    changed = replace(base, dataset=store.name)
    changed = changed if limit is None else changed.with_features(max_nodes=limit or None)
    edge_labels = parameters["edge_labels"]
    if edge_labels and store.edge_labels is None:
        expected = "be left out for graphs without edge labels"
        raise ArgumentError(OWNER, "edge_labels", expected, repr(edge_labels))
    if edge_labels is not None:
        changed = changed.with_features(edge_labels=edge_labels or None)
    model = {key: _to_python(parameters[key]) for key in _MODEL_PARAMETERS}
    model["num_capsules"] = tuple(int(count) for count in listed)
    changed = changed.with_model(**_given(model, base))
    has_blocks, by_preset = parameters["parts"] == "blocks", parameters["context"] is None
    if has_blocks and by_preset and "context" in changed.model_arguments:
        changed = changed.with_model(context="none")  # blocks have message passing layers of their own
    for name in ("context_layers", "context_jumping"):
        if parameters[name] and changed.model_arguments.get("context", "none") == "none":
            expected = f"come with a context, {', '.join(map(repr, context_kinds()))}"
            raise ArgumentError(OWNER, name, expected, repr(parameters[name]))
    training = {key: _to_python(parameters[key]) for key in _TRAINING_PARAMETERS}
    changed = changed.with_training(**_given(training, base))
    same = replace(changed, dataset=base.dataset) == base
    source = base.source if same else f"{base.source}, changed by arguments"
    return replace(changed, source=source, committee=committee(parameters))


def _given(values: dict[str, Any], base: RunConfig) -> dict[str, Any]:
    """The values without ``None``, which keeps that of the preset; values by data are ``None`` until they are known."""
    return {key: value for key, value in values.items() if value is not None or key in base.by_data}


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _to_python(value: Any) -> Any:
    """A numpy number, as parameter searches pass it, as a Python number."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else value
