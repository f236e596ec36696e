"""Converts networks in files to a store: node and edge labels, attributes, weights and classes.

By default the node attribute ``label`` and the edge attribute ``label`` are categories (one, or several in a list),
and the edge attribute ``weight`` is the weight. Every other attribute that is a number or a list of numbers on all
nodes (edges) of all graphs gives columns of the store, sorted by name. A node attribute ``truth_<key>`` is ground
truth, which no model reads. Text is encoded as integers that are the same in every source
(:mod:`graphcaps.data.label_encoding`). Notes name what is not read: attributes of only some nodes or edges, other text,
edge attributes, which no model uses, and directions.

Graphs of networkx in memory are read by the same function (:mod:`graphcaps.data.coercion`), so that a graph gives the
same store as its file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcaps.data.class_names import class_name
from graphcaps.data.convert.networkx_graphs import TRUTH_PREFIX, attribute_values, from_networkx
from graphcaps.data.label_encoding import label_code
from graphcaps.data.readers.graph_metadata import GraphMetadata, SkipKind, SkippedRow, StoreWithMetadata
from graphcaps.data.readers.network_formats import NETWORK_PARSERS, read_network_file
from graphcaps.data.readers.row_rules import UnlabelledPolicy, check_policy, read_labels, read_sets
from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, open_table
from graphcaps.data.splits.folds import set_of
from graphcaps.errors import DataError

if TYPE_CHECKING:
    from networkx import Graph

__all__ = ["CLASS_ATTRIBUTES", "is_network_folder", "read_networks", "store_from_networks"]

CLASS_ATTRIBUTES = ("y", "class", "label")
"""Attributes of a graph that may hold its class, in this order, unless ``label=`` names one."""


_MAX_NAMES = 10  # attributes in a sentence


@dataclass(frozen=True)
class _NamedGraph:
    """A graph with its name, and the class and set that its folder or table assigns to it.

    ``label`` is "" if the table, at ``line``, has no class for it, and ``split`` if it has no set.
    """

    name: str
    graph: Graph
    label: str | None = None
    split: str | None = None
    line: int = 0


def read_networks(
    path: str | Path,
    *,
    label: str | None = None,
    split: str | None = None,
    bad: UnlabelledPolicy = "refuse",
    unlabelled: UnlabelledPolicy | None = None,
    **options: Any,
) -> StoreWithMetadata:
    """Reads a GraphML, GEXF or JSON file, or a folder of such files in order of their names.

    The class of a graph comes from the first of these that exists:

    1. a table ``labels.csv`` in the folder: column ``label`` in the row of its file (column ``file``);
    2. the name of its subfolder, if all files are in subfolders;
    3. the graph attribute ``label=``, or the first of ``y``, ``class`` and ``label``.

    Args:
        path (str or Path): A file or folder.
        label (str, optional): Column of ``labels.csv``, or graph attribute, with the class.
        split (str, optional): Column of ``labels.csv``, or graph attribute, with the name of the set.
        bad (str): ``"refuse"`` raises at a graph without a class, in ``labels.csv`` or in its attributes, if others
            have one; ``"skip"`` leaves such graphs out and lists them; ``"keep"`` reads them: the store then has no
            classes if one is missing, and ``metadata.classes`` has the others. (default: ``"refuse"``)
        unlabelled (str, optional): The same; takes precedence over ``bad``. (default: ``bad``)
        options: Further arguments of :func:`store_from_networks`.

    Raises:
        DataError: If a file is invalid, with file and line.
    """
    path = Path(path)
    check_policy("load_dataset", "bad", bad, UnlabelledPolicy)
    policy = unlabelled or bad
    listed = _read_folder(path, label, split, policy) if path.is_dir() else _read_file(path, path.name)
    found = [_graph_class(one, label, policy) if one.label is None else one.label for one in listed]
    if policy != "refuse" and any(found):
        found = [name or "" for name in found]
    sets = [
        "-" if split is None else _graph_split(one, split, policy) if one.split is None else one.split
        for one in listed
    ]
    rows = [row for row in range(len(listed)) if policy != "skip" or (found[row] != "" and sets[row])]
    if not rows:
        what = "a class" if split is None else "a class and a set"
        raise DataError(path, f"{what} in at least one graph", "none")
    kept, classes = [listed[row] for row in rows], [found[row] for row in rows]
    is_complete = "" not in classes
    read = store_from_networks(
        [one.graph for one in kept],
        classes if is_complete else [None] * len(kept),
        names=[one.name for one in kept],
        split=None if split is None else [sets[row] for row in rows],
        name=path.stem,
        where=str(path),
        **options,
    )
    left_out = sorted(set(range(len(listed))) - set(rows))
    skipped = []
    for row in left_out:
        kind: SkipKind = "label" if found[row] == "" else "split"
        reason = "it has no label" if kind == "label" else "it has no set"
        skipped.append(SkippedRow(listed[row].line, listed[row].name, reason, kind))
    metadata = replace(
        read.metadata,
        skipped=tuple(skipped),
        skipped_ids=tuple(listed[row].name for row in left_out),
        row_indices=tuple(rows) if left_out else None,
        classes=None if is_complete else tuple(name or "" for name in classes),
    )
    return StoreWithMetadata(read.store, metadata)


def is_network_folder(path: Path) -> bool:
    """Whether a folder, or one of its subfolders, holds a file of networks."""
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
    strict: bool = False,
    name: str = "networks",
    where: str = "networks",
) -> StoreWithMetadata:
    """Converts networkx graphs, in memory or from a file, to a store.

    Args:
        graphs (sequence): networkx graphs.
        labels (sequence): Class of each graph, for all graphs or for none.
        names (sequence): Name of each graph. (default: its index)
        split (sequence, optional): Name of the set of each graph.
        node_label, edge_label, weight (str, optional): Attributes with the label and the weight; ``None`` reads none.
        node_attributes, edge_attributes (sequence, optional): Attributes with numbers. (default: every other
            attribute that is a number on all nodes or edges)
        class_names (sequence, optional): Names of the classes, if they are fixed in advance.
        strict (bool): Whether a node label that only some nodes have is an error instead of a note, as for graphs in
            memory. (default: ``False``)
        name, where (str): Name of the store, and of the source in messages.

    Raises:
        DataError: If only some graphs have a class, or a label is invalid.
        ArgumentError: If an attribute is invalid, or, with ``strict``, a node label.
    """
    names = list(names) or [str(index) for index in range(len(graphs))]
    missing = [graph_name for graph_name, label in zip(names, labels, strict=True) if label is None]
    if missing and len(missing) < len(labels):
        fix = "" if strict else "Add it, or leave such graphs out with bad='skip'."
        raise DataError(where, "a class for every graph or for none", f"none for '{missing[0]}'", fix=fix)
    notes: list[str] = []
    named = list(zip(names, graphs, strict=True))
    nodes = [(graph_name, [entry for _, entry in graph.nodes(data=True)]) for graph_name, graph in named]
    edges = [(graph_name, [entry for *_, entry in graph.edges(data=True)]) for graph_name, graph in named]
    _require_named(nodes, node_label, "node", where)
    _require_named(edges, edge_label, "edge", where)
    if not strict:
        node_label = _label_attribute(nodes, node_label, "node", notes)
    edge_label = _label_attribute(edges, edge_label, "edge", notes, check=not strict)
    used = {node_label, edge_label, weight}
    columns: dict[str, tuple[str, ...]] = {
        "node_labels": (node_label,) if node_label else (),
        "edge_labels": (edge_label,) if edge_label else (),
        "node_attributes": _number_attributes(nodes, node_attributes, used, "node", notes),
        "edge_attributes": _number_attributes(edges, edge_attributes, used, "edge", notes),
    }
    _note_unread(nodes, {*used, *columns["node_attributes"]}, "node", notes)
    _note_unread(edges, {*used, *columns["edge_attributes"]}, "edge", notes)
    notes += _edge_notes(graphs, edges, weight, columns["edge_attributes"])
    store = from_networkx(
        graphs,
        list(labels),  # type: ignore[arg-type]
        node_label=node_label,
        node_attributes=columns["node_attributes"] or None,
        edge_label=edge_label,
        edge_attributes=columns["edge_attributes"] or None,
        weight=weight,
        class_names=class_names,
        name=name,
    )
    metadata = GraphMetadata(
        tuple(names),
        None if split is None else tuple(split),
        notes=tuple(notes),
    )
    return StoreWithMetadata(store, metadata)


# ---------------------------------------------------------------------- attributes of nodes and edges
_AttributesByGraph = list[tuple[str, list[dict[str, Any]]]]
_DEFAULT_LABEL = "label"


def _require_named(groups: _AttributesByGraph, key: str | None, unit: str, where: str) -> None:
    """Rejects a label that no node (edge) has, unless it is the default one."""
    present = {str(name) for _, rows in groups for entry in rows for name in entry}
    if key in (None, _DEFAULT_LABEL) or key in present:
        return
    listed = sorted(name for name in present if not name.startswith(TRUTH_PREFIX))
    shown = ", ".join(f"'{name}'" for name in listed[:_MAX_NAMES]) + (
        ", …" if len(listed) > _MAX_NAMES else ""
    )
    expected = f"the {unit} attribute '{key}' ({unit}_label, --{unit}-label)"
    raise DataError(where, expected, f"only {shown}" if listed else f"{unit}s without attributes")


def _label_attribute(
    groups: _AttributesByGraph, key: str | None, unit: str, notes: list[str], *, check: bool = True
) -> str | None:
    """The attribute with the label; ``None`` unless all nodes (edges) have it. With ``check``, labels are checked."""
    total = sum(len(rows) for _, rows in groups)
    labelled = sum(entry.get(key) is not None for _, rows in groups for entry in rows) if key else 0
    if key is None or not labelled:
        return None
    if labelled < total:
        notes.append(
            f"The {unit} attribute '{key}' is on {labelled:,} of {total:,} {unit}s only and is not read."
        )
        return None
    for graph_name, rows in groups if check else ():
        for entry in rows:
            if any(label_code(label, {}) is None for label in attribute_values(entry[key])):
                expected = f"text or a whole number in the {unit} attribute '{key}'"
                raise DataError(f"graph '{graph_name}'", expected, repr(entry[key])[:80])
    return key


def _number_attributes(
    groups: _AttributesByGraph, keys: Sequence[str] | None, used: set[str | None], unit: str, notes: list[str]
) -> tuple[str, ...]:
    """Names of the attributes with numbers on all nodes (edges): ``keys`` if given, else sorted."""
    if keys is not None:
        return tuple(keys)
    total = sum(len(rows) for _, rows in groups)
    counts: dict[str, int] = {}
    for _, rows in groups:
        for entry in rows:
            for key, value in entry.items():
                if key not in used and not str(key).startswith(TRUTH_PREFIX) and _is_numeric(value):
                    counts[key] = counts.get(key, 0) + 1
    notes.extend(
        f"The {unit} attribute '{key}' is a number on {counts[key]:,} of {total:,} {unit}s only and is not read."
        for key in sorted(counts, key=str)
        if counts[key] < total
    )
    return tuple(sorted((key for key, count in counts.items() if count == total), key=str))


def _note_unread(groups: _AttributesByGraph, read: set[str | None], unit: str, notes: list[str]) -> None:
    """Names the attributes that are neither read nor named in a note: text, and values of other types."""
    unread = {
        str(key)
        for _, rows in groups
        for entry in rows
        for key, value in entry.items()
        if key not in read and value is not None and not str(key).startswith(TRUTH_PREFIX)
    }
    listed = sorted(key for key in unread if not any(f"attribute '{key}' is" in note for note in notes))
    if not listed:
        return
    shown = ", ".join(f"'{key}'" for key in listed[:_MAX_NAMES]) + (", …" if len(listed) > _MAX_NAMES else "")
    subject = f"The {unit} attribute {shown} is" if len(listed) == 1 else f"The {unit} attributes {shown} are"
    which = f"'{listed[0]}'" if len(listed) == 1 else "NAME"
    read_by = "reads it" if len(listed) == 1 else "reads one"
    held = "it holds" if len(listed) == 1 else "they hold"
    notes.append(
        f"{subject} not read, since {held} no numbers; --{unit}-label {which} {read_by} as the label."
    )


def _edge_notes(
    graphs: Sequence[Graph], edges: _AttributesByGraph, weight: str | None, attributes: tuple[str, ...]
) -> list[str]:
    """Sentences on edge attributes, which no model uses, missing weights and directions."""
    notes = []
    if attributes:
        shown = ", ".join(f"'{key}'" for key in attributes[:_MAX_NAMES])
        shown += ", …" if len(attributes) > _MAX_NAMES else ""
        one = len(attributes) == 1
        notes.append(
            f"The edge attribute{'' if one else 's'} {shown} {'is' if one else 'are'} kept in the store, but no model "
            f"uses {'it' if one else 'them'}."
        )
    rows = [entry for _, entries in edges for entry in entries]
    weighted = sum(weight in entry for entry in rows)
    if weight is not None and 0 < weighted < len(rows):
        notes.append(
            f"{len(rows) - weighted:,} of {len(rows):,} edges have no '{weight}' and get the weight 1."
        )
    directed = sum(graph.is_directed() for graph in graphs)
    if directed:
        subject = "1 graph is" if directed == 1 else f"{directed:,} graphs are"
        notes.append(f"{subject} directed; edges are read as undirected.")
    return notes


def _is_numeric(value: Any) -> bool:
    """Whether it is a number, or a list of numbers."""
    values = attribute_values(value)
    return bool(values) and all(isinstance(entry, int | float | np.number) for entry in values)


# ---------------------------------------------------------------------- files
def _network_files(folder: Path) -> Iterator[Path]:
    """Files of networks in a folder and its subfolders, in order of their names."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        inner = sorted(path.iterdir()) if path.is_dir() else [path]
        yield from (file for file in inner if file.is_file() and file.suffix.lower() in NETWORK_PARSERS)


