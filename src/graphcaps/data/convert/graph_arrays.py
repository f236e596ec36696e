"""Builds a store from graphs given as arrays; used by all converters and readers of single graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from torch import Tensor

from graphcaps.chemistry.featurizers import FEATURIZERS, has_codes
from graphcaps.data.class_names import class_name
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.ops.edges import clean_edges

__all__ = ["GraphArrays", "class_indices", "set_featurizer", "store_from_graphs"]

# Columns of a graph, and whether their rows are nodes or edges.
_COLUMNS = {
    "node_labels": "node",
    "node_attributes": "node",
    "edge_labels": "edge",
    "edge_attributes": "edge",
    "edge_weight": "edge",
}


@dataclass(frozen=True, eq=False)
class GraphArrays:
    """One graph as arrays, with edges as listed in the source.

    Args:
        num_nodes (int): Number of nodes n, 0 or more; a graph without nodes needs no columns.
        edge_index (Tensor): Listed edges, ``[2, E]``, with node indices from 0 to n − 1.
        y (int or str, optional): Class label of the graph.
        node_labels (Tensor, optional): Categorical labels, ``[n, L]``.
        node_attributes (Tensor, optional): Numerical attributes, ``[n, A]``.
        edge_labels (Tensor, optional): Categorical labels, ``[E, L]``.
        edge_attributes (Tensor, optional): Numerical attributes, ``[E, A]``.
        edge_weight (Tensor, optional): Weights, ``[E]``.
        truth (dict, optional): Ground truth of nodes that a model does not read, ``[n]`` each.
    """

    num_nodes: int
    edge_index: Tensor
    y: int | str | None = None
    node_labels: Tensor | None = None
    node_attributes: Tensor | None = None
    edge_labels: Tensor | None = None
    edge_attributes: Tensor | None = None
    edge_weight: Tensor | None = None
    truth: dict[str, Tensor] | None = None


def store_from_graphs(
    graphs: Sequence[GraphArrays],
    name: str = "graphs",
    *,
    class_names: Sequence[str] | None = None,
    label_names: dict[int, str] | None = None,
    source_columns: Mapping[str, Sequence[str]] | None = None,
    owner: str = "store_from_graphs",
) -> GraphStore:
    """Builds a store; edges are cleaned by :func:`graphcaps.ops.clean_edges`.

    Classes are indexed in ascending order of their labels (numbers by value, also if written as text) and named by
    :func:`graphcaps.data.class_names.class_name`. With ``class_names``, a class label is an index into these names, or
    one of them.

    Args:
        graphs (sequence): Graphs. A column is present in all of them or in none, with equal widths; graphs without
            nodes (edges) may leave out the columns of nodes (edges).
        name (str): Name of the store.
        class_names (sequence, optional): Names of the classes, if known beforehand.
        label_names (dict, optional): Text of the labels that are codes of text.
        source_columns (mapping, optional): Names of the label and attribute columns, as in :class:`GraphStore`; empty
            sequences, and names of columns that no graph has, are left out.
        owner (str): Name that error messages begin with.

    Raises:
        ArgumentError: If a graph is invalid, or its columns or class label do not match those of the others.
    """
    if not len(graphs):
        raise ArgumentError(owner, "graphs", "hold at least one graph", "none")
    for index, graph in enumerate(graphs):
        _check_graph(owner, index, graph)
    sizes = torch.tensor([graph.num_nodes for graph in graphs])
    node_ptr = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    rows = torch.tensor([graph.edge_index.size(1) for graph in graphs])
    edge_index = torch.cat([graph.edge_index.long() for graph in graphs], dim=1)
    edge_index = edge_index + node_ptr[:-1].repeat_interleave(rows)
    column = {entry: _column(owner, entry, graphs) for entry in _COLUMNS}
    edges = clean_edges(
        edge_index[0],
        edge_index[1],
        int(node_ptr[-1]),
        weight=column["edge_weight"],
        labels=column["edge_labels"],
        attributes=column["edge_attributes"],
    )
    y, names = class_indices(owner, [graph.y for graph in graphs], class_names)
    return GraphStore.from_clean_edges(
        name,
        node_ptr,
        edges,
        y=y,
        class_names=names,
        node_labels=column["node_labels"],
        node_attributes=column["node_attributes"],
        label_names=dict(label_names or {}),
        truth=_truth(owner, graphs),
        source_columns={
            entry: tuple(listed)
            for entry, listed in (source_columns or {}).items()
            if listed and column[entry] is not None
        },
    )


def set_featurizer(
    store: GraphStore, featurizers: Sequence[object], fragments: Sequence[object], owner: str
) -> GraphStore:
    """The store with the featurizer of its graphs, which came from a store of molecules.

    A featurizer that this package does not have belongs to another library and is ignored.

    Args:
        store (GraphStore): Graphs without a featurizer.
        featurizers, fragments (sequence): Name of the featurizer and of the fragments of each graph, as in
            :class:`GraphStore`; ``None`` for a graph without one.
        owner (str): Name that error messages begin with.

    Raises:
        ArgumentError: If only some graphs have a featurizer, theirs differ, or the labels are not codes of it.
    """
    known = [name if isinstance(name, str) and name in FEATURIZERS else None for name in featurizers]
    if not any(known):
        return store
    found = list(dict.fromkeys(known))
    if len(found) > 1:
        got = " and ".join("none" if name is None else repr(name) for name in found)
        raise ArgumentError(owner, "featurizer", "be the same in all graphs", got)
    featurizer = FEATURIZERS[str(found[0])]
    for kind, labels in (("node", store.node_labels), ("edge", store.edge_labels)):
        if labels is not None and not has_codes(featurizer, kind, labels):
            expected = f"name the featurizer of the labels, '{featurizer.name}'"
            raise ArgumentError(owner, "featurizer", expected, f"other {kind} labels")
    read = fragments[0] if len(set(fragments)) == 1 and fragments[0] in ("all", "largest") else None
    return replace(store, featurizer=featurizer.name, fragments=cast(Literal["all", "largest"] | None, read))


def _check_graph(owner: str, index: int, graph: GraphArrays) -> None:
    if graph.num_nodes < 0:
        raise ArgumentError(owner, "num_nodes", "be 0 or more", f"{graph.num_nodes} in graph {index}")
    edges = graph.edge_index
    if edges.dim() != 2 or edges.size(0) != 2:
        raise ArgumentError(owner, "edge_index", "have shape [2, E]", f"{list(edges.shape)} in graph {index}")
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < graph.num_nodes:
        wrong = int(edges.min()) if int(edges.min()) < 0 else int(edges.max())
        expected = f"hold node indices from 0 to {graph.num_nodes - 1} in graph {index}"
        if not graph.num_nodes:
            expected = f"be empty in graph {index}, which has no nodes"
        raise ArgumentError(owner, "edge_index", expected, wrong)
    for entry, kind in _COLUMNS.items():
        tensor = getattr(graph, entry)
        rows = graph.num_nodes if kind == "node" else edges.size(1)
        if tensor is None or not rows:
            continue
        if tensor.dim() != (1 if entry == "edge_weight" else 2) or tensor.size(0) != rows:
            shape = f"[{rows}]" if entry == "edge_weight" else f"[{rows}, columns]"
            raise ArgumentError(owner, entry, f"have shape {shape} in graph {index}", list(tensor.shape))
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ArgumentError(owner, entry, "hold finite numbers", f"NaN or infinity in graph {index}")


def _column(owner: str, entry: str, graphs: Sequence[GraphArrays]) -> Tensor | None:
    """One column of all graphs, concatenated; ``None`` if no graph has it."""
    # A graph without nodes (edges) needs no columns of nodes (edges), and libraries may leave them out.
    of_nodes = _COLUMNS[entry] == "node"
    rows = [graph.num_nodes if of_nodes else graph.edge_index.size(1) for graph in graphs]
    tensors = {index: getattr(graph, entry) for index, graph in enumerate(graphs) if rows[index]}
    first = next((index for index, tensor in tensors.items() if tensor is not None), None)
    if first is None:
        return None
    width = tensors[first].shape[1:]
    for index, tensor in tensors.items():
        if tensor is None:
            raise ArgumentError(
                owner,
                entry,
                f"be present in every graph, as in graph {first}, or in none",
                f"none in graph {index}",
            )
        if tensor.shape[1:] != width:
            raise ArgumentError(
                owner,
                entry,
                f"have {width[0]} {'column' if width[0] == 1 else 'columns'}, as in graph {first}",
                f"{tensor.size(1)} in graph {index}",
            )
    return torch.cat(list(tensors.values()))


def _truth(owner: str, graphs: Sequence[GraphArrays]) -> dict[str, Tensor]:
    tables = {index: graph.truth or {} for index, graph in enumerate(graphs) if graph.num_nodes}
    truth = {}
    for key in sorted({key for table in tables.values() for key in table}):
        for index, table in tables.items():
            value = table.get(key)
            if value is None or value.size(0) != graphs[index].num_nodes:
                raise ArgumentError(
                    owner, f"truth[{key!r}]", "have one entry per node", f"another number in graph {index}"
                )
        truth[key] = torch.cat([table[key] for table in tables.values()])
    return truth


def class_indices(
    owner: str, values: list[int | str | None], class_names: Sequence[str] | None
) -> tuple[Tensor | None, tuple[str, ...]]:
    """Class indices and class names of class labels, as in :func:`store_from_graphs`.

    Args:
        owner (str): Owner that messages name.
        values (list): Class label of each graph; ``None`` for a graph without one.
        class_names (sequence, optional): Names of the classes, if they are fixed in advance.

    Returns:
        tuple: Indices ``[G]``, or ``None`` if no graph has a class label; and the class names.

    Raises:
        ArgumentError: If only some graphs have a label, or a label is none of the class names.
    """
    missing = [index for index, value in enumerate(values) if value is None]
    if len(missing) == len(values):
        return None, tuple(class_names or ())
    if missing:
        raise ArgumentError(
            owner, "y", "be given for every graph or for none", f"none for graph {missing[0]}"
        )
    if class_names is None:
        names = [class_name(value) for value in values]
        ordered = sorted(set(names), key=_by_value)
        code = {name: index for index, name in enumerate(ordered)}
        return torch.tensor([code[name] for name in names]), tuple(ordered)
    code = {class_name(name): index for index, name in enumerate(class_names)}
    numbers = []
    for index, value in enumerate(values):
        number = code.get(class_name(value), -1) if isinstance(value, str) else value
        if number is None or not 0 <= number < len(class_names):
            raise ArgumentError(
                owner,
                "y",
                f"be one of {len(class_names)} class names",
                f"{value!r} for graph {index}",
            )
        numbers.append(number)
    return torch.tensor(numbers), tuple(class_names)


def _by_value(text: str) -> tuple[bool, float, str]:
    """Sort key: numbers first, by value, then other text."""
    try:
        number = float(text)
    except ValueError:
        return True, 0.0, text
    return (False, number, text) if math.isfinite(number) else (True, 0.0, text)
