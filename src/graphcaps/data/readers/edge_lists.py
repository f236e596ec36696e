"""Many graphs in one edge list: a table with a row per edge, and beside it tables of graphs and of nodes.

* ``edges.csv``: columns ``graph``, ``source``, ``target``; optional ``weight`` (numbers) and ``label`` (categories);
  every other column is an edge attribute and holds numbers.
* ``graphs.csv`` (optional): ``graph`` and ``label``, the class; a column with the part may stand beside them. The
  graphs of the store are its rows, in its order. Without it, there are no classes.
* ``nodes.csv`` (optional): ``graph``, ``node`` and ``label`` (a category); every other column is an attribute. It
  lists all nodes, isolated ones too, and their order. Without it, nodes are those that edges name.

Attributes are taken in the order of their names. Graphs and nodes may be called by any text. An edge is listed
once, or in both directions.
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
from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, Table, open_table
from graphcaps.errors import DataError

__all__ = ["EDGE_COLUMNS", "find_edge_list", "read_edge_list"]

EDGE_COLUMNS = ("graph", "source", "target")
"""Columns by which a table is known as an edge list."""


@dataclass
class _Graph:
    """What was read of one graph so far."""

    line: int  # where it is first named
    y: str | None = None
    nodes: dict[str, int] = field(default_factory=dict)
    node_rows: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    edge_rows: list[int] = field(default_factory=list)


def find_edge_list(folder: Path) -> Path | None:
    """``edges.csv`` (or .tsv, .parquet) of a folder."""
    return _beside(folder, "edges")


def read_edge_list(
    path: str | Path,
    *,
    graphs: str | Path | None = None,
    nodes: str | Path | None = None,
    label: str | None = None,
    split: str | None = None,
    class_names: Sequence[str] | None = None,
) -> StoreWithMetadata:
    """Reads the tables of this module.

    Args:
        path (str or Path): The table of edges, or a folder with ``edges.csv``.
        graphs, nodes (str or Path, optional): The other tables. (default: ``graphs.csv`` and ``nodes.csv`` in the
            same folder, where the edges stand in ``edges.csv``)
        label (str, optional): Column of the table of graphs with the class. (default: ``label``, where it is there)
        split (str, optional): Column of the table of graphs with the part.
        class_names (sequence, optional): Names of the classes, where they are known beforehand.

    Raises:
        DataError: At the first thing that is wrong, with file, line, what was expected and what was found.
    """
    path = Path(path)
    if path.is_dir():
        found = find_edge_list(path)
        if found is None:
            raise DataError(path, "a table edges.csv", "none")
        path = found
    companions = path.stem == "edges"
    graphs = graphs or (_beside(path.parent, "graphs") if companions else None)
    nodes = nodes or (_beside(path.parent, "nodes") if companions else None)
    edge_table = open_table(path)
    graph_table = None if graphs is None else open_table(graphs)
    node_table = None if nodes is None else open_table(nodes)
    if graph_table is None and (label or split):
        expected = f"a table of graphs with a column '{label or split}'"
        raise DataError(
            path, expected, "none", fix="Put graphs.csv beside edges.csv, or name it with graphs=…."
        )
    read = _graphs(graph_table, label)
    _read_nodes(read, node_table, closed=graph_table is not None)
    closed = None if graph_table is None and node_table is None else (graph_table or node_table)
    _read_edges(read, edge_table, closed, open_nodes=node_table is None)
    for name, graph in read.items():
        if not graph.nodes:
            where = (graph_table or edge_table).where
            raise DataError(where, f"nodes or edges of graph '{name}'", "none", line=graph.line)
    texts: dict[int, str] = {}
    columns = {
        "node_labels": _category(node_table, texts),
        "edge_labels": _category(edge_table, texts),
        "node_attributes": _numbers(node_table, ("graph", "node", "label")),
        "edge_attributes": _numbers(edge_table, (*EDGE_COLUMNS, "weight", "label")),
    }
    weight = None
    if edge_table.find_column("weight") is not None:
        weight = torch.tensor(edge_table.numbers("weight"), dtype=torch.float64)

    def pick(values: tuple[tuple[str, ...], Tensor] | None, rows: list[int]) -> Tensor | None:
        return None if values is None else values[1][rows]

    arrays = [
        GraphArrays(
            len(graph.nodes),
            torch.tensor(graph.edges, dtype=torch.long).reshape(-1, 2).T,
            graph.y,
            node_labels=pick(columns["node_labels"], graph.node_rows),
            node_attributes=pick(columns["node_attributes"], graph.node_rows),
            edge_labels=pick(columns["edge_labels"], graph.edge_rows),
            edge_attributes=pick(columns["edge_attributes"], graph.edge_rows),
            edge_weight=None if weight is None else weight[graph.edge_rows].float(),
        )
        for graph in read.values()
    ]
    parent = path.parent.resolve().name if companions else path.stem
    store = store_from_graphs(arrays, parent, class_names=class_names, owner="read_edge_list")
    parts = None
    if split is not None and graph_table is not None:
        parts = graph_table.column(split, filled=True)
    names = {key: values[0] if values else () for key, values in columns.items()}
    return StoreWithMetadata(store, GraphMetadata(tuple(read), parts, label_names=texts, columns=names))


def _graphs(table: Table | None, label: str | None) -> dict[str, _Graph]:
    read: dict[str, _Graph] = {}
    if table is None:
        return read
    names = table.column("graph", filled=True)
    chosen = label or ("label" if table.find_column("label") is not None else None)
    classes = None if chosen is None else table.classes(chosen)
    for row, (name, line) in enumerate(zip(names, table.lines, strict=True)):
        if name in read:
            raise DataError(table.where, "every graph once", f"'{name}' again", line=line)
        read[name] = _Graph(line, None if classes is None else classes[row])
    return read


def _read_nodes(read: dict[str, _Graph], table: Table | None, closed: bool) -> None:
    if table is None:
        return
    graphs, nodes = table.column("graph", filled=True), table.column("node", filled=True)
    for row, (name, node, line) in enumerate(zip(graphs, nodes, table.lines, strict=True)):
        if name not in read and closed:
            raise DataError(table.where, "a graph of the table of graphs", f"'{name}'", line=line)
        graph = read.setdefault(name, _Graph(line))
        if node in graph.nodes:
            raise DataError(table.where, f"every node of graph '{name}' once", f"'{node}' again", line=line)
        graph.nodes[node] = len(graph.nodes)
        graph.node_rows.append(row)


def _read_edges(read: dict[str, _Graph], table: Table, closed: Table | None, open_nodes: bool) -> None:
    graphs, sources, targets = (table.column(name, filled=True) for name in EDGE_COLUMNS)
    rows = zip(graphs, sources, targets, table.lines, strict=True)
    for row, (name, source, target, line) in enumerate(rows):
        if name not in read and closed is not None:
            raise DataError(table.where, f"a graph that {closed.where} lists", f"'{name}'", line=line)
        graph = read.setdefault(name, _Graph(line))
        for node in (source, target):
            if node not in graph.nodes:
                if not open_nodes:
                    expected = f"a node of graph '{name}' in the table of nodes"
                    raise DataError(table.where, expected, f"'{node}'", line=line)
                graph.nodes[node] = len(graph.nodes)
        graph.edges.append((graph.nodes[source], graph.nodes[target]))
        graph.edge_rows.append(row)


def _category(table: Table | None, texts: dict[int, str]) -> tuple[tuple[str, ...], Tensor] | None:
    """The column ``label`` as numbers, ``[rows, 1]``."""
    if table is None or table.find_column("label") is None:
        return None
    codes = [label_code(text, texts) for text in table.column("label", filled=True)]
    return ("label",), torch.tensor(codes, dtype=torch.long).reshape(-1, 1)


def _numbers(table: Table | None, taken: tuple[str, ...]) -> tuple[tuple[str, ...], Tensor] | None:
    """All columns that are not ``taken``, as numbers, ``[rows, columns]``."""
    # By name: a later file may have them in another order.
    names = sorted(name for name in table.columns if name.lower() not in taken) if table else []
    if table is None or not names:
        return None
    values = torch.tensor([table.numbers(name) for name in names], dtype=torch.float64).T
    return tuple(names), values.float() if bool(torch.isfinite(values.float()).all()) else values


def _beside(folder: Path, stem: str) -> Path | None:
    return next(
        (folder / f"{stem}{end}" for end in TABLE_SUFFIXES if (folder / f"{stem}{end}").is_file()), None
    )
