"""The model file: one ``.safetensors`` with all that a :class:`FittedModel` needs, and :func:`load`.

Loading runs no code from the file. The model is one that this program knows by name, built from arguments
that it knows by name; its tensors must have the names, types and shapes that these arguments call for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps.config import RunConfig
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.errors import ArgumentError, DataError, GraphcapsError
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.probabilities import Calibration
from graphcaps.models.builder import model_factory
from graphcaps.registry import MODELS

__all__ = ["FORMAT", "FORMAT_VERSION", "load", "save"]

FORMAT = "graphcaps model"
FORMAT_VERSION = 2

_ENTRIES = {
    "in_channels": int,
    "num_classes": int,
    "class_names": list,
    "config": dict,
    "recipe": dict,
    "training": dict,
    "versions": dict,
}
# A table or nothing; version 1 has no calibration and no profile.
_OPTIONAL = ("calibration", "profile")


def save(fitted: FittedModel, path: str | Path) -> None:
    """Writes a model file, whole or not at all; :func:`load` gives the same scores, bit for bit.

    Raises:
        ArgumentError: If the configuration does not describe the model, or holds what is no plain value.
        DataError: If the file cannot be written.
    """
    model: Any = fitted.model
    config = _resolved(fitted.config)
    state = fitted.model.state_dict()
    wrong = _wrong_state(_make(config, model.in_channels, model.num_classes), state)
    if wrong is not None:
        raise ArgumentError("FittedModel.save", "config", f"describe the model: {wrong[0]}", wrong[1])
    content = {
        "in_channels": int(model.in_channels),
        "num_classes": int(model.num_classes),
        "class_names": list(fitted.class_names),
        "config": config.as_dict(),
        "recipe": fitted.recipe.to_dict(),
        "calibration": None if fitted.calibration is None else fitted.calibration.to_dict(),
        "profile": None if fitted.profile is None else fitted.profile.to_dict(),
        "training": fitted.training,
        "versions": fitted.versions,
    }
    try:
        data = encode_checked(FORMAT, FORMAT_VERSION, content, state)
    except (TypeError, ValueError, UnicodeError) as error:
        raise ArgumentError(
            "FittedModel.save", "training", "hold values that JSON can", str(error)
        ) from error
    write_atomically(path, data)


def load(path: str | Path) -> FittedModel:
    """Reads a model file; the model predicts on new graphs with no other input.

    Args:
        path (str or Path): A file that ``FittedModel.save`` or ``graphcaps train`` wrote.

    Raises:
        DataError: If it is something else, cut short, changed, of a newer format, or not sound.

    Example:
        >>> model = graphcaps.load("mutag.safetensors")                  # doctest: +SKIP
    """
    path = Path(path)
    read = read_checked(path, FORMAT, FORMAT_VERSION)
    # The encode_checked holds, so what is wrong from here on was written that way, by hand or by another program.
    _check_entries(path, read.content)
    try:
        return _build(path, read.content, read.tensors)
    except DataError:
        raise
    except (GraphcapsError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        raise DataError(path, "a model that can be built", f"'{' '.join(str(error).split())}'") from error


def _build(path: Path, content: dict[str, Any], tensors: dict[str, Tensor]) -> FittedModel:
    config = RunConfig.from_dict(content["config"], str(path))
    if config.model not in MODELS:
        raise DataError(
            path,
            f"a model among {', '.join(MODELS)}",
            f"'{config.model}'",
            fix="Update graphcaps to read it.",
        )
    make = _make(config, content["in_channels"], content["num_classes"])
    wrong = _wrong_state(make, tensors) or _not_finite(tensors)
    if wrong is not None:
        raise DataError(path, *wrong)
    with torch.random.fork_rng(devices=[]):  # building draws weights, which are replaced
        model = make(())
    model.to(_floating(tensors))
    model.load_state_dict(tensors)
    return FittedModel(
        model,
        config,
        FeatureRecipe.from_dict(content["recipe"]),
        tuple(content["class_names"]),
        content["training"],
        content["versions"],
        None if content.get("calibration") is None else Calibration.from_dict(content["calibration"]),
        None if content.get("profile") is None else TrainingProfile.from_dict(content["profile"]),
    )


def _check_entries(path: Path, content: dict[str, Any]) -> None:
    for name, kind in _ENTRIES.items():
        if name not in content or type(content[name]) is not kind:
            found = repr(content[name])[:60] if name in content else "none"
            raise DataError(path, f"a header with {_named(kind)} under '{name}'", found)
    for name in content:
        if name not in _ENTRIES and name not in ("format", "version", "sha256", *_OPTIONAL):
            raise DataError(path, f"a header with the entries {', '.join(_ENTRIES)}", f"'{name}'")
    for name in _OPTIONAL:
        if not isinstance(content.get(name), dict | None):
            what = f"a header with a table or nothing under '{name}'"
            raise DataError(path, what, repr(content[name])[:60])
    if not all(isinstance(name, str) for name in content["class_names"]):
        raise DataError(path, "class names that are text", content["class_names"])
    for name in ("in_channels", "num_classes"):
        if content[name] < 1:
            raise DataError(path, f"at least 1 under '{name}'", content[name])


def _named(kind: type) -> str:
    return {int: "a whole number", list: "a list", dict: "a table"}.get(kind, "nothing")


def _make(config: RunConfig, in_channels: int, num_classes: int) -> Callable[[tuple[int, ...]], nn.Module]:
    for name, value in config.model_arguments.items():
        if not _is_plain(value):
            owner = f"model '{config.model}'"
            fix = "A part of your own cannot be kept in a model file, since loading runs no code."
            raise ArgumentError(owner, name, "be a plain value to be saved", type(value).__name__, fix)
    return model_factory(config, in_channels, num_classes)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or type(value) in (str, int, float, bool)


def _resolved(config: RunConfig) -> RunConfig:
    """The configuration with every argument of the model spelled out: defaults may change, files stay."""
    parameters = inspect.signature(MODELS[config.model]).parameters.values()
    defaults = {
        entry.name: entry.default
        for entry in parameters
        if entry.kind is inspect.Parameter.KEYWORD_ONLY and entry.name != "lead"
    }
    return replace(config, model_arguments=defaults | config.model_arguments)


def _wrong_state(
    make: Callable[[tuple[int, ...]], nn.Module], tensors: dict[str, Tensor]
) -> tuple[str, str] | None:
    """The first way in which tensors are not those of the model, as expected and found; ``None`` if none.

    The model is built without memory, so that absurd sizes in a file cost nothing.
    """
    with torch.device("meta"):
        wanted = make(()).state_dict()
    for name in sorted(wanted.keys() ^ tensors.keys()):
        if name in wanted:
            return f"a tensor '{name}'", "none"
        return f"the tensors of the model, {len(wanted)} by name", f"another, '{name}'"
    floating = _floating(tensors)
    for name, value in wanted.items():
        got = tensors[name]
        if got.shape != value.shape:
            return f"the shape {list(value.shape)} for '{name}'", str(list(got.shape))
        kind = floating if value.is_floating_point() else value.dtype
        if got.dtype != kind:
            return f"{_short(kind)} numbers in '{name}'", _short(got.dtype)
    return None


def _not_finite(tensors: dict[str, Tensor]) -> tuple[str, str] | None:
    for name, value in tensors.items():
        if not bool(torch.isfinite(value).all()):
            return f"finite numbers in '{name}'", "NaN or infinity"
    return None


def _floating(tensors: dict[str, Tensor]) -> torch.dtype:
    """float64 where the first floating tensor is of that type, and else float32."""
    kinds = [value.dtype for value in tensors.values() if value.is_floating_point()]
    return torch.float64 if kinds[:1] == [torch.float64] else torch.float32


def _short(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
