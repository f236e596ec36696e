"""From networks in files to a store: which entries are labels, attributes and weights, and where classes stand.

Unless a hint says otherwise, the node entry ``label`` and the edge entry ``label`` are categories, the edge entry
``weight`` is the weight, and every other entry that is a number on every node (edge) of every graph is an
attribute, in the order of the names. Text becomes numbers that are the same in every file
(:mod:`graphcaps.data.label_encoding`). What stands on some nodes only is left out, and a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphcaps.data.convert.networkx_graphs import from_networkx
from graphcaps.data.label_encoding import label_code
from graphcaps.data.readers.graph_metadata import GraphMetadata, StoreWithMetadata
from graphcaps.data.readers.network_formats import NETWORK_PARSERS, read_network_file
from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, open_table
from graphcaps.errors import DataError

if TYPE_CHECKING:
    from networkx import Graph

__all__ = ["is_network_folder", "read_networks", "store_from_networks"]

_CLASS_ENTRIES = ("y", "class", "label")  # of a graph, where no hint names one


@dataclass(frozen=True)
class _Listed:
    """One graph with its name, and the class that its folder or table gives it."""

    name: str
    graph: Graph
    label: str | None = None
    split: str | None = None


def read_networks(
    path: str | Path, *, label: str | None = None, split: str | None = None, **entries: Any
) -> StoreWithMetadata:
    """Reads a GraphML, GEXF or JSON file, or a folder of them.

    The class of a graph is, in a folder with ``labels.csv``, the entry of its column ``label`` in the row of its
    file (column ``file``); in a folder of folders, the name of the folder; else an entry of the graph itself:
    ``label=``, or the first of y, class and label. Files are taken in the order of their names.

    Args:
        path (str or Path): A file, or a folder.
        label (str, optional): Column of ``labels.csv``, or entry of the graphs, with the class.
        split (str, optional): Column of ``labels.csv``, or entry of the graphs, with the part.
        entries: As in :func:`store_from_networks`.

    Raises:
        DataError: At what cannot be read, with file and line.
    """
    path = Path(path)
    listed = _folder(path, label, split) if path.is_dir() else _file(path, path.name)
    chosen = [
        _Listed(one.name, one.graph, one.label or _entry(one, label), one.split or _part(one, split))
        for one in listed
    ]
    return store_from_networks(
        [one.graph for one in chosen],
        [one.label for one in chosen],
        names=[one.name for one in chosen],
        split=None if split is None else [one.split or "" for one in chosen],
        name=path.stem,
        where=path.name,
        **entries,
    )


def is_network_folder(path: Path) -> bool:
    """Whether a folder, or one in it, holds a file of networks."""
    return path.is_dir() and next(_network_files(path), None) is not None


def store_from_networks(
    graphs: Sequence[Graph],
    labels: Sequence[str | None],
    *,
    names: Sequence[str] = (),
    split: Sequence[str] | None = None,
    node_label: str | None = "label",
    edge_label: str | None = "label",
    weight: str | None = "weight",
    node_attributes: Sequence[str] | None = None,
    edge_attributes: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    name: str = "networks",
    where: str = "networks",
) -> StoreWithMetadata:
    """A store from networkx graphs as files have them; the graphs' own entries are replaced by numbers.

    Args:
        graphs (sequence): networkx graphs.
        labels (sequence): Class of each graph, for all or for none.
        names (sequence): What each graph is called. (default: its number)
        split (sequence, optional): Part of each graph.
        node_label, edge_label, weight (str, optional): Entries that hold these. ``None`` reads none.
        node_attributes, edge_attributes (sequence, optional): Entries that hold numbers. (default: every other
            entry that is a number everywhere)
        class_names (sequence, optional): Names of the classes, where they are known beforehand.
        name, where (str): Name of the store, and of the source in messages.
    """
    names = list(names) or [str(index) for index in range(len(graphs))]
    for graph, called in zip(graphs, names, strict=True):
        if not graph.number_of_nodes():
            raise DataError(f"{where}, graph '{called}'", "at least one node", "none")
    missing = [called for called, label in zip(names, labels, strict=True) if label is None]
    if missing and len(missing) < len(labels):
        raise DataError(where, "a class for every graph or for none", f"none for '{missing[0]}'")
    texts: dict[int, str] = {}
    notes: list[str] = []
    both = list(zip(names, graphs, strict=True))
    nodes = [(called, [entry for _, entry in graph.nodes(data=True)]) for called, graph in both]
    edges = [(called, [entry for *_, entry in graph.edges(data=True)]) for called, graph in both]
    found: dict[str, tuple[str, ...]] = {}
    node_label = _categories(nodes, node_label, "node", texts, notes)
    edge_label = _categories(edges, edge_label, "edge", texts, notes)
    found["node_labels"] = (node_label,) if node_label else ()
    found["edge_labels"] = (edge_label,) if edge_label else ()
    taken = {node_label, edge_label, weight}
    found["node_attributes"] = _attributes(nodes, node_attributes, taken, "node", notes)
    found["edge_attributes"] = _attributes(edges, edge_attributes, taken, "edge", notes)
    store = from_networkx(
        graphs,
        list(labels),  # type: ignore[arg-type]
        node_label=node_label,
        node_attributes=found["node_attributes"] or None,
        edge_label=edge_label,
        edge_attributes=found["edge_attributes"] or None,
        weight=weight,
        codes={},
        class_names=class_names,
        name=name,
    )
    rows = GraphMetadata(
        tuple(names),
        None if split is None else tuple(split),
        label_names=texts,
        columns=found,
        notes=tuple(notes),
    )
    return StoreWithMetadata(store, rows)


# ---------------------------------------------------------------------- entries
_Groups = list[tuple[str, list[dict[str, Any]]]]


def _categories(
    groups: _Groups, key: str | None, unit: str, texts: dict[int, str], notes: list[str]
) -> str | None:
    """Turns an entry into numbers in place; ``None`` where it is not on every node or edge."""
    total = sum(len(rows) for _, rows in groups)
    holders = sum(entry.get(key) is not None for _, rows in groups for entry in rows) if key else 0
    if key is None or not holders:
        return None
    if holders < total:
        notes.append(f"The {unit} entry '{key}' stands on {holders:,} of {total:,} {unit}s and is not read.")
        return None
    for called, rows in groups:
        for entry in rows:
            code = label_code(entry[key], texts)
            if code is None:
                expected = f"text or a whole number in the {unit} entry '{key}'"
                raise DataError(f"graph '{called}'", expected, repr(entry[key]))
            entry[key] = code
    return key


def _attributes(
    groups: _Groups, keys: Sequence[str] | None, taken: set[str | None], unit: str, notes: list[str]
) -> tuple[str, ...]:
    """Names of the entries that are numbers everywhere."""
    if keys is not None:
        return tuple(keys)
    total = sum(len(rows) for _, rows in groups)
    counts: dict[str, int] = {}
    for _, rows in groups:
        for entry in rows:
            for key, value in entry.items():
                if key not in taken and isinstance(value, int | float):
                    counts[key] = counts.get(key, 0) + 1
    for key in sorted(counts):
        if counts[key] < total:
            told = f"is a number on {counts[key]:,} of {total:,} {unit}s and is not read."
            notes.append(f"The {unit} entry '{key}' {told}")
    return tuple(sorted(key for key, count in counts.items() if count == total))


# ---------------------------------------------------------------------- files
def _network_files(folder: Path) -> Iterator[Path]:
    """Files of networks in a folder and in the folders in it, by name."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        inner = sorted(path.iterdir()) if path.is_dir() else [path]
        yield from (file for file in inner if file.is_file() and file.suffix.lower() in NETWORK_PARSERS)


