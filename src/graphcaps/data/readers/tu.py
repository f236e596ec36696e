"""Reads data sets in the layout of the TU Dortmund collection, from a folder or a zip.

A data set NAME is a few text files. Nodes and graphs count from 1, over the whole data set:

* ``NAME_A.txt`` lists the edges, two node ids per row, and must not be empty;
* ``NAME_graph_indicator.txt`` gives the graph of each node: 1 first, then never less and never more than one
  above the row before, so that no graph is without nodes;
* ``NAME_graph_labels.txt`` gives the class of each graph. Where there is no such file the graphs have no
  classes (``y`` is ``None``): such a set can be predicted, not trained on;
* ``NAME_node_labels.txt``, ``NAME_node_attributes.txt``, ``NAME_edge_labels.txt`` and
  ``NAME_edge_attributes.txt`` are optional, a row per node or per row of ``NAME_A.txt``, with any number of
  columns;
* ``NAME_class_names.txt``, ``NAME_edge_weights.txt`` and ``NAME_truth_….txt`` are graphcaps' own addition, see
  :mod:`graphcaps.data.readers.tu_writer`. Other files, ``NAME_graph_attributes.txt`` among them, are not read.

Classes are the sorted distinct values, numbered from 0, or those of ``NAME_class_names.txt``. Labels are
whole numbers (3.0 is read as 3). Attributes are parsed as float64 and kept as float32, or as float64 where a
number exceeds float32's range. Edges are brought to the undirected, simple form of :mod:`graphcaps.ops.edges`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.readers.number_tables import read_integers, read_numbers
from graphcaps.data.readers.tu_archive import TRUTH_PREFIX, TUArchive
from graphcaps.data.readers.tu_writer import read_class_names
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError
from graphcaps.ops.edges import clean_edges

__all__ = ["check_edges", "check_indicator", "check_rows", "read_tu"]


_ROWS = 1 << 20  # rows looked at together, so that a large data set needs no second copy of its edges


def check_indicator(graph: NDArray, where: str) -> None:
    """Graphs of the nodes, ``[N]``, start at 1 and go up in steps of one."""
    if graph[0] != 1:
        raise DataError(where, "graph 1 on the first line", f"graph {graph[0]}", line=1)
    wrong = (graph[1:] < graph[:-1]) | (graph[1:] > graph[:-1] + 1)
    if wrong.any():
        row = int(wrong.argmax()) + 1
        before, here = int(graph[row - 1]), int(graph[row])
        trouble = "the numbers go backwards" if here < before else "a graph without nodes"
        raise DataError(where, f"graph {before} or {before + 1}", f"graph {here} ({trouble})", line=row + 1)


def check_rows(found: int, expected: int, unit: str, where: str) -> None:
    """A table has one row per graph, node or listed edge; the line is the first missing or surplus one."""
    if found != expected:
        raise DataError(where, f"{expected} rows, one per {unit}", f"{found}", line=min(found, expected) + 1)


def check_edges(edges: NDArray, graph: NDArray, where: str) -> None:
    """Edges, ``[E, 2]`` with ids from 1, join nodes that exist and lie in the same graph (``graph [N]``)."""
    for start in range(0, len(edges), _ROWS):
        block = edges[start : start + _ROWS]
        if block.min() < 1 or block.max() > len(graph):
            outside = (block < 1) | (block > len(graph))
            row, side = divmod(int(outside.argmax()), 2)
            expected = f"node ids from 1 to {len(graph)}"
            raise DataError(where, expected, int(block[row, side]), line=start + row + 1)
        ends = graph[block - 1]  # [rows, 2]
        across = ends[:, 0] != ends[:, 1]
        if across.any():
            row = int(across.argmax())
            source, target = block[row].tolist()
            first, second = ends[row].tolist()
            found = f"node {source} of graph {first} and node {target} of graph {second}"
            raise DataError(where, "two nodes of one graph", found, line=start + row + 1)


def read_tu(path: str | Path, name: str | None = None) -> GraphStore:
    """Reads the TU data set in a folder or zip.

    Args:
        path (str or Path): Folder or zip with the files, at its top or in a subfolder.
        name (str, optional): What the store is called. (default: the NAME of the files)

    Raises:
        DataError: At the first thing that is wrong, with file, line, what was expected and what was found.
    """
    with TUArchive(path) as archive:
        return _Reader(archive).store(name or archive.name)


class _Reader:
    """Reads the tables of one archive in the order in which each can be checked against the last."""

    def __init__(self, archive: TUArchive) -> None:
        self.archive = archive

    def store(self, name: str) -> GraphStore:
        graph = self._indicator()
        num_nodes, num_graphs = len(graph), int(graph[-1])
        y, class_names = self._classes(num_graphs)
        node_labels = self._labels("node_labels", num_nodes, "node")
        node_attributes = self._attributes("node_attributes", num_nodes, "node")
        edges = self._edges(graph)
        rows = len(edges)
        edge_labels = self._labels("edge_labels", rows, f"row of {self.archive.name}_A.txt")
        edge_attributes = self._attributes("edge_attributes", rows, f"row of {self.archive.name}_A.txt")
        weight = self._weights(rows)
        truth = {key: self._truth(key, num_nodes) for key in self.archive.truth()}

        node_ptr = np.zeros(num_graphs + 1, np.int64)
        np.cumsum(np.bincount(graph, minlength=num_graphs + 1)[1:], out=node_ptr[1:])
        source, target = (torch.from_numpy(edges[:, side] - 1) for side in (0, 1))
        del edges
        clean = clean_edges(
            source, target, num_nodes, weight=weight, labels=edge_labels, attributes=edge_attributes
        )
        del source, target
        if clean.weight is not None:
            clean = replace(clean, weight=_compact(clean.weight))
        if clean.attributes is not None:
            clean = replace(clean, attributes=_compact(clean.attributes))  # after the mean over repeated rows
        return GraphStore.from_clean_edges(
            name,
            torch.from_numpy(node_ptr),
            clean,
            y=y,
            class_names=class_names,
            node_labels=node_labels,
            node_attributes=None if node_attributes is None else _compact(node_attributes),
            truth=truth,
        )

    def _indicator(self) -> NDArray:
        """Graph of each node, from 1, ``[N]``."""
        self._member("A")  # a missing edge file is told before anything is read
        member = self._member("graph_indicator")
        where = self.archive.where(member)
        graph = read_integers(self.archive.pieces(member), where, "one graph number", columns=1)[:, 0]
        check_indicator(graph, where)
        return graph

    def _edges(self, graph: NDArray) -> NDArray:
        """The edges as listed, ids from 1, ``[E, 2]``."""
        member = self._member("A")
        where = self.archive.where(member)
        edges = read_integers(self.archive.pieces(member), where, "two node ids", columns=2)
        check_edges(edges, graph, where)
        return edges

    def _classes(self, num_graphs: int) -> tuple[Tensor | None, tuple[str, ...]]:
        names = self._class_names()
        member = self._optional("graph_labels")
        if member is None:
            return None, tuple(names.values())
        where = self.archive.where(member)
        values = read_integers(
            self.archive.pieces(member), where, "one class, a whole number", columns=1, integral_floats=True
        )
        check_rows(len(values), num_graphs, "graph", where)
        classes, y = np.unique(values[:, 0], return_inverse=True)
        if not names:
            return torch.from_numpy(y.astype(np.int64)), tuple(str(value) for value in classes.tolist())
        place = {value: index for index, value in enumerate(names)}
        for value in classes.tolist():
            if value not in place:
                line = int((values[:, 0] == value).argmax()) + 1
                raise DataError(where, f"a class of {self.archive.name}_class_names.txt", value, line=line)
        order = np.array([place[value] for value in classes.tolist()], np.int64)
        return torch.from_numpy(order[y]), tuple(names.values())

    def _class_names(self) -> dict[int, str]:
        member = self._optional("class_names")
        return (
            {}
            if member is None
            else read_class_names(self.archive.pieces(member), self.archive.where(member))
        )

    def _labels(self, table: str, rows: int, unit: str) -> Tensor | None:
        member = self._optional(table)
        if member is None:
            return None
        where = self.archive.where(member)
        labels = read_integers(
            self.archive.pieces(member), where, "labels, whole numbers", integral_floats=True
        )
        check_rows(len(labels), rows, unit, where)
        return torch.from_numpy(labels.astype(np.int64))

    def _attributes(self, table: str, rows: int, unit: str) -> Tensor | None:
        member = self._optional(table)
        if member is None:
            return None
        where = self.archive.where(member)
        values = read_numbers(self.archive.pieces(member), where, "numbers")
        check_rows(len(values), rows, unit, where)
        return torch.from_numpy(values)

    def _weights(self, rows: int) -> Tensor | None:
        member = self._optional("edge_weights")
        if member is None:
            return None
        where = self.archive.where(member)
        values = read_numbers(self.archive.pieces(member), where, "one number", columns=1)[:, 0]
        check_rows(len(values), rows, f"row of {self.archive.name}_A.txt", where)
        return torch.from_numpy(values)

    def _truth(self, key: str, num_nodes: int) -> Tensor:
        member = f"{self.archive.name}_{TRUTH_PREFIX}{key}.txt"
        where = self.archive.where(member)
        values = read_integers(self.archive.pieces(member), where, "one whole number", columns=1)[:, 0]
        check_rows(len(values), num_nodes, "node", where)
        return torch.from_numpy(values.astype(np.int64))

    def _optional(self, table: str) -> str | None:
        member = f"{self.archive.name}_{table}.txt"
        return member if member in self.archive.names() else None

    def _member(self, table: str) -> str:
        member = self._optional(table)
        if member is None:
            missing = f"{self.archive.name}_{table}.txt"
            raise DataError(self.archive.where(missing), "a file that every TU data set has", "no such file")
        return member


def _compact(values: Tensor) -> Tensor:
    """float64 as float32, unless a number is too large for it."""
    return values.float() if bool((values.abs() <= torch.finfo(torch.float32).max).all()) else values
