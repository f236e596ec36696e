"""Arguments that verbs which read data share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.output import note

if TYPE_CHECKING:
    from graphcaps.data.datasets import LoadedDataset
    from graphcaps.data.rows import Rows

__all__ = [
    "Bad",
    "BadRows",
    "BadTold",
    "Id",
    "Json",
    "Label",
    "Root",
    "Smiles",
    "Source",
    "Split",
    "called",
    "open_each",
    "open_own",
    "own_hints",
    "own_names",
]


class BadRows(StrEnum):
    """What is done at a row that is no molecule."""

    refuse = "refuse"
    skip = "skip"


Root = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="Folder to look in first for NAME.zip or NAME/.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="A data set, a TU folder or zip, or your own file (docs/inputs.md)."
    ),
]
_COLUMN = "Columns of your own file"
Smiles = Annotated[
    str | None,
    typer.Option("--smiles", metavar="COLUMN", help="SMILES. Default: smiles.", rich_help_panel=_COLUMN),
]
Label = Annotated[
    str | None, typer.Option("--label", metavar="COLUMN", help="The class.", rich_help_panel=_COLUMN)
]
Split = Annotated[
    str | None,
    typer.Option("--split", metavar="COLUMN", help="Train, valid or test.", rich_help_panel=_COLUMN),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Name of each row. Default: id, else its line.",
        rich_help_panel=_COLUMN,
    ),
]
Bad = Annotated[
    BadRows | None,
    typer.Option("--bad", help="Rows that are no molecule. Default: refuse.", rich_help_panel=_COLUMN),
]

BadTold = Annotated[
    BadRows | None,
    typer.Option(
        "--bad",
        help="Rows that are no molecule. Default: they keep their place, and the reason is told.",
        rich_help_panel=_COLUMN,
    ),
]


def own_hints(
    smiles: str | None = None,
    label: str | None = None,
    split: str | None = None,
    id: str | None = None,
    bad: BadRows | None = None,
) -> dict[str, Any]:
    """What these options say, as ``open_dataset(source, root, **own_hints(…))`` takes it."""
    given = {
        "smiles": smiles,
        "label": label,
        "split": split,
        "id": id,
        "bad": None if bad is None else bad.value,
    }
    return {name: value for name, value in given.items() if value is not None}


def open_own(source: str, root: Path | None, hints: dict[str, Any]) -> LoadedDataset:
    """Reads a data set or a user's own file, and tells which rows were left out."""
    from graphcaps.data.datasets import open_dataset

    loaded = open_dataset(source, root, **hints)
    for told in () if loaded.rows is None else loaded.rows.notes:
        note(told)
    return loaded


def open_each(source: str, root: Path | None, hints: dict[str, Any]) -> LoadedDataset:
    """The same, where rows that are no molecule keep their place: it is told with the others what became of them.

    An option ``--bad`` that was given stands as it is.
    """
    from graphcaps.data.datasets import open_dataset
    from graphcaps.errors import ArgumentError

    if "bad" in hints:
        return open_own(source, root, hints)
    try:
        return open_dataset(source, root, **hints, bad="skip")
    except ArgumentError as error:
        if error.name != "bad":
            raise
    return open_own(source, root, hints)  # no table of molecules: there are no such rows


def own_names(rows: Rows | None, ids: Sequence[str] | None) -> Sequence[str] | None:
    """Names of graphs where they tell more than a number does."""
    if rows is None or ids is None or not rows.named:
        return None
    return None if all(name == str(number) for number, name in enumerate(ids, start=1)) else ids


def called(graph: int, names: Sequence[str] | None) -> str:
    """How a graph, counted from 0, is named to people: its number from 1, and its name where it has one."""
    return f"{graph + 1:,}" if names is None else f"{graph + 1:,} ({names[graph]})"
