"""Reads data sets in the format of the TU Dortmund collection, from a folder or a zip.

A data set NAME is a set of text files. Nodes and graphs are numbered from 1 over the whole data set:

* ``NAME_A.txt`` lists the edges, two node ids per row, and must not be empty.
* ``NAME_graph_indicator.txt`` has the graph of each node, in ascending order. A graph whose number does not occur has
  no nodes.
* ``NAME_graph_labels.txt`` has the class of each graph, and with it the number of graphs: classes after the last graph
  with nodes belong to graphs without nodes. Without this file the graphs have no classes (``y`` is ``None``): a model
  can predict them but not be trained on them.
* ``NAME_node_labels.txt``, ``NAME_node_attributes.txt``, ``NAME_edge_labels.txt`` and ``NAME_edge_attributes.txt`` are
  optional. They have a row per node or per row of ``NAME_A.txt``, with any number of columns.
* ``NAME_class_names.txt``, ``NAME_label_names.txt``, ``NAME_edge_weights.txt``, ``NAME_featurizer.txt`` and
  ``NAME_truth_….txt`` are additions of graphcaps, see :mod:`graphcaps.data.readers.tu_writer`. Other files, such as
  ``NAME_graph_attributes.txt``, are not read; a note names that one.

Classes are the sorted distinct values, numbered from 0, or those of ``NAME_class_names.txt``. Labels are integers (3.0
is read as 3). Attributes are parsed as float64 and stored as float32, or as float64 if a number exceeds the range of
float32. Edges are converted to the undirected, simple form of :mod:`graphcaps.ops.edges`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.chemistry.featurizers import FEATURIZERS, has_codes
from graphcaps.data.readers.number_tables import MemoryBudget, read_integers, read_numbers
from graphcaps.data.readers.tu_archive import TRUTH_PREFIX, TUArchive
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError
from graphcaps.ops.edges import clean_edges

__all__ = ["read_tu"]

_MAX_GRAPHS_PER_NODE = 1000  # without a file of classes: a larger number is a mistake, not a graph
# Bytes that reading takes per byte of a parsed table, measured: its copies while edges are sorted and merged included.
_NODE_FACTOR, _EDGE_FACTOR, _COLUMN_FACTOR = 10, 8, 4
_MAX_NAMES = 1 << 24  # bytes of a file of names; a name takes up to 100 bytes more than its text
_BLOCK_ROWS = 1 << 20  # rows that are checked at once, so that no second copy of all edges is needed


def read_tu(path: str | Path, name: str | None = None) -> GraphStore:
    """Reads the TU data set in a folder or zip.

    Args:
        path (str or Path): Folder or zip with the files, at the top or in a subfolder.
        name (str, optional): Name of the store. (default: the NAME of the files)

    Raises:
        DataError: At the first error, with file, line, what was expected and what was found.
    """
    with TUArchive(path) as archive:
        try:
            return _Reader(archive).store(name or archive.name)
        except DataError as error:
            if error.line is None or not archive.is_link(error.where):
                raise
            # The link may lead to any file of this machine: its content is not for messages, which others may see.
            raise DataError(
                error.where, error.expected, "other content in a linked file", line=error.line
            ) from None


class _Reader:
    """Reads the tables of one archive, each in an order in which it can be checked against the previous ones."""

    def __init__(self, archive: TUArchive) -> None:
        self.archive = archive
        self._memory = MemoryBudget()

    def _budget(self, factor: int) -> MemoryBudget:
        """The budget of all tables, for one whose bytes are multiplied by ``factor`` until the store is built."""
        self._memory.factor = factor
        return self._memory

    def store(self, name: str) -> GraphStore:
        graph = self._indicator()
        num_nodes = len(graph)
        y, class_names = self._classes(int(graph[-1]))
        num_graphs = int(graph[-1]) if y is None else len(y)
        self._budget(_NODE_FACTOR).add(4 * num_graphs, str(self.archive.path))
        label_names = self._label_names()
        node_labels = self._labels("node_labels", num_nodes, "node")
        node_attributes = self._attributes("node_attributes", num_nodes, "node")
        edges = self._edges(graph)
        rows = len(edges)
        edge_labels = self._labels("edge_labels", rows, f"row of {self.archive.name}_A.txt")
        edge_attributes = self._attributes("edge_attributes", rows, f"row of {self.archive.name}_A.txt")
        weight = self._weights(rows)
        truth = {key: self._truth(key, num_nodes) for key in self.archive.truth_keys()}

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
            label_names=label_names,
            node_labels=node_labels,
            node_attributes=None if node_attributes is None else _compact(node_attributes),
            truth=truth,
            featurizer=self._featurizer(node_labels, edge_labels),
        )

    def _indicator(self) -> NDArray:
        """Graph of each node, from 1, ``[N]``."""
        self._member("A")  # reports a missing edge file before anything is parsed
        member = self._member("graph_indicator")
        where = self.archive.where(member)
        graph = read_integers(
            self.archive.chunks(member),
            where,
            "one graph number",
            columns=1,
            budget=self._budget(_NODE_FACTOR),
        )[:, 0]
        _check_indicator(graph, where, has_classes=self._optional("graph_labels") is not None)
        return graph

    def _edges(self, graph: NDArray) -> NDArray:
        """The edges as listed, ids from 1, ``[E, 2]``."""
        member = self._member("A")
        where = self.archive.where(member)
        merged = any(self._optional(f"edge_{kind}") for kind in ("labels", "attributes", "weights"))
        budget = self._budget(_EDGE_FACTOR * (2 if merged else 1))
        edges = read_integers(self.archive.chunks(member), where, "two node ids", columns=2, budget=budget)
        _check_edges(edges, graph, where)
        return edges

    def _classes(self, last_graph: int) -> tuple[Tensor | None, tuple[str, ...]]:
        """Class of each graph, ``[G]`` with G at least ``last_graph``, the last graph with nodes; and class names."""
        names = self._class_names()
        member = self._optional("graph_labels")
        if member is None:
            return None, tuple(names.values())
        where = self.archive.where(member)
        values = read_integers(
            self.archive.chunks(member),
            where,
            "one class, an integer",
            columns=1,
            integral_floats=True,
            budget=self._budget(_NODE_FACTOR),
        )
        if len(values) < last_graph:
            _check_rows(len(values), last_graph, "graph", where)
        classes, y = np.unique(values[:, 0], return_inverse=True)
        if not names:
            return torch.from_numpy(y.astype(np.int64)), tuple(str(value) for value in classes.tolist())
        index_of = {value: index for index, value in enumerate(names)}
        for value in classes.tolist():
            if value not in index_of:
                line = int((values[:, 0] == value).argmax()) + 1
                raise DataError(where, f"a class of {self.archive.name}_class_names.txt", value, line=line)
        order = np.array([index_of[value] for value in classes.tolist()], np.int64)
        return torch.from_numpy(order[y]), tuple(names.values())

    def _class_names(self) -> dict[int, str]:
        member = self._optional("class_names")
        return (
            {}
            if member is None
            else _read_class_names(self.archive.chunks(member), self.archive.where(member))
        )

    def _label_names(self) -> dict[int, str]:
        member = self._optional("label_names")
        return (
            {}
            if member is None
            else _read_label_names(self.archive.chunks(member), self.archive.where(member))
        )

    def _featurizer(self, node_labels: Tensor | None, edge_labels: Tensor | None) -> str | None:
        """Name of the featurizer of the labels, which must be known and have their columns."""
        member = self._optional("featurizer")
        if member is None:
            return None
        where = self.archive.where(member)
        name = _join(self.archive.chunks(member), where).decode("utf-8", "replace").strip()
        if name not in FEATURIZERS:
            raise DataError(where, f"one of the featurizers {', '.join(FEATURIZERS)}", repr(name[:60]))
        for kind, labels in (("node", node_labels), ("edge", edge_labels)):
            if labels is None or not has_codes(FEATURIZERS[name], kind, labels):
                raise DataError(where, f"{kind} labels of the featurizer {name}", "others")
        return name

    def _labels(self, table: str, rows: int, unit: str) -> Tensor | None:
        member = self._optional(table)
        if member is None:
            return None
        where = self.archive.where(member)
        budget = self._budget(_COLUMN_FACTOR)
        labels = read_integers(
            self.archive.chunks(member), where, "integer labels", integral_floats=True, budget=budget
        )
        _check_rows(len(labels), rows, unit, where)
        return torch.from_numpy(labels.astype(np.int64))

    def _attributes(self, table: str, rows: int, unit: str) -> Tensor | None:
        member = self._optional(table)
        if member is None:
            return None
        where = self.archive.where(member)
        budget = self._budget(_COLUMN_FACTOR)
        values = read_numbers(self.archive.chunks(member), where, "numbers", budget=budget)
        _check_rows(len(values), rows, unit, where)
        return torch.from_numpy(values)

    def _weights(self, rows: int) -> Tensor | None:
        member = self._optional("edge_weights")
        if member is None:
            return None
        where = self.archive.where(member)
        budget = self._budget(_COLUMN_FACTOR)
        values = read_numbers(self.archive.chunks(member), where, "one number", columns=1, budget=budget)[
            :, 0
        ]
        _check_rows(len(values), rows, f"row of {self.archive.name}_A.txt", where)
        return torch.from_numpy(values)

    def _truth(self, key: str, num_nodes: int) -> Tensor:
        member = f"{self.archive.name}_{TRUTH_PREFIX}{key}.txt"
        where = self.archive.where(member)
        budget = self._budget(_COLUMN_FACTOR)
        values = read_integers(self.archive.chunks(member), where, "one integer", columns=1, budget=budget)[
            :, 0
        ]
        _check_rows(len(values), num_nodes, "node", where)
        return torch.from_numpy(values.astype(np.int64))

    def _optional(self, table: str) -> str | None:
        member = f"{self.archive.name}_{table}.txt"
        return member if member in self.archive.names() else None

    def _member(self, table: str) -> str:
        member = self._optional(table)
        if member is None:
            missing = self.archive.where(f"{self.archive.name}_{table}.txt")
            raise DataError(missing, "file not found", fix="Every TU data set has this file.")
        return member


def _compact(values: Tensor) -> Tensor:
    """Converts to float32, unless a number exceeds its range."""
    return values.float() if bool((values.abs() <= torch.finfo(torch.float32).max).all()) else values


def _read_class_names(chunks: Iterable[bytes], where: str) -> dict[int, str]:
    """Class names by class number, in the order of the file.

    Raises:
        DataError: If the file is empty, or at an invalid line or a repeated number or name.
    """
    names: dict[int, str] = {}
    seen: set[str] = set()
    for number, label, name in _numbered_names(chunks, where, "a class, a comma and its name"):
        if label in names:
            raise DataError(where, "every class once", f"class {label} again", line=number)
        if name in seen:
            raise DataError(where, "every name once", f"{name!r} again", line=number)
        seen.add(name)
        names[label] = name
    return names


def _read_label_names(chunks: Iterable[bytes], where: str) -> dict[int, str]:
    """Text of labels by code.

    Raises:
        DataError: If the file is empty, or at an invalid line or a repeated code.
    """
    names: dict[int, str] = {}
    expected = "a code, a comma and its text in double quotes"
    for number, code, quoted in _numbered_names(chunks, where, expected):
        try:
            text = json.loads(quoted) if quoted.startswith('"') else None
        except ValueError:
            text = None
        if text is None:
            raise DataError(where, expected, repr(f"{code}, {quoted}"[:80]), line=number)
        if code in names:
            raise DataError(where, "every code once", f"code {code} again", line=number)
        names[code] = text
    return names


def _join(chunks: Iterable[bytes], where: str) -> bytes:
    """The content of a small file.

    Raises:
        DataError: If it has more than 16 MB.
    """
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > _MAX_NAMES:
            raise DataError(where, f"at most {_MAX_NAMES:,} bytes of names", "more")
    return bytes(content)


def _numbered_names(chunks: Iterable[bytes], where: str, expected: str) -> Iterator[tuple[int, int, str]]:
    """Lines of an integer, a comma and a name without blanks at its ends: the line's number, the integer and the name.

    Raises:
        DataError: If the file is not UTF-8, or at a line that is not ``expected``.
    """
    try:
        text = _join(chunks, where).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(where, "text in UTF-8", "other bytes") from error
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), start=1):
        value, comma, name = line.partition(",")
        try:
            integer = int(value)
        except ValueError:
            integer = None
        if integer is None or not comma or not name.strip():
            raise DataError(where, expected, repr(line.rstrip("\r")[:80]), line=number)
        yield number, integer, name.strip()


def _check_indicator(graph: NDArray, where: str, *, has_classes: bool) -> None:
    """Checks that the graphs of the nodes, ``[N]``, ascend from 1 or more, and that there are not absurdly many."""
    if graph[0] < 1:
        raise DataError(where, "graph numbers from 1", f"graph {graph[0]}", line=1)
    wrong = graph[1:] < graph[:-1]
    if wrong.any():
        row = int(wrong.argmax()) + 1
        before, here = int(graph[row - 1]), int(graph[row])
        found = f"graph {here} (numbers must not decrease)"
        raise DataError(where, f"graph {before} or a later one", found, line=row + 1)
    limit = _MAX_GRAPHS_PER_NODE * len(graph)
    if not has_classes and graph[-1] > limit:  # otherwise the classes limit the number of graphs
        row = int((graph > limit).argmax())
        raise DataError(where, f"graph numbers up to {limit}", f"graph {graph[row]}", line=row + 1)


def _check_rows(found: int, expected: int, unit: str, where: str) -> None:
    """Checks that a table has one row per graph, node or listed edge; the line is the first missing or extra one."""
    if found != expected:
        raise DataError(where, f"{expected} rows, one per {unit}", f"{found}", line=min(found, expected) + 1)


def _check_edges(edges: NDArray, graph: NDArray, where: str) -> None:
    """Checks that edges, ``[E, 2]`` with ids from 1, connect existing nodes of the same graph (``graph [N]``)."""
    for start in range(0, len(edges), _BLOCK_ROWS):
        block = edges[start : start + _BLOCK_ROWS]
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
