"""Finds registered models by name: those of graphcaps and those of installed packages.

The module of a model of graphcaps is imported when this model is looked up, and all of them when models are listed or
none has the name. A package of someone else names its
model in the entry-point group ``graphcaps.models``; its module is imported when that model is asked for, so that a
package that cannot be imported affects no other model.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import graphcaps.models
import graphcaps.nn.hgcn
from graphcaps._io.close_names import close_names
from graphcaps.errors import ArgumentError, GraphcapsError, UsageError
from graphcaps.models.classical import ClassicalModel
from graphcaps.nn.graph_model import GraphModel
from graphcaps.registry import MODELS, RegisteredModel

__all__ = [
    "ENTRY_POINT_GROUP",
    "ListedModel",
    "find_classical_model",
    "find_graph_model",
    "find_model",
    "is_classical",
    "is_model",
    "list_models",
    "model_names",
    "suggest_models",
]

ENTRY_POINT_GROUP = "graphcaps.models"
"""Entry-point group in which packages name their models."""


def model_names() -> list[str]:
    """Names of all models, sorted: of graphcaps, of installed packages, and registered by the program itself."""
    _import_own_models()
    return sorted({*MODELS, *_plugins()})


def is_model(name: str) -> bool:
    """Whether a model has this name, as in :func:`model_names`."""
    return _has_own_model(name) or name in _plugins()


def find_model(name: str) -> type[RegisteredModel]:
    """The class of a registered model.

    Args:
        name (str): Name of a model of graphcaps, of an entry point, or one that the program registered.

    Raises:
        ArgumentError: If there is no such model.
        UsageError: If several packages have a model of this name, or the package of the model cannot be imported.
    """
    _has_own_model(name)
    plugins = _plugins().get(name, ())
    own = name in MODELS and MODELS[name].__module__.partition(".")[0] == "graphcaps"
    if len(plugins) + own > 1:
        sources = [*(["graphcaps"] if own else []), *map(_package, plugins)]
        raise UsageError(
            f"The model name '{name}' is ambiguous: {' and '.join(sources)} have a model of this name; "
            "uninstall all but one of them."
        )
    if plugins and name not in MODELS:
        _import_plugin(plugins[0])
    if name not in MODELS:
        names = model_names()
        raise ArgumentError("config", "model", "name a model", repr(name), suggest_models(name, names))
    return MODELS[name]


def suggest_models(name: str, names: Sequence[str]) -> str:
    """A sentence with the names that are similar to a wrong one, or with all of them."""
    near = close_names(name, names)
    return f"Did you mean {' or '.join(near)}?" if near else f"Names are {', '.join(names)}."


def find_graph_model(name: str) -> type[GraphModel]:
    """:func:`find_model` for a model that is trained by gradient descent.

    Raises:
        ArgumentError: If there is no such model, or it is of another kind.
    """
    model = find_model(name)
    if not issubclass(model, GraphModel):
        raise ArgumentError(f"model '{name}'", "kind", "be trained by gradient descent", model.__name__)
    return model


def find_classical_model(name: str) -> type[ClassicalModel]:
    """:func:`find_model` for a model that is fitted without gradient training.

    Raises:
        ArgumentError: If there is no such model, or it is of another kind.
    """
    model = find_model(name)
    if not issubclass(model, ClassicalModel):
        expected = "be fitted without gradient training"
        raise ArgumentError(f"model '{name}'", "kind", expected, model.__name__)
    return model


def is_classical(name: str) -> bool:
    """Whether a registered model is fitted without gradient training, see :func:`find_model`."""
    return issubclass(find_model(name), ClassicalModel)


@dataclass(frozen=True)
class ListedModel:
    """What a list of models shows of one of them.

    Args:
        name (str): Name of the model.
        package (str): The package that provides it.
        summary (str): One line about it; empty if it cannot be loaded.
        reference (str): The publication that it comes from; empty if it cannot be loaded.
        problem (str): Why it cannot be loaded, as one sentence; empty if it can.
    """

    name: str
    package: str
    summary: str = ""
    reference: str = ""
    problem: str = ""


def list_models() -> list[ListedModel]:
    """All models, sorted by name. The packages of all of them are imported; problems are reported in the list."""
    listed = []
    for name in model_names():
        package = ", ".join(_package_name(entry) for entry in _plugins().get(name, ()))
        try:
            model = find_model(name)
        except GraphcapsError as error:
            listed.append(ListedModel(name, package, problem=str(error)))
        else:
            package = package or model.__module__.partition(".")[0]
            listed.append(ListedModel(name, package, model.summary(), model.reference))
    return listed


def _has_own_model(name: str) -> bool:
    """Whether a model of this name is registered, after the import of the modules of graphcaps that may do so.

    The module of a model has its name, with underscores, so that most lookups import one module. Some models import
    large packages that the others do not need.
    """
    if name in MODELS:
        return True
    module = name.replace("-", "_")
    if module in _own_modules():
        importlib.import_module(f"graphcaps.models.{module}")
    if name not in MODELS:
        _import_own_models()
    return name in MODELS


@cache
def _own_modules() -> frozenset[str]:
    """Names of the modules of :mod:`graphcaps.models`."""
    return frozenset(module.name for module in pkgutil.iter_modules(graphcaps.models.__path__))


@cache
def _import_own_models() -> None:
    for module in sorted(_own_modules()):
        importlib.import_module(f"graphcaps.models.{module}")


@cache
def _plugins() -> dict[str, tuple[EntryPoint, ...]]:
    """Entry points of installed packages, by model name."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        # A package that is found twice, in a folder and installed, counts once: its value is the same.
        found.setdefault(entry.name, {}).setdefault(f"{_package(entry)}={entry.value}", entry)
    return {name: tuple(entries.values()) for name, entries in found.items()}


def _package_name(entry: EntryPoint) -> str:
    return entry.module.partition(".")[0] if entry.dist is None else entry.dist.name


def _package(entry: EntryPoint) -> str:
    return f"the package '{_package_name(entry)}'"


def _import_plugin(entry: EntryPoint) -> None:
    """Imports the module of an entry point, which registers its model.

    Raises:
        UsageError: If it cannot be imported, or registers no model of the name of the entry point.
    """
    where = f"{_package(entry)}, entry point '{entry.name} = {entry.value}'"
    try:
        entry.load()
    except Exception as error:  # code of another package may raise anything
        cause = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        raise UsageError(
            f"The model '{entry.name}' cannot be loaded from {where} ({cause}); repair or uninstall the package."
        ) from error
    if entry.name not in MODELS:
        raise UsageError(
            f"The model '{entry.name}' is not registered by {where}; "
            f'its module must register it with @MODELS.register("{entry.name}").'
        )
