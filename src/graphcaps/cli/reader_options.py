"""Options that describe a user's file: its columns, and what to do with its rows. Every command that reads has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any

from graphcaps.cli.output import option

__all__ = [
    "AtomFeaturizer",
    "BadMolecules",
    "BadReported",
    "BadRows",
    "DuplicateRows",
    "FragmentChoice",
    "FragmentsOfModel",
    "SplitColumn",
    "takes_reader_options",
]


class BadRows(StrEnum):
    """What to do with table rows without a valid molecule or without a label."""

    refuse = "refuse"
    skip = "skip"


class FragmentChoice(StrEnum):
    """Which fragments of salts and mixtures to read."""

    all = "all"
    largest = "largest"


class DuplicateRows(StrEnum):
    """What to do with table rows that have the same molecule."""

    keep = "keep"
    drop_contradicting = "drop-contradicting"
    first = "first"


class AtomFeaturizer(StrEnum):
    """Featurizers of molecules; a test compares them with graphcaps.chemistry.featurizers, which loads torch."""

    standard = "standard"
    elements = "elements"


_COLUMNS = "Columns of your own file"

Smiles = Annotated[
    str | None,
    option("--smiles", metavar="COLUMN", help="SMILES. Default: smiles.", rich_help_panel=_COLUMNS),
]
Label = Annotated[
    str | None, option("--label", metavar="COLUMN", help="Class label.", rich_help_panel=_COLUMNS)
]
Id = Annotated[
    str | None,
    option(
        "--id",
        metavar="COLUMN",
        help="Name of each row. Default: id, else its line.",
        rich_help_panel=_COLUMNS,
    ),
]
SplitColumn = Annotated[
    str | None,
    option("--split", metavar="COLUMN", help="Train, valid or test.", rich_help_panel=_COLUMNS),
]
NodeLabel = Annotated[
    str | None,
    option(
        "--node-label",
        metavar="KEY",
        help="Label of nodes, in files of networks. Default: label.",
        rich_help_panel=_COLUMNS,
    ),
]
EdgeLabel = Annotated[
    str | None,
    option(
        "--edge-label",
        metavar="KEY",
        help="Label of edges, in files of networks. Default: label.",
        rich_help_panel=_COLUMNS,
    ),
]
Bad = Annotated[
    BadRows | None,
    option(
        "--bad",
        help="Rows without a valid molecule, a label or an entry of --split. Default: refuse.",
        rich_help_panel=_COLUMNS,
    ),
]
BadMolecules = Annotated[
    BadRows | None,
    option(
        "--bad",
        help="Rows without a valid molecule. Default: they are left out, with a note.",
        rich_help_panel=_COLUMNS,
    ),
]
BadReported = Annotated[
    BadRows | None,
    option(
        "--bad",
        help="Rows without a valid molecule. Default: each gets a row with the reason.",
        rich_help_panel=_COLUMNS,
    ),
]
Fragments = Annotated[
    FragmentChoice | None,
    option(
        "--fragments",
        help="Salts and mixtures: all fragments, or the largest of each molecule. Default: all.",
        rich_help_panel=_COLUMNS,
    ),
]
FragmentsOfModel = Annotated[
    FragmentChoice | None,
    option(
        "--fragments",
        help="Salts and mixtures: all fragments, or the largest of each molecule. Default: as in training.",
        rich_help_panel=_COLUMNS,
    ),
]
Duplicates = Annotated[
    DuplicateRows | None,
    option(
        "--duplicates",
        help="Rows with the same molecule: keep all, drop those with contradicting labels, or keep the first. "
        "Default: keep.",
        rich_help_panel=_COLUMNS,
    ),
]
Atoms = Annotated[
    AtomFeaturizer | None,
    option(
        "--atoms",
        help="Properties of atoms and bonds (docs/featurizers.md). Default: standard.",
        rich_help_panel=_COLUMNS,
    ),
]

_OPTIONS: dict[str, Any] = {
    "smiles": Smiles,
    "label": Label,
    "id": Id,
    "node_label": NodeLabel,
    "edge_label": EdgeLabel,
    "bad": Bad,
    "fragments": Fragments,
    "duplicates": Duplicates,
    "featurizer": Atoms,
}
"""Options by the keyword argument of :func:`graphcaps.data.datasets.loading.open_dataset` that they give."""


def takes_reader_options(
    *, without: tuple[str, ...] = (), **others: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of a user's file; its parameter ``reader`` gets those that were given.

    ``reader`` is a dictionary of keyword arguments of ``open_dataset``.

    Args:
        without (tuple): Keyword arguments that the command has no option for.
        others: Options in place of the usual ones, or further ones, by keyword argument.
    """
    options = {name: each for name, each in (_OPTIONS | others).items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            given = {name: arguments.pop(name, None) for name in options}
            reader = {name: _plain(value) for name, value in given.items() if value is not None}
            command(**arguments, reader=reader)

        signature = inspect.signature(command, eval_str=True)
        kept = [each for name, each in signature.parameters.items() if name != "reader"]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in options.items()
        ]
        run.__signature__ = signature.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        return run

    return decorate


def _plain(value: str | StrEnum) -> str:
    return value.value if isinstance(value, StrEnum) else value