def _read_file(
    path: Path, name: str, label: str | None = None, split: str | None = None, line: int = 0
) -> list[_NamedGraph]:
    graphs = read_network_file(path)
    several = len(graphs) > 1
    return [
        _NamedGraph(f"{name}#{index}" if several else name, graph, label, split, line)
        for index, graph in enumerate(graphs)
    ]


def _read_folder(
    folder: Path, label: str | None, split: str | None, policy: UnlabelledPolicy
) -> list[_NamedGraph]:
    files = list(_network_files(folder))
    if not files:
        raise DataError(folder, f"files that end in {', '.join(NETWORK_PARSERS)}", "none")
    tables = [
        folder / f"labels{suffix}" for suffix in TABLE_SUFFIXES if (folder / f"labels{suffix}").is_file()
    ]
    labels = _read_label_table(tables[0], label or "label", split, policy) if tables else None
    in_subfolders = all(path.parent != folder for path in files)
    listed = []
    for path in files:
        name = path.relative_to(folder).as_posix()
        if labels is not None:
            row = labels.get(name) or labels.get(path.name) or labels.get(path.stem)
            if row is None:
                raise DataError(tables[0], f"a row for the file '{name}'", "none")
            listed += _read_file(path, name, *row)
        else:
            listed += _read_file(path, name, path.parent.name if in_subfolders else None)
    return listed


