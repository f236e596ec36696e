"""Edge lists: tables with one row per edge of many graphs, and optional tables of graphs and of nodes.

* ``edges.csv`` has the columns ``graph``, ``source`` and ``target``, and optionally ``weight`` (numbers) and ``label``
  (categories). Every other column is an edge attribute and holds numbers.
* ``graphs.csv`` (optional) has the columns ``graph`` and ``label``, the class, and may have a split column. The graphs
  of the store are its rows, in this order. Without the file there are no classes. Rows without a class follow the
  rule of :mod:`graphcaps.data.readers.row_rules`.
* ``nodes.csv`` (optional) has the columns ``graph``, ``node`` and ``label`` (a category). Every other column is a node
  attribute. It lists all nodes, including isolated ones, in the order of the store. Without the file, the nodes are
  those that occur in edges. A graph of ``graphs.csv`` that has neither has no nodes.

Attribute columns are sorted by name. Graphs and nodes are identified by any text. An edge is listed once, or once in
each direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.label_encoding import label_code
from graphcaps.data.readers.graph_metadata import GraphMetadata, StoreWithMetadata
from graphcaps.data.readers.row_rules import (
    LabelledRows,
    SetRows,
    UnlabelledPolicy,
    check_policy,
    read_labels,
    read_sets,
)
from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, Table, open_table
from graphcaps.errors import DataError

__all__ = ["EDGE_COLUMNS", "find_edge_list", "read_edge_list"]

EDGE_COLUMNS = ("graph", "source", "target")
"""Columns that identify a table as an edge list."""


@dataclass
class _Graph:
    """Nodes and edges of one graph, and the rows that they come from."""

    line: int  # of its first mention
    nodes: dict[str, int] = field(default_factory=dict)  # node id -> index in the graph
    node_rows: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    edge_rows: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Columns:
    """Columns of a table: their ``names``, and ``values [rows, columns]``, ``None`` if there are none."""

    names: tuple[str, ...] = ()
    values: Tensor | None = None

    def rows(self, rows: list[int]) -> Tensor | None:
        return None if self.values is None else self.values[rows]


def find_edge_list(folder: Path) -> Path | None:
    """The table ``edges`` (.csv, .tsv or .parquet) of a folder, or ``None``."""
    return _find_table(folder, "edges")


def read_edge_list(
    path: str | Path,
    *,
    graphs: str | Path | None = None,
    nodes: str | Path | None = None,
    label: str | None = None,
    split: str | None = None,
    bad: UnlabelledPolicy = "refuse",
    unlabelled: UnlabelledPolicy | None = None,
    class_names: Sequence[str] | None = None,
) -> StoreWithMetadata:
    """Reads graphs from an edge list.

    Args:
        path (str or Path): The table of edges, or a folder with ``edges.csv``.
        graphs, nodes (str or Path, optional): Tables of graphs and nodes. (default: ``graphs.csv`` and ``nodes.csv``
            in the same folder, if the table of edges is named ``edges``)
        label (str, optional): Column of the table of graphs with the class. (default: ``label``, if it exists)
        split (str, optional): Column of the table of graphs with the name of the set.
        bad (str): ``"refuse"`` raises at a graph without a class in a table that has classes, ``"skip"`` leaves such
            graphs out and lists them. (default: ``"refuse"``)
        unlabelled (str, optional): The same, or ``"keep"``, which reads such graphs; the store then has no classes if
            one is missing, and ``metadata.classes`` has the others. (default: ``bad``)
        class_names (sequence, optional): Names of the classes, if they are fixed in advance.

    Raises:
        DataError: At the first error, with file, line, what was expected and what was found.
    """
    path = _edges_path(Path(path))
    has_companions = path.stem == "edges"
    graphs = graphs or (_find_table(path.parent, "graphs") if has_companions else None)
    nodes = nodes or (_find_table(path.parent, "nodes") if has_companions else None)
    edge_table = open_table(path)
    graph_table = None if graphs is None else open_table(graphs)
    node_table = None if nodes is None else open_table(nodes)
    if graph_table is None and (label or split):
        expected = f"a table of graphs with a column '{label or split}'"
        fix = "Put graphs.csv beside edges.csv, or name it with graphs=…."
        raise DataError(path, expected, "none", fix=fix)

    check_policy("load_dataset", "bad", bad, UnlabelledPolicy)
    read = _read_graphs(graph_table)
    labels = _read_classes(graph_table, label, unlabelled or bad)
    sets = None
    if split is not None and graph_table is not None:
        sets = read_sets(graph_table, split, unlabelled or bad)
        labels = None if labels is None else labels.without(sets.skipped)
    names = None if labels is None else labels.names
    _read_nodes(read, node_table, graphs_fixed=graph_table is not None)
    _read_edges(read, edge_table, graph_table or node_table, nodes_fixed=node_table is not None)

    texts: dict[int, str] = {}
    node_labels, edge_labels = _label_column(node_table, texts), _label_column(edge_table, texts)
    node_attributes = _number_columns(node_table, ("graph", "node", "label"))
    edge_attributes = _number_columns(edge_table, (*EDGE_COLUMNS, "weight", "label"))
    weight = None
    if edge_table.find_column("weight") is not None:
        weight = torch.tensor(edge_table.numbers("weight"), dtype=torch.float64)
    without_set = {} if sets is None else sets.skipped
    rows = [row for row in (range(len(read)) if labels is None else labels.rows) if row not in without_set]
    graphs_of = list(read.values())
    is_complete = labels is not None and labels.is_complete
    arrays = [
        GraphArrays(
            len(graph.nodes),
            torch.tensor(graph.edges, dtype=torch.long).reshape(-1, 2).T,
            names[index] if names is not None and is_complete else None,
            node_labels=node_labels.rows(graph.node_rows),
            node_attributes=node_attributes.rows(graph.node_rows),
            edge_labels=edge_labels.rows(graph.edge_rows),
            edge_attributes=edge_attributes.rows(graph.edge_rows),
            edge_weight=None if weight is None else weight[graph.edge_rows].float(),
        )
        for index, graph in enumerate(graphs_of[row] for row in rows)
    ]
    name = path.parent.resolve().name if has_companions else path.stem
    store = store_from_graphs(
        arrays,
        name,
        class_names=class_names,
        label_names=texts,
        source_columns={
            "node_labels": node_labels.names,
            "edge_labels": edge_labels.names,
            "node_attributes": node_attributes.names,
            "edge_attributes": edge_attributes.names,
        },
        owner="read_edge_list",
    )
    return StoreWithMetadata(store, _metadata(list(read), rows, labels, sets))


def _edges_path(path: Path) -> Path:
    """The table of edges, which may be given by its folder."""
    if not path.is_dir():
        return path
    found = find_edge_list(path)
    if found is None:
        raise DataError(path, "a table edges.csv", "none")
    return found


def _metadata(
    ids: Sequence[str], rows: Sequence[int], labels: LabelledRows | None, sets: SetRows | None
) -> GraphMetadata:
    """Ids, sets and classes of the graphs that were read, and those that were left out.

    Args:
        ids (sequence): Id of each row of the table of graphs.
        rows (sequence): Rows that were read.
        labels, sets (optional): Classes and sets of the rows.
    """
    missing = {} if sets is None else {row.line: row for row in sets.skipped.values()}
    missing |= {} if labels is None else {row.line: row for row in labels.skipped}
    skipped = tuple(missing[line] for line in sorted(missing))
    kept = set(rows)
    return GraphMetadata(
        tuple(ids[row] for row in rows),
        None if sets is None else tuple(sets.names[row] for row in rows),
        skipped=skipped,
        row_indices=tuple(rows) if skipped else None,
        skipped_ids=tuple(name for row, name in enumerate(ids) if row not in kept),
        classes=None if labels is None or labels.is_complete else labels.names,
    )


def _read_graphs(table: Table | None) -> dict[str, _Graph]:
    """Graphs by id, from the table of graphs; empty without one."""
    read: dict[str, _Graph] = {}
    if table is None:
        return read
    names = table.column("graph", filled=True)
    for name, line in zip(names, table.lines, strict=True):
        if name in read:
            raise DataError(table.where, "every graph once", f"'{name}' again", line=line)
        read[name] = _Graph(line)
    return read


def _read_classes(table: Table | None, label: str | None, policy: UnlabelledPolicy) -> LabelledRows | None:
    """Classes of the table of graphs; ``None`` if it has no such column."""
    column = label or ("label" if table is not None and table.find_column("label") is not None else None)
    return None if table is None or column is None else read_labels(table, column, policy)


def _read_nodes(read: dict[str, _Graph], table: Table | None, *, graphs_fixed: bool) -> None:
    """Adds the nodes of the table of nodes to the graphs."""
    if table is None:
        return
    graphs, nodes = table.column("graph", filled=True), table.column("node", filled=True)
    for row, (name, node, line) in enumerate(zip(graphs, nodes, table.lines, strict=True)):
        if name not in read and graphs_fixed:
            raise DataError(table.where, "a graph of the table of graphs", f"'{name}'", line=line)
        graph = read.setdefault(name, _Graph(line))
        if node in graph.nodes:
            raise DataError(table.where, f"every node of graph '{name}' once", f"'{node}' again", line=line)
        graph.nodes[node] = len(graph.nodes)
        graph.node_rows.append(row)


def _read_edges(
    read: dict[str, _Graph], table: Table, graph_list: Table | None, *, nodes_fixed: bool
) -> None:
    """Adds the edges to the graphs. ``graph_list`` is the table that lists all graphs, if there is one."""
    graphs, sources, targets = (table.column(name, filled=True) for name in EDGE_COLUMNS)
    rows = zip(graphs, sources, targets, table.lines, strict=True)
    for row, (name, source, target, line) in enumerate(rows):
        if name not in read and graph_list is not None:
            expected = f"a graph of {Path(graph_list.where).name}"
            raise DataError(table.where, expected, f"'{name}'", line=line)
        graph = read.setdefault(name, _Graph(line))
        for node in (source, target):
            if node not in graph.nodes:
                if nodes_fixed:
                    expected = f"a node of graph '{name}' in the table of nodes"
                    raise DataError(table.where, expected, f"'{node}'", line=line)
                graph.nodes[node] = len(graph.nodes)
        graph.edges.append((graph.nodes[source], graph.nodes[target]))
        graph.edge_rows.append(row)


def _label_column(table: Table | None, texts: dict[int, str]) -> _Columns:
    """The column ``label`` as integer codes; the codes of text are added to ``texts``."""
    if table is None or table.find_column("label") is None:
        return _Columns()
    codes = [label_code(text, texts) for text in table.column("label", filled=True)]
    return _Columns(("label",), torch.tensor(codes, dtype=torch.long).reshape(-1, 1))


def _number_columns(table: Table | None, other: tuple[str, ...]) -> _Columns:
    """All columns except ``other``, as float32, or float64 if a number is too large for that."""
    # Sorted by name, because another file may have them in another order.
    names = sorted(name for name in table.columns if name.lower() not in other) if table else []
    if table is None or not names:
        return _Columns()
    values = torch.tensor([table.numbers(name) for name in names], dtype=torch.float64).T
    return _Columns(tuple(names), values.float() if bool(torch.isfinite(values.float()).all()) else values)


def _find_table(folder: Path, stem: str) -> Path | None:
    paths = (folder / f"{stem}{suffix}" for suffix in TABLE_SUFFIXES)
    return next((path for path in paths if path.is_file()), None)
