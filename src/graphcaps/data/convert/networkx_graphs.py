"""Conversion from and to networkx graphs.

Nodes are indexed in the order of the networkx graph. A directed graph lists each of its edges once, an undirected one
in both directions; parallel edges of a multigraph are repeated rows. Edges are then cleaned
(:func:`graphcaps.ops.clean_edges`), and ``store.report`` counts the changes.

Class labels may be text and become ``store.class_names``. Node and edge labels may be text too. A store holds integers,
so text is replaced by a code that depends on the text alone (:mod:`graphcaps.data.label_encoding`), and
``store.label_names`` keeps the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.convert.graph_arrays import GraphArrays, set_featurizer, store_from_graphs
from graphcaps.data.label_encoding import label_code
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

if TYPE_CHECKING:
    from networkx import Graph

__all__ = ["TRUTH_PREFIX", "attribute_key", "attribute_values", "from_networkx", "to_networkx"]

TRUTH_PREFIX = "truth_"
"""Prefix of the node attributes that hold ground truth, which no model reads."""

_OWNER = "from_networkx"
_UNNAMED = "attributes"  # attributes of a store whose columns have no names
_FEATURIZER, _FRAGMENTS = "featurizer", "fragments"  # graph attributes of molecules
_Rows = list[tuple[str, dict[str, Any]]]  # nodes or edges: description for messages, and networkx attributes


def from_networkx(
    graphs: Graph | Iterable[Graph],
    labels: Sequence[int | str] | Tensor | None = None,
    *,
    node_label: str | None = "label",
    node_attributes: str | Sequence[str] | None = None,
    edge_label: str | None = None,
    edge_attributes: str | Sequence[str] | None = None,
    weight: str | None = "weight",
    class_names: Sequence[str] | None = None,
    name: str = "graphs",
) -> GraphStore:
    """Converts networkx graphs, directed or not, simple or multigraphs, to a store.

    Args:
        graphs (Graph or iterable): One graph or several.
        labels (sequence, optional): Class label of each graph, integers or text. (default: ``graph.graph["y"]``)
        node_label (str, optional): networkx node attribute with a categorical label (an integer or text) or several;
            ignored if no node has it. (default: ``"label"``)
        node_attributes (str or sequence, optional): networkx node attributes with one number or several each.
        edge_label, edge_attributes (optional): The same for edges.
        weight (str, optional): networkx edge attribute with the weight, 1 for edges without it; ignored if no edge has
            it. (default: ``"weight"``)
        class_names (sequence, optional): Names of the classes, if known beforehand.
        name (str): Name of the store.

    Raises:
        ArgumentError: If an attribute is missing or not a number; the message names the graph and the node or edge.
    """
    graphs = _listed(graphs)
    if labels is None:
        classes = [graph.graph.get("y") for graph in graphs]
    else:
        classes = labels.tolist() if isinstance(labels, Tensor) else list(labels)
        if len(classes) != len(graphs):
            raise ArgumentError(
                _OWNER, "labels", f"hold one class label per graph, {len(graphs)}", len(classes)
            )
    if not any(node_label in entry for graph in graphs for _, entry in graph.nodes(data=True)):
        node_label = None
    truth = _truth_keys(graphs)
    names: dict[int, str] = {}
    rows = [_rows(graph) for graph in graphs]
    if not any(weight in entry for listed in rows for *_, entry in listed):
        weight = None
    arrays = []
    columns = _ColumnNames()
    for index, graph in enumerate(graphs):
        nodes = [(f"node {node!r}", entry) for node, entry in graph.nodes(data=True)]
        edges = [(f"edge {(a, b)!r}", entry) for a, b, _, _, entry in rows[index]]
        ends = [[row[2] for row in rows[index]], [row[3] for row in rows[index]]]
        columns.add("node_labels", index, _column_names(index, nodes, node_label))
        columns.add("node_attributes", index, _column_names(index, nodes, node_attributes))
        columns.add("edge_labels", index, _column_names(index, edges, edge_label))
        columns.add("edge_attributes", index, _column_names(index, edges, edge_attributes))
        arrays.append(
            GraphArrays(
                graph.number_of_nodes(),
                torch.tensor(ends, dtype=torch.long),
                _class(classes[index], index),
                node_labels=_categories(index, nodes, node_label, names),
                node_attributes=_numbers(index, nodes, node_attributes),
                edge_labels=_categories(index, edges, edge_label, names),
                edge_attributes=_numbers(index, edges, edge_attributes),
                edge_weight=_weights(index, edges, weight),
                truth={
                    key.removeprefix(TRUTH_PREFIX): torch.tensor(
                        [int(entry[key]) for _, entry in nodes], dtype=torch.long
                    )
                    for key in truth
                },
            )
        )
    store = store_from_graphs(
        arrays,
        name,
        class_names=class_names,
        label_names=names,
        source_columns=columns.names,
        owner=_OWNER,
    )
    return set_featurizer(
        store,
        [graph.graph.get(_FEATURIZER) for graph in graphs],
        [graph.graph.get(_FRAGMENTS) for graph in graphs],
        _OWNER,
    )


class _ColumnNames:
    """Names of the label and attribute columns, which all graphs that have any share.

    Attributes:
        names (dict): Names of the columns of each table.
    """

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, ...]] = {}
        self._graph_of: dict[str, int] = {}  # that the names are of

    def add(self, table: str, graph: int, names: tuple[str, ...]) -> None:
        """Adds the names in one graph.

        Raises:
            ArgumentError: If a graph before has others.
        """
        if not names:
            return
        shared = self.names.setdefault(table, names)
        first = self._graph_of.setdefault(table, graph)
        if shared != names:
            expected = f"be the same in all graphs, as {', '.join(shared)} in graph {first}"
            raise ArgumentError(_OWNER, table, expected, f"{', '.join(names)} in graph {graph}")


def to_networkx(store: GraphStore, graph: int) -> Graph:
    """Converts one graph of the store to networkx, with nodes 0 to n − 1.

    Node attributes are the label (an integer or text, or a tuple if there are several label columns), the attribute
    columns and ``truth_<key>``; edge attributes are the label, the attribute columns and ``weight``; the graph
    attribute ``y`` is the class name. Columns have their names in the source of the store. Without names the label is
    under ``label``, and the attributes are under ``attributes`` as a tuple. :func:`from_networkx` with these names
    restores the graph.

    Molecules from SMILES have the graph attributes ``featurizer`` and ``fragments``. :func:`from_networkx` reads them,
    so that a model reads the labels in the same way.
    """
    import networkx as nx

    if not isinstance(graph, int):
        raise ArgumentError("to_networkx", "graph", "be the index of one graph", repr(graph))
    one = store[graph].to("cpu")
    result = nx.Graph()
    if one.y is not None:
        result.graph["y"] = store.class_names[int(one.y[0])]
    for key, entry in ((_FEATURIZER, one.featurizer), (_FRAGMENTS, one.fragments)):
        if entry is not None:
            result.graph[key] = entry
    result.add_nodes_from(range(one.num_nodes))
    source = torch.arange(one.num_nodes).repeat_interleave(one.degree)
    upper = (source < one.neighbours).nonzero().squeeze(-1)  # each edge once
    edges = list(zip(source[upper].tolist(), one.neighbours[upper].tolist(), strict=True))
    result.add_edges_from(edges)

    def enter(columns: Any, keys: Iterable[Any], key: str, values: Tensor | None) -> None:
        if values is not None:
            for where, value in zip(keys, values.tolist(), strict=True):
                columns[where][key] = tuple(value) if isinstance(value, list) else value

    def enter_attributes(columns: Any, keys: list[Any], table: str, values: Tensor | None) -> None:
        names = store.column_names(table)
        if values is None or names is None:
            enter(columns, keys, _UNNAMED, values)
            return
        for name, column in zip(names, values.unbind(1), strict=True):
            enter(columns, keys, name, column)

    def enter_labels(columns: Any, keys: Iterable[Any], table: str, values: Tensor | None) -> None:
        key = attribute_key((store.column_names(table) or ("label",))[0])
        if values is not None:
            for where, codes in zip(keys, values.tolist(), strict=True):
                labels = tuple(store.label_names.get(code, code) for code in codes)
                columns[where][key] = labels[0] if len(labels) == 1 else labels

    def pick(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[upper]

    enter_labels(result.nodes, result.nodes, "node_labels", one.node_labels)
    enter_attributes(result.nodes, list(result.nodes), "node_attributes", one.node_attributes)
    for key, values in one.truth.items():
        enter(result.nodes, result.nodes, TRUTH_PREFIX + key, values)
    enter_labels(result.edges, edges, "edge_labels", pick(one.edge_labels))
    enter_attributes(result.edges, edges, "edge_attributes", pick(one.edge_attributes))
    enter(result.edges, edges, "weight", pick(one.edge_weight))
    return result


def _listed(graphs: Graph | Iterable[Graph]) -> list[Graph]:
    import networkx as nx

    listed = [graphs] if isinstance(graphs, nx.Graph) else list(graphs)
    for index, graph in enumerate(listed):
        if not isinstance(graph, nx.Graph):
            raise ArgumentError(
                _OWNER, "graphs", "hold networkx graphs", f"{type(graph).__name__} at graph {index}"
            )
    return listed


def _rows(graph: Graph) -> list[tuple[Any, Any, int, int, dict[str, Any]]]:
    """Listed edges: ends, node indices of the ends, attributes; undirected edges in both directions."""
    position = {node: index for index, node in enumerate(graph)}
    rows = [(a, b, position[a], position[b], entry) for a, b, entry in graph.edges(data=True)]
    if not graph.is_directed():
        rows += [(b, a, j, i, entry) for a, b, i, j, entry in rows if i != j]
    return rows


def _class(value: Any, index: int) -> int | str | None:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, str | bool):
        return value
    if _is_integer(value):
        return int(value)
    raise ArgumentError(_OWNER, "labels", "be integers or text", f"{value!r} for graph {index}")


def _truth_keys(graphs: list[Graph]) -> list[str]:
    """The attributes with ground truth that are integers of 64 bits on all nodes, sorted."""
    entries = [entry for graph in graphs for _, entry in graph.nodes(data=True)]
    keys = sorted({str(key) for entry in entries for key in entry if str(key).startswith(TRUTH_PREFIX)})
    return [key for key in keys if all(_is_int64(entry.get(key)) for entry in entries)]


def _categories(index: int, rows: _Rows, key: str | None, names: dict[int, str]) -> Tensor | None:
    """Labels of the nodes or edges of a graph as codes, ``[rows, columns]``; ``names`` receives text."""
    if key is None or not rows:
        return None
    table = []
    for where, entry in rows:
        line = []
        for value in attribute_values(_get(index, where, entry, key)):
            code = label_code(value, names)
            if code is None:
                got = f"{repr(value)[:80]} at {where} of graph {index}"
                raise ArgumentError(_OWNER, key, "be text or a whole number", got)
            line.append(code)
        table.append(line)
    return torch.tensor(_even(index, rows, key, table), dtype=torch.long)


def _numbers(index: int, rows: _Rows, keys: str | Sequence[str] | None) -> Tensor | None:
    """Numerical attributes of the nodes or edges of a graph, concatenated, ``[rows, columns]``."""
    if keys is None or not rows:
        return None
    table: list[list[float]] = [[] for _ in rows]
    for key in [keys] if isinstance(keys, str) else keys:
        column = [
            [_number(index, where, key, value) for value in attribute_values(_get(index, where, entry, key))]
            for where, entry in rows
        ]
        for line, values in zip(table, _even(index, rows, key, column), strict=True):
            line += values
    return _floats(table)


def _column_names(index: int, rows: _Rows, keys: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of the columns of some networkx attributes: ``mass``, or ``position[0]``, ``position[1]`` for a list."""
    if keys is None or not rows or keys == _UNNAMED or tuple(keys) == (_UNNAMED,):
        return ()
    where, entry = rows[0]
    names: list[str] = []
    for key in [keys] if isinstance(keys, str) else keys:
        width = len(attribute_values(_get(index, where, entry, key)))
        names += [str(key)] if width == 1 else [f"{key}[{column}]" for column in range(width)]
    return tuple(names)