def _file(path: Path, called: str, label: str | None = None, split: str | None = None) -> list[_Listed]:
    graphs = read_network_file(path)
    several = len(graphs) > 1
    names = [f"{called}#{index}" if several else called for index in range(len(graphs))]
    return [_Listed(name, graph, label, split) for name, graph in zip(names, graphs, strict=True)]


def _folder(folder: Path, label: str | None, split: str | None) -> list[_Listed]:
    files = list(_network_files(folder))
    if not files:
        raise DataError(folder, f"files that end in {', '.join(NETWORK_PARSERS)}", "none")
    tables = [
        folder / f"labels{ending}" for ending in TABLE_SUFFIXES if (folder / f"labels{ending}").is_file()
    ]
    known = _label_table(tables[0], label or "label", split) if tables else None
    inside = all(path.parent != folder for path in files)
    listed = []
    for path in files:
        called = path.relative_to(folder).as_posix()
        if known is not None:
            row = known.get(called) or known.get(path.name) or known.get(path.stem)
            if row is None:
                raise DataError(tables[0].name, f"a row for the file '{called}'", "none")
            listed += _file(path, called, *row)
        else:
            listed += _file(path, called, path.parent.name if inside else None)
    return listed


def _label_table(path: Path, label: str, split: str | None) -> dict[str, tuple[str, str | None]]:
    """Class and part of each file, by what the table calls it."""
    table = open_table(path)
    files, classes = table.column("file", filled=True), table.classes(label)
    parts: Sequence[str | None] = [None] * len(files) if split is None else table.column(split, filled=True)
    known: dict[str, tuple[str, str | None]] = {}
    for file, one, part, line in zip(files, classes, parts, table.lines, strict=True):
        if file in known:
            raise DataError(table.where, "every file once", f"'{file}' again", line=line)
        known[file] = (one, part)
    return known


def _entry(one: _Listed, label: str | None) -> str | None:
    """The class that a graph carries itself."""
    for key in (label,) if label else _CLASS_ENTRIES:
        value = one.graph.graph.get(key)
        if isinstance(value, float) and not math.isfinite(value):
            raise DataError(f"graph '{one.name}'", f"its class in the graph's entry '{key}'", repr(value))
        if isinstance(value, str | int | float) and str(value).strip():
            whole = isinstance(value, float) and value.is_integer()
            return str(int(value)) if whole or isinstance(value, bool) else str(value).strip()
    if label:
        raise DataError(f"graph '{one.name}'", f"its class in the graph's entry '{label}'", "none")
    return None


def _part(one: _Listed, split: str | None) -> str | None:
    value = one.graph.graph.get(split) if split else None
    if split and value is None:
        raise DataError(f"graph '{one.name}'", f"its part in the graph's entry '{split}'", "none")
    return None if value is None else str(value)
