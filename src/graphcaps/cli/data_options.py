"""``--split``: a part for each graph, from a column, a file, or the scaffolds of molecules."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.output import note, option
from graphcaps.errors import ArgumentError

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.readers.graph_metadata import GraphMetadata
    from graphcaps.data.splits.folds import Split

__all__ = [
    "Bad",
    "BadReported",
    "BadRows",
    "Id",
    "Json",
    "Label",
    "Root",
    "Smiles",
    "Source",
    "SplitBy",
    "SplitColumn",
    "display_names",
    "graph_label",
    "open_keeping_bad_rows",
    "open_source",
    "open_with_split",
    "reader_options",
    "require_labels",
]


_MOST = 20  # names in a message
_NETWORKX = {"node_default", "edge_default", "mode"}  # what networkx itself notes of a file


def require_labels(owner: str, loaded: LoadedDataset) -> None:
    """Refuses graphs without classes, and lists what ``--label`` can name.

    Raises:
        ArgumentError: If there are none.
    """
    if loaded.store.y is not None:
        return
    fix = "Add graph labels."
    if loaded.metadata is not None and loaded.source is not None:
        fix = _table(loaded.source, edges=loaded.metadata.smiles is None)
    got = f"'{loaded.store.name}' without"
    raise ArgumentError(owner, "source", "have a class for every graph", got, fix)


def _table(path: Path, *, edges: bool) -> str:
    """What to do about a user's own file or folder."""
    from graphcaps.data.readers.edge_lists import find_edge_list
    from graphcaps.data.readers.network_formats import NETWORK_PARSERS, read_network_file
    from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, open_table

    if path.is_dir():
        path = find_edge_list(path) or path
    if path.suffix.lower() in TABLE_SUFFIXES and edges:
        beside = (path.with_name(f"graphs{ending}") for ending in TABLE_SUFFIXES if path.stem == "edges")
        graphs = next((table for table in beside if table.is_file()), None)
        if graphs is None:
            return "Put a table graphs.csv with the columns graph and label beside edges.csv."
        path = graphs
    if path.suffix.lower() in TABLE_SUFFIXES:
        return _choose("column", open_table(path).columns, path.name)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in NETWORK_PARSERS)[:1]
    networks = [network for file in files for network in read_network_file(file)]
    entries = sorted({str(entry) for network in networks for entry in network.graph} - _NETWORKX)
    return _choose("graph entry", entries, files[0].name)


def _choose(what: str, names: Sequence[str], where: str) -> str:
    if not names:
        return f"Add a class to each graph: the graphs of {where} have no entries, such as 'class'."
    listed = ", ".join(f"'{name}'" for name in names[:_MOST]) + (", …" if len(names) > _MOST else "")
    return f"Name the {what} with --label; {where} has {listed}."


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
SplitColumn = Annotated[
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

BadReported = Annotated[
    BadRows | None,
    typer.Option(
        "--bad",
        help="Rows that are no molecule. Default: they keep their place, and the reason is told.",
        rich_help_panel=_COLUMN,
    ),
]


def reader_options(
    smiles: str | None = None,
    label: str | None = None,
    split: str | None = None,
    id: str | None = None,
    bad: BadRows | None = None,
) -> dict[str, Any]:
    """What these options say, as ``open_dataset(source, root, **reader_options(…))`` takes it."""
    given = {
        "smiles": smiles,
        "label": label,
        "split": split,
        "id": id,
        "bad": None if bad is None else bad.value,
    }
    return {name: value for name, value in given.items() if value is not None}


def open_source(source: str, root: Path | None, hints: dict[str, Any]) -> LoadedDataset:
    """Reads a data set or a user's own file, and tells which rows were left out."""
    from graphcaps.data.datasets.loading import open_dataset

    loaded = open_dataset(source, root, **hints)
    for told in () if loaded.metadata is None else loaded.metadata.notes:
        note(told)
    return loaded


def open_keeping_bad_rows(source: str, root: Path | None, hints: dict[str, Any]) -> LoadedDataset:
    """The same, where rows that are no molecule keep their place: it is told with the others what became of them.

    An option ``--bad`` that was given stands as it is.
    """
    from graphcaps.data.datasets.loading import open_dataset
    from graphcaps.errors import ArgumentError

    if "bad" in hints:
        return open_source(source, root, hints)
    try:
        return open_dataset(source, root, **hints, bad="skip")
    except ArgumentError as error:
        if error.name != "bad":
            raise
    return open_source(source, root, hints)  # no table of molecules: there are no such rows


def display_names(rows: GraphMetadata | None, ids: Sequence[str] | None) -> Sequence[str] | None:
    """Names of graphs where they tell more than a number does."""
    if rows is None or ids is None or not rows.has_names:
        return None
    return None if all(name == str(number) for number, name in enumerate(ids, start=1)) else ids


def graph_label(graph: int, names: Sequence[str] | None) -> str:
    """How a graph, counted from 0, is named to people: its number from 1, and its name where it has one."""
    return f"{graph + 1:,}" if names is None else f"{graph + 1:,} ({names[graph]})"


SplitBy = Annotated[
    str | None,
    option("--split", metavar="COLUMN", help="Says train, valid or test; or a FILE.csv, or scaffold."),
]


def open_with_split(
    source: str, root: Path | None, hints: dict[str, Any], split: str | None, owner: str = "train"
) -> tuple[LoadedDataset, Split | None]:
    """Reads a data set with classes, and the parts that ``--split`` names.

    Raises:
        GraphcapsError: If there are no classes or no such parts, or no graph to learn from or to test on.
    """
    from graphcaps.data.splits.groups import resolve_split, split_column

    column = split_column(split)
    loaded = open_source(source, root, hints if column is None else hints | {"split": column})
    require_labels(owner, loaded)
    return loaded, None if split is None else resolve_split(split, loaded.store, loaded.metadata)
