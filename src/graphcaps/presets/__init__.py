"""Presets: configurations as TOML files in the package, and their loader, which also reads a user's own files."""

from __future__ import annotations

import difflib
import os
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from graphcaps._io.read_limit import read_bounded
from graphcaps._io.user_folders import expand_home
from graphcaps.config import RunConfig
from graphcaps.data.datasets.catalogue import find_entry
from graphcaps.errors import ArgumentError, DataError

__all__ = ["list_presets", "load_preset"]

_PAPER = "paper"
_MAX_BYTES = 1 << 20  # of a file; ours have 2,000
_EMBEDDED = "planted-parts"  # one preset for all levels of this data set


def list_presets() -> tuple[str, ...]:
    """Names of the presets in the package, such as "paper/MUTAG" and "planted-parts"."""
    return tuple(sorted(_names(_folder())))


def load_preset(preset: str | Path, dataset: str | Path | None = None) -> RunConfig:
    """Reads a preset.

    Args:
        preset (str or Path): "paper" (the values of the paper's supplement for ``dataset``), a name of
            :func:`list_presets`, or a path to a TOML file, which ends in ``.toml`` or contains a ``/``.
        dataset (str or Path, optional): Data set for "paper": a name, in any case and punctuation, or a path to a
            folder or zip of that name.

    Raises:
        ArgumentError: If there is no such preset; the message lists similar names.
        DataError: If a file cannot be read, or has an unknown key or an invalid value.
    """
    if isinstance(preset, Path) or preset.lower().endswith(".toml") or _has_folder(preset):
        return _read_file(expand_home(preset, "load_preset", "preset"))
    family, slash, member = preset.partition("/")
    embedded = find_entry(preset)
    if family.lower() == _PAPER:
        name = f"{_PAPER}/{_paper_dataset(member if slash else dataset)}"
    else:
        name = _EMBEDDED if embedded is not None and embedded.embedded else preset
    if name not in list_presets():
        names = [_PAPER, *(each for each in list_presets() if "/" not in each)]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        hint = f"Did you mean {near[0]!r}?" if near else "The path of your own preset ends in .toml."
        raise ArgumentError("load_preset", "preset", f"be one of {', '.join(names)}", repr(preset), hint)
    return RunConfig.from_toml(_folder().joinpath(*f"{name}.toml".split("/")).read_text("utf-8"), name)


def _folder() -> Traversable:
    return resources.files("graphcaps").joinpath("presets")


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
        fix = f"The presets 'paper' are for {', '.join(datasets)}."
        raise ArgumentError("load_preset", "dataset", "be named for the preset 'paper'", "none", fix)
    name = Path(dataset).name
    name = name[:-4] if name.lower().endswith(".zip") else name
    entry = find_entry(name)
    if entry is not None and entry.name in datasets:
        return entry.name
    if entry is not None and entry.embedded:
        fix = f"Use the preset '{_EMBEDDED}'."
    else:
        near = difflib.get_close_matches(name.upper(), datasets, n=3, cutoff=0.5)
        start = f"Did you mean {' or '.join(near)}?" if near else f"It has {', '.join(datasets)}."
        fix = f"{start} For your own graphs leave the preset out, or write one (docs/presets.md)."
    raise ArgumentError("load_preset", "dataset", "be a data set of the paper", repr(name), fix)


def _has_folder(preset: str) -> bool:
    """Whether the name of a preset is a path; "paper/MUTAG" is not one."""
    return bool({"/", os.sep, os.altsep} & set(preset)) and not preset.lower().startswith(f"{_PAPER}/")


def _read_file(path: Path) -> RunConfig:
    """The configuration in a user's file."""
    try:
        text = read_bounded(path, _MAX_BYTES).decode("utf-8")
    except FileNotFoundError as error:
        raise DataError(path, "file not found") from error
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise DataError(path, "a TOML file in UTF-8", "other bytes") from error
    return RunConfig.from_toml(text, str(path))