def _weights(index: int, rows: _Rows, key: str | None) -> Tensor | None:
    if key is None or not rows:
        return None
    return _floats([_number(index, where, key, entry.get(key, 1.0)) for where, entry in rows])


def _get(index: int, where: str, entry: dict[str, Any], key: str) -> Any:
    if entry.get(key) is None:
        raise ArgumentError(
            _OWNER, key, "be present everywhere or nowhere", f"none at {where} of graph {index}"
        )
    return entry[key]


def _even(index: int, rows: _Rows, key: str, table: list[list[Any]]) -> list[list[Any]]:
    width = len(table[0])
    expected = f"hold {width} {'value' if width == 1 else 'values'}, as at {rows[0][0]}"
    for (where, _), line in zip(rows, table, strict=True):
        if len(line) != width:
            raise ArgumentError(_OWNER, key, expected, f"{len(line)} at {where} of graph {index}")
    return table


def _number(index: int, where: str, key: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:  # OverflowError: an integer of hundreds of digits
        raise ArgumentError(
            _OWNER, key, "be a number", f"{repr(value)[:80]} at {where} of graph {index}"
        ) from error


def _floats(values: list[Any]) -> Tensor:
    """float32, or float64 if a number exceeds the range of float32, as in the TU reader."""
    wide = torch.tensor(values, dtype=torch.float64)
    narrow = wide.float()
    return narrow if bool((torch.isfinite(narrow) == torch.isfinite(wide)).all()) else wide


def attribute_key(column: str) -> str:
    """The networkx attribute that a column was read from: ``position`` of ``position[1]``."""
    return re.sub(r"\[[0-9]+\]$", "", column)


def attribute_values(value: Any) -> list[Any]:
    """The values of a networkx attribute: one, or several in a tuple, list, array or tensor."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, list | tuple) else [value]


def _is_int64(value: Any) -> bool:
    return _is_integer(value) and -(2**63) <= int(value) < 2**63


def _is_integer(value: Any) -> bool:
    value = value.item() if hasattr(value, "item") else value
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
