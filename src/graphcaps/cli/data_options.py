"""Options that name a data set or its split, and the functions that open it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.output import note, option
from graphcaps.cli.progress import molecule_progress
from graphcaps.errors import ArgumentError, DataError, UsageError

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.readers.graph_metadata import GraphMetadata
    from graphcaps.data.splits.folds import Split
    from graphcaps.data.store import GraphStore
    from graphcaps.inference.fitted_model import FittedModel

__all__ = [
    "Fractions",
    "Json",
    "Root",
    "Source",
    "SplitBy",
    "describe_single_split",
    "display_names",
    "graph_label",
    "note_truncation",
    "open_for_model",
    "open_source",
    "open_with_splits",
    "require_labels",
]


_SOURCE_HELP = "A data set, a TU folder or zip, or your own file (docs/inputs.md)."

Source = Annotated[str, typer.Argument(metavar="SOURCE", help=_SOURCE_HELP)]
Root = Annotated[
    Path | None, option("--root", metavar="DIR", help="Folder to search first for NAME.zip or NAME/.")
]
Json = Annotated[bool, option("--json", help="Print JSON.")]
SplitBy = Annotated[
    str | None,
    option(
        "--split",
        metavar="COLUMN",
        help="Column with train, valid or test; or FILE.csv; or scaffold or random (seeded).",
    ),
]
Fractions = Annotated[
    str | None,
    option(
        "--fractions",
        metavar="A,B,C",
        help="Fractions of training, validation and test set with --split scaffold or random. "
        "Default: 0.8,0.1,0.1.",
    ),
]


def open_source(
    source: str, root: Path | None, options: dict[str, Any], defaults: dict[str, Any] | None = None
) -> LoadedDataset:
    """Reads a data set or a user's file, and prints notes, such as on skipped rows and graphs without nodes.

    Args:
        source (str): Name or path.
        root (Path, optional): Folder to search first.
        options (dict): Options of the reader.
        defaults (dict, optional): Options that are used where the format has them.
    """
    from graphcaps.data.datasets.loading import open_dataset
    from graphcaps.data.quality.summary import describe_empty_graphs

    with molecule_progress():
        loaded = open_dataset(source, root, defaults=defaults, **options)
    for sentence in (*loaded.all_notes, describe_empty_graphs(loaded.store)):
        if sentence:
            note(sentence)
    return loaded


def open_for_model(
    source: str,
    root: Path | None,
    options: dict[str, Any],
    fitted: FittedModel,
    *,
    report_bad_rows: bool,
    keep_invalid: bool = False,
) -> LoadedDataset:
    """Reads graphs for a model: molecules are read as its training molecules were, and rows need no label.

    Args:
        source, root, options: As in :func:`open_source`.
        fitted (FittedModel): The model.
        report_bad_rows (bool): Whether the results report rows without a valid molecule, so that no note on them is
            printed. They are left out unless ``--bad refuse`` is given.
        keep_invalid (bool): Whether a table without any valid molecule is read, as graphs without nodes;
            ``metadata.unreadable`` has the reasons. (default: ``False``)
    """
    from graphcaps.data.coercion import reader_defaults
    from graphcaps.data.datasets.loading import open_dataset
    from graphcaps.data.quality.summary import describe_empty_graphs

    defaults = reader_defaults(fitted.recipe) | {"unlabelled": "keep"}
    is_reported = report_bad_rows and "bad" not in options
    with molecule_progress():
        try:
            loaded = open_dataset(source, root, defaults=defaults | {"bad": "skip"}, **options)
        except DataError as error:
            if not (is_reported and keep_invalid):
                raise
            loaded = open_dataset(source, root, defaults=defaults | {"bad": "keep"}, **options)
            if loaded.metadata is None or len(loaded.metadata.unreadable) < len(loaded.store):
                raise error from None
    notes = loaded.source_notes + (() if loaded.metadata is None else loaded.metadata.notes)
    if not is_reported:
        notes += () if loaded.metadata is None else loaded.metadata.skipped_notes
        notes += (describe_empty_graphs(loaded.store),)
    trained = fitted.recipe.fragments or loaded.store.fragments
    if loaded.store.fragments not in (None, trained):
        notes += (f"The model was trained with --fragments {trained}.",)
    for sentence in filter(None, notes):
        note(sentence)
    return loaded


def note_truncation(store: GraphStore, fitted: FittedModel) -> None:
    """Prints how many nodes of the graphs a model leaves out, if it was trained with a limit."""
    from graphcaps.data.features.truncate import describe_truncation

    sentence = describe_truncation(store, fitted.max_nodes, "the model was trained so")
    if sentence:
        note(sentence)


def open_with_splits(
    source: str,
    root: Path | None,
    options: dict[str, Any],
    split: str | None,
    owner: str,
    *,
    seeds: Sequence[int] = (0,),
    fractions: str | None = None,
) -> tuple[LoadedDataset, tuple[Split, ...]]:
    """Reads a data set with class labels, and the splits that ``--split`` names: one per seed, none without a name.

    Raises:
        GraphcapsError: If labels are missing, or the split is unknown, has no training or test graphs, or a seeded one
            has a part without one of the classes.
    """
    from graphcaps.data.readers.row_rules import describe_copies_across
    from graphcaps.data.splits.groups import is_seeded, resolve_splits, split_column
    from graphcaps.data.splits.seeded_splits import FRACTIONS

    if fractions is not None and (split is None or not is_seeded(split)):
        raise ArgumentError(owner, "--fractions", "come with --split scaffold or random", f"'{fractions}'")
    shares = FRACTIONS if fractions is None else _parse_fractions(owner, fractions)
    column = split_column(split)
    loaded = open_source(source, root, options if column is None else options | {"split": column})
    require_labels(owner, loaded)
    if split is None:
        return loaded, ()
    with molecule_progress():
        splits = resolve_splits(split, loaded.store, loaded.metadata, seeds=seeds, fractions=shares)
    parts = [
        part.tolist() for part in (splits[0].train, splits[0].validation, splits[0].test) if part is not None
    ]
    labels = None if loaded.store.y is None else loaded.store.y.tolist()
    if sentence := describe_copies_across(loaded.store.smiles, labels, parts):
        note(sentence)
    return loaded, splits


def describe_single_split(split: Split | None, command: str) -> str:
    """A sentence on a single seeded split, with the way to repeat it; "" for another split or none.

    Args:
        split (Split, optional): The split.
        command (str): What gives ten splits.
    """
    if split is None or split.seed is None:
        return ""
    return (
        f"One split says little, since results differ from split to split. Mean and spread of ten: {command}"
    )


def _parse_fractions(owner: str, text: str) -> tuple[float, ...]:
    from graphcaps.data.splits.seeded_splits import check_fractions

    try:
        fractions = tuple(float(number) for number in text.split(","))
    except ValueError as error:
        expected = "be three numbers with commas, such as 0.8,0.1,0.1"
        raise ArgumentError(owner, "--fractions", expected, f"'{text}'") from error
    check_fractions(owner, fractions, "--fractions")
    return fractions


def require_labels(owner: str, loaded: LoadedDataset) -> None:
    """Rejects graphs without class labels, and lists what ``--label`` can name.

    Raises:
        UsageError: If the graphs have no labels.
    """
    if loaded.store.y is not None:
        return
    fix = "add graph labels."
    if loaded.metadata is not None and loaded.source is not None:
        fix = _suggest_label(loaded.source, is_edge_list=loaded.store.smiles is None)
    name = loaded.store.name if loaded.source is None else loaded.source.name
    raise UsageError(f"{owner}: {name} has no class labels; {fix}")


_MAX_NAMES = 20  # in a message
_NETWORKX_ENTRIES = {"node_default", "edge_default", "mode"}  # written by networkx, not by the user


def _suggest_label(path: Path, *, is_edge_list: bool) -> str:
    """How to name the labels of a user's file or folder."""
    from graphcaps.data.readers.edge_lists import find_edge_list
    from graphcaps.data.readers.network_formats import NETWORK_PARSERS, read_network_file
    from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, open_table

    if path.is_dir():
        path = find_edge_list(path) or path
    if path.suffix.lower() in TABLE_SUFFIXES and is_edge_list:
        candidates = (path.with_name(f"graphs{suffix}") for suffix in TABLE_SUFFIXES if path.stem == "edges")
        graphs = next((table for table in candidates if table.is_file()), None)
        if graphs is None:
            return "put a table graphs.csv with the columns graph and label next to edges.csv."
        path = graphs
    if path.suffix.lower() in TABLE_SUFFIXES:
        return _suggest_names("column", open_table(path).columns, path.name)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in NETWORK_PARSERS)[:1]
    networks = [network for file in files for network in read_network_file(file)]
    entries = sorted({str(entry) for network in networks for entry in network.graph} - _NETWORKX_ENTRIES)
    return _suggest_names("graph attribute", entries, files[0].name)


def _suggest_names(what: str, names: Sequence[str], where: str) -> str:
    if not names:
        return f"add a graph attribute such as 'class': the graphs of {where} have none."
    listed = ", ".join(f"'{name}'" for name in names[:_MAX_NAMES]) + (
        ", …" if len(names) > _MAX_NAMES else ""
    )
    return f"name the {what} with --label ({where} has {listed})."


def display_names(metadata: GraphMetadata | None, ids: Sequence[str] | None) -> Sequence[str] | None:
    """Names of the graphs, or ``None`` where they only repeat the numbers."""
    if metadata is None or ids is None or not metadata.has_names:
        return None
    return None if all(name == str(number) for number, name in enumerate(ids, start=1)) else ids


def graph_label(graph: int, names: Sequence[str] | None) -> str:
    """How messages name graph ``graph``, counted from 0: its number from 1, and its name if it has one."""
    return f"{graph + 1:,}" if names is None else f"{graph + 1:,} ({names[graph]})"
