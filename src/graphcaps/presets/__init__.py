"""Presets: configurations as TOML files in the package, and their loader, which also reads a user's own files."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from graphcaps._io.close_names import close_names
from graphcaps._io.read_limit import read_toml
from graphcaps._io.user_folders import expand_home
from graphcaps.config import CommitteeConfig, RunConfig
from graphcaps.data.datasets.catalogue import find_entry
from graphcaps.errors import ArgumentError

__all__ = [
    "ListedPreset",
    "describe_presets",
    "is_published",
    "list_presets",
    "load_preset",
    "published_models",
]

_PAPER = "paper"
_PAPER_MODEL = "hgcn"  # its published settings are the presets of the paper
_PUBLISHED = "published"
_MAX_BYTES = 1 << 20  # of a file; ours have 2,000
_EMBEDDED = "planted-parts"  # one preset for all levels of this data set
_CHOICES = "'graphcaps info --presets' lists all presets; the path of your own preset ends in .toml."


@cache
def list_presets() -> tuple[str, ...]:
    """Names of the presets in the package, such as "paper/MUTAG" and "planted-parts"."""
    return tuple(sorted(_names(_folder())))


@dataclass(frozen=True)
class ListedPreset:
    """A preset of the package.

    Args:
        name (str): Its name, as in :func:`list_presets`.
        model (str): The model.
        dataset (str): The data set that it is for, "" for any.
        by_dataset (tuple): Data sets for which some values differ.
        committee (CommitteeConfig): Number of members of its committee, and its companion.
    """

    name: str
    model: str
    dataset: str
    by_dataset: tuple[str, ...]
    committee: CommitteeConfig


def describe_presets() -> tuple[ListedPreset, ...]:
    """Model, data sets and committee of each preset in the package."""
    listed = []
    for name in list_presets():
        text = _text(name)
        config = RunConfig.from_toml(text, name)
        tables = tuple(tomllib.loads(text).get("by_dataset", {}))
        listed.append(ListedPreset(name, config.model, config.dataset, tables, config.committee))
    return tuple(listed)


def published_models() -> tuple[str, ...]:
    """Names of the models that the preset "published" is for."""
    files = (name.partition("/") for name in list_presets())
    return tuple(sorted({_PAPER_MODEL, *(name for family, _, name in files if family == _PUBLISHED)}))


def is_published(preset: str) -> bool:
    """Whether a name is that of the published settings of a model: "published", or "published/gin"."""
    return preset.lower().partition("/")[0] == _PUBLISHED


def load_preset(preset: str | Path, dataset: str | Path | None = None, model: str | None = None) -> RunConfig:
    """Reads a preset.

    Args:
        preset (str or Path): "published" (the published settings of ``model``), "paper" (HGCN's for ``dataset``), a
            name of :func:`list_presets`, or a path to a TOML file, which ends in ``.toml``, or contains a ``/`` and has
            no suffix.
        dataset (str or Path, optional): Data set for "paper", and for values that hold for one data set: a name, in any
            case and punctuation, or a path to a folder or zip of that name.
        model (str, optional): Model for "published". (default: "hgcn", whose published settings are "paper")

    Raises:
        ArgumentError: If there is no such preset; the message lists similar names.
        DataError: If a file cannot be read, or has an unknown key or an invalid value.
    """
    if model is not None and str(preset).lower() != _PUBLISHED:
        expected = f"be left out unless the preset is '{_PUBLISHED}'"
        raise ArgumentError("load_preset", "model", expected, repr(model))
    names = _dataset_names(dataset)
    if isinstance(preset, Path) or preset.lower().endswith(".toml") or _has_folder(preset):
        path = expand_home(preset, "load_preset", "preset")
        if isinstance(preset, str) and path.suffix.lower() != ".toml" and (path.suffix or not path.is_file()):
            raise _not_toml(preset)
        return _read_file(path, names)
    family, slash, member = preset.partition("/")
    embedded = find_entry(preset)
    if is_published(preset):
        name = _published_name(member if slash else model or _PAPER_MODEL, dataset)
    elif family.lower() == _PAPER:
        name = f"{_PAPER}/{_paper_dataset(member if slash else dataset)}"
    else:
        name = _EMBEDDED if embedded is not None and embedded.level is not None else preset
    if name not in list_presets():
        known = [_PAPER, _PUBLISHED, *(each for each in list_presets() if "/" not in each)]
        near = close_names(name, known, 1)
        if Path(preset).suffix and not near:
            raise _not_toml(preset)
        hint = f"Did you mean {near[0]!r}?" if near else _CHOICES
        raise ArgumentError("load_preset", "preset", f"be one of {', '.join(known)}", repr(preset), hint)
    config = RunConfig.from_toml(_text(name), name, names)
    return replace(config, dataset=names[-1]) if names and name.startswith(f"{_PUBLISHED}/") else config


def _not_toml(preset: str) -> ArgumentError:
    """The error of a path that is not one of a TOML file."""
    expected = "be the name of a preset or the path of a TOML file"
    return ArgumentError("load_preset", "preset", expected, repr(preset), _CHOICES)


def _published_name(model: str, dataset: str | Path | None) -> str:
    """Name of the preset with the published settings of a model."""
    if model == _PAPER_MODEL:
        return f"{_PAPER}/{_paper_dataset(dataset)}"
    models = published_models()
    if model not in models:
        near = close_names(model, models, 1)
        hint = (
            f"Did you mean {near[0]!r}?" if near else "Leave the preset out, or write one (docs/presets.md)."
        )
        expected = f"be one with published settings ({', '.join(models)})"
        raise ArgumentError("load_preset", "model", expected, repr(model), hint)
    return f"{_PUBLISHED}/{model}"


def _dataset_names(dataset: str | Path | None) -> tuple[str, ...]:
    """The name of a data set as it was given, and its name in the catalogue, if it has one, last."""
    if dataset is None:
        return ()
    name = _stem(dataset)
    entry = find_entry(name)
    return (name,) if entry is None or entry.name == name else (name, entry.name)


def _stem(dataset: str | Path) -> str:
    """A data set's name, or that of its folder or zip."""
    name = Path(dataset).name
    return name[:-4] if name.lower().endswith(".zip") else name


def _folder() -> Traversable:
    return resources.files("graphcaps").joinpath("presets")


def _text(name: str) -> str:
    """The text of a preset in the package."""
    return _folder().joinpath(*f"{name}.toml".split("/")).read_text("utf-8")


def _names(folder: Traversable, prefix: str = "") -> list[str]:
    """Names of the presets in a folder and its subfolders."""
    names = []
    for entry in folder.iterdir():
        if entry.is_dir():
            names += _names(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".toml"):
            names.append(prefix + entry.name.removesuffix(".toml"))
    return names


def _paper_dataset(dataset: str | Path | None) -> str:
    """Name of the paper's preset for a data set."""
    datasets = [name.partition("/")[2] for name in list_presets() if name.startswith(f"{_PAPER}/")]
    if dataset is None:
        fix = f"It has {', '.join(datasets)}. For your own graphs leave the preset out."
        expected = "be a data set of the paper, named as in the catalogue, for the preset 'paper'"
        raise ArgumentError("load_preset", "dataset", expected, "none", fix)
    name = _stem(dataset)
    entry = find_entry(name)
    if entry is not None and entry.name in datasets:
        return entry.name
    if entry is not None and entry.level is not None:
        fix = f"Use the preset '{_EMBEDDED}'."
    else:
        near = close_names(name, datasets)
        start = f"Did you mean {' or '.join(near)}?" if near else f"It has {', '.join(datasets)}."
        fix = f"{start} For your own graphs leave the preset out, or write one (docs/presets.md)."
    raise ArgumentError("load_preset", "dataset", "be a data set of the paper", repr(name), fix)


def _has_folder(preset: str) -> bool:
    """Whether the name of a preset is a path; "paper/MUTAG" and "published/gin" are not."""
    families = (f"{_PAPER}/", f"{_PUBLISHED}/")
    return bool({"/", os.sep, os.altsep} & set(preset)) and not preset.lower().startswith(families)


def _read_file(path: Path, datasets: tuple[str, ...]) -> RunConfig:
    """The configuration in a user's file."""
    return RunConfig.from_toml(read_toml(path, _MAX_BYTES), str(path), datasets)