def _read_label_table(
    path: Path, label: str, split: str | None, policy: UnlabelledPolicy
) -> dict[str, tuple[str, str | None, int]]:
    """Class ("" if it is missing), set and line of each file, by its name in the table."""
    table = open_table(path)
    files, labelled = table.column("file", filled=True), read_labels(table, label, policy)
    class_of = dict(zip(labelled.rows, labelled.names, strict=True))
    set_names: list[str | None] = [None] * len(files)
    if split is not None:
        sets = read_sets(table, split, policy)
        set_names = ["" if row in sets.skipped else name for row, name in enumerate(sets.names)]
    labels: dict[str, tuple[str, str | None, int]] = {}
    for row, (file, set_name, line) in enumerate(zip(files, set_names, table.lines, strict=True)):
        if file in labels:
            raise DataError(table.where, "every file once", f"'{file}' again", line=line)
        labels[file] = (class_of.get(row, ""), set_name, line)
    return labels


def _graph_class(one: _NamedGraph, label: str | None, policy: UnlabelledPolicy) -> str | None:
    """The class in the attributes of a graph; "" or ``None`` if it has none there, which ``policy`` may refuse."""
    for key in (label,) if label else CLASS_ATTRIBUTES:
        value = one.graph.graph.get(key)
        if isinstance(value, float) and not math.isfinite(value):
            raise DataError(f"graph '{one.name}'", f"a class in the graph attribute '{key}'", repr(value))
        if isinstance(value, str | int | float) and str(value).strip():
            return class_name(value)
    if label and policy == "refuse":
        fix = "Add it, or leave such graphs out with bad='skip'."
        raise DataError(f"graph '{one.name}'", f"a class in the graph attribute '{label}'", "none", fix=fix)
    return "" if label else None


def _graph_split(one: _NamedGraph, split: str, policy: UnlabelledPolicy) -> str:
    """The name of the set in the attributes of a graph; "" if it has none and ``policy`` is ``"skip"``."""
    value = one.graph.graph.get(split)
    text = "" if value is None else str(value).strip()
    if set_of(text) is not None or (not text and policy == "skip"):
        return text
    expected = f"train, valid or test in the graph attribute '{split}'"
    fix = "" if text else "Add it, or leave such graphs out with bad='skip'."
    raise DataError(f"graph '{one.name}'", expected, f"'{text}'" if text else "none", fix=fix)
