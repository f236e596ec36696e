"""Converts the graphs that a user passes to one ``GraphStore``.

:func:`as_store` gives the store alone, for graphs to classify. :func:`coerce_graphs` also gives the class labels that
the graphs carry and the codes of their text labels, which the estimator needs to learn from them.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.convert.networkx_graphs import from_networkx, node_label_codes
from graphcaps.data.convert.pyg_graphs import from_pyg
from graphcaps.data.label_encoding import label_code, text_code
from graphcaps.data.readers.molecules import from_smiles
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["GraphInput", "as_store", "coerce_graphs", "concat_stores"]

_ESTIMATOR = "HGCNClassifier"
_X_KINDS = "be a GraphStore or a list of torch-geometric Data, networkx graphs or SMILES"


# ---------------------------------------------------------------------- stores of graphs to classify
def as_store(graphs: Any, *, attributes: bool = False, owner: str = "FittedModel") -> GraphStore:
    """Converts one graph, or several of one kind, to a store.

    Args:
        graphs: A ``GraphStore`` (returned as it is), a torch-geometric ``Data`` or ``Batch``, a networkx graph, an
            iterable of ``Data`` or of networkx graphs, or SMILES (one string or a list). Node labels of networkx
            graphs are integers in the node attribute ``label``, as :func:`graphcaps.data.to_networkx` writes them;
            so are edge labels, where every edge has one.
        attributes (bool): Whether to read the node attribute ``attributes`` of networkx graphs. (default: False)
        owner (str): Name that error messages begin with.

    Raises:
        ArgumentError: If ``graphs`` is of no supported kind, or a graph is invalid.
    """
    if isinstance(graphs, GraphStore):
        return graphs
    graph_list = _to_list(graphs, owner)
    if not graph_list:
        raise ArgumentError(owner, "graphs", "hold at least one graph", "none")
    if all(isinstance(graph, str) for graph in graph_list):
        return from_smiles(graph_list)
    libraries = {_library(graph) for graph in graph_list}
    if libraries == {"networkx"}:
        return _networkx_store(graph_list, attributes, owner)
    if libraries == {"torch_geometric"}:
        return from_pyg([_without_y(graph) for graph in graph_list])
    expected = "be a GraphStore, torch-geometric Data, networkx graphs or SMILES, of one kind"
    raise ArgumentError(
        owner, "graphs", expected, ", ".join(sorted({type(graph).__name__ for graph in graph_list}))
    )


def _to_list(graphs: Any, owner: str) -> list[Any]:
    """One graph, or an iterable of graphs, as a list."""
    if isinstance(graphs, str):
        return [graphs]
    library = _library(graphs)
    if library == "torch_geometric" and _is_batch(graphs):
        return list(graphs.to_data_list())
    if library:
        return [graphs]
    try:
        return list(graphs)
    except TypeError:
        expected = "be a GraphStore, torch-geometric Data, networkx graphs or SMILES"
        raise ArgumentError(owner, "graphs", expected, type(graphs).__name__) from None


def _networkx_store(graphs: list[Any], attributes: bool, owner: str) -> GraphStore:
    try:
        return from_networkx(
            graphs,
            [None] * len(graphs),  # type: ignore[list-item]
            node_attributes="attributes" if attributes else None,
            edge_label="label" if _has_edge_labels(graphs) else None,
            codes={},  # new codes for text would differ from those of training
        )
    except ArgumentError as error:
        if error.name != "label" or error.fix:
            raise
        fix = "Convert text labels with from_networkx(graphs, codes=…) and the codes of the training graphs."
        raise ArgumentError(owner, "label", error.expected, error.got, fix) from error


def _has_edge_labels(graphs: list[Any]) -> bool:
    """Whether every edge of networkx graphs has an integer label, or a tuple of integers."""
    labels = [entry.get("label") for graph in graphs for *_, entry in graph.edges(data=True)]
    return bool(labels) and all(isinstance(label, int) or _is_integer_tuple(label) for label in labels)


def _is_integer_tuple(label: Any) -> bool:
    return isinstance(label, tuple) and all(isinstance(value, int) for value in label)


def _without_y(data: Any) -> Any:
    """A shallow copy without ``y``, which may hold anything in graphs to classify."""
    if getattr(data, "y", None) is None:
        return data
    unlabelled = copy.copy(data)
    unlabelled.y = None
    return unlabelled


# ---------------------------------------------------------------------- graphs with class labels and codes
@dataclass(frozen=True, eq=False)
class GraphInput:
    """Graphs that were passed to the estimator.

    Args:
        store (GraphStore): The graphs.
        y (ndarray, optional): Class label of each graph, from the class names of a store, ``Data.y`` or
            ``graph.graph["y"]``; ``None`` where a graph has none.
        codes (dict): Integer codes of text node labels.
        attributes (bool): Whether the nodes have attributes.
    """

    store: GraphStore
    y: np.ndarray | None
    codes: dict[str, int]
    attributes: bool


def coerce_graphs(
    X: Any, *, codes: dict[str, int] | None = None, attributes: bool | None = None
) -> GraphInput:
    """Converts graphs to train on or, with ``codes`` and ``attributes`` of the training graphs, to classify.

    Args:
        X: A ``GraphStore``, a list of stores, of ``Data``, of networkx graphs or of SMILES, or one ``Data``, ``Batch``
            or networkx graph.
        codes (dict, optional): Codes of the training graphs' text node labels. (default: new codes)
        attributes (bool, optional): Whether to read the attributes of networkx nodes. (default: where any node has
            them)

    Raises:
        ArgumentError: If the graphs are of no supported kind or of several, or a graph is invalid.
    """
    if isinstance(X, GraphStore):
        return _from_store(X)
    if isinstance(X, np.ndarray) and X.dtype != object and X.dtype.kind not in "US":
        fix = "Rows of numbers are not graphs; docs/estimator.md lists the supported kinds."
        raise ArgumentError(_ESTIMATOR, "X", _X_KINDS, f"an array of shape {list(X.shape)}", fix)
    if isinstance(X, str):
        raise ArgumentError(_ESTIMATOR, "X", _X_KINDS, "one string", "Put it into a list.")
    is_sequence = (hasattr(X, "__len__") or hasattr(X, "__iter__")) and not _library(X)
    graphs = list(X) if is_sequence else X
    if isinstance(graphs, list):
        if not graphs:
            raise ArgumentError(_ESTIMATOR, "X", "hold at least one graph", "none")
        if all(isinstance(graph, str) for graph in graphs):
            return _from_smiles(graphs)
        if all(
            isinstance(graph, GraphStore) for graph in graphs
        ):  # scikit-learn indexes a store graph by graph
            return _from_store(concat_stores(graphs))
        if all(_library(graph) == "networkx" for graph in graphs):
            return _from_networkx(graphs, codes, attributes)
        unsupported = [graph for graph in graphs if not _library(graph)]
        if unsupported:
            raise ArgumentError(_ESTIMATOR, "X", _X_KINDS, f"a list with {type(unsupported[0]).__name__}")
    store = as_store(graphs, owner=_ESTIMATOR)
    return GraphInput(store, _pyg_labels(graphs), {}, False)


def concat_stores(stores: Sequence[GraphStore]) -> GraphStore:
    """Concatenates stores with the same columns and class names; ``truth`` is dropped.

    Raises:
        ArgumentError: If columns or class names differ.
    """
    first = stores[0]
    if len(stores) == 1:
        return first

    def offsets(name: str, last: str) -> Tensor:
        parts, start = [first.node_ptr.new_zeros(1)], 0
        for store in stores:
            parts.append(getattr(store, name)[1:] + start)
            start += store.num_nodes if last == "nodes" else store.neighbours.numel()
        return torch.cat(parts)

    columns: dict[str, Any] = {}
    for name in (
        *("y", "node_labels", "node_attributes"),
        *("edge_labels", "edge_attributes", "edge_weight"),
    ):
        # A store without nodes (edges) may leave out the columns of nodes (edges).
        with_rows = [store for store in stores if _num_rows(store, name)] or stores
        tensors = [getattr(store, name) for store in with_rows]
        if any((tensor is None) != (tensors[0] is None) for tensor in tensors):
            expected = f"hold stores that all have '{name}', or none"
            raise ArgumentError(_ESTIMATOR, "X", expected, "stores with and without")
        columns[name] = None if tensors[0] is None else torch.cat(tensors)
    if any(store.class_names != first.class_names for store in stores):
        raise ArgumentError(_ESTIMATOR, "X", "hold stores with the same class names", "different ones")
    same_source = all(store.catalogue_name == first.catalogue_name for store in stores)
    return replace(
        first,
        catalogue_name=first.catalogue_name if same_source else None,
        node_ptr=offsets("node_ptr", "nodes"),
        edge_ptr=offsets("edge_ptr", "entries"),
        neighbours=torch.cat([store.neighbours for store in stores]),
        truth={},
        **columns,
    )


def _num_rows(store: GraphStore, column: str) -> int:
    """Number of rows of a column."""
    if column == "y":
        return len(store)
    return store.num_nodes if column.startswith("node") else store.neighbours.numel()


def _from_store(store: GraphStore) -> GraphInput:
    y = None if store.y is None else np.array(store.class_names)[store.y.cpu().numpy()]
    return GraphInput(store, y, {}, store.node_attributes is not None)


def _from_smiles(smiles: list[str]) -> GraphInput:
    store = from_smiles(smiles)
    return GraphInput(replace(store, y=None, class_names=()), None, {}, store.node_attributes is not None)


def _from_networkx(graphs: list[Any], codes: dict[str, int] | None, attributes: bool | None) -> GraphInput:
    codes_to_apply: dict[Any, int]
    if codes is None:
        codes = codes_to_apply = node_label_codes(graphs)
    else:
        codes_to_apply = _codes_with_unseen(graphs, codes)
    if attributes is None:
        entries = [entry for graph in graphs for _, entry in graph.nodes(data=True)]
        attributes = any("attributes" in entry for entry in entries)
    store = from_networkx(
        graphs,
        [None] * len(graphs),  # type: ignore[list-item]
        node_attributes="attributes" if attributes else None,
        codes=codes_to_apply,
    )
    y = [graph.graph.get("y") for graph in graphs]
    return GraphInput(store, None if None in y else np.array(y), codes, attributes)


def _codes_with_unseen(graphs: list[Any], codes: dict[str, int]) -> dict[Any, int]:
    """Codes of the node labels of graphs to classify, by the ``codes`` of the training graphs.

    A label that was not in the training graphs gets a code that no training label has, so that it is handled like
    any other unseen label. Without ``codes``, training labels were integers, were read from a file, or did not
    exist: text is then coded as in files. The result is empty where labels can be read as they are.
    """
    entries = [entry["label"] for graph in graphs for _, entry in graph.nodes(data=True) if "label" in entry]
    values = {
        value
        for entry in entries
        for value in (entry if isinstance(entry, list | tuple) else [entry])
        if isinstance(value, str | int | np.integer)
    }
    if not codes:
        if not any(isinstance(value, str) for value in values):
            return {}
        file_codes = {value: label_code(value, {}) for value in values}
        return {value: code for value, code in file_codes.items() if code is not None}
    unseen = {value: text_code(str(value)) for value in values if value not in codes}
    if unseen:
        shown = ", ".join(f"{value!r} (as {code})" for value, code in sorted(unseen.items(), key=str)[:3])
        more = ", …" if len(unseen) > 3 else ""
        warnings.warn(f"{_ESTIMATOR}: node labels not seen in training: {shown}{more}.", stacklevel=5)
    return codes | unseen


def _pyg_labels(graphs: Any) -> np.ndarray | None:
    """``Data.y`` of each graph where all have one value."""
    data_list = (
        graphs if isinstance(graphs, list) else graphs.to_data_list() if _is_batch(graphs) else [graphs]
    )
    values = [getattr(data, "y", None) for data in data_list]
    if any(value is None or torch.as_tensor(value).numel() != 1 for value in values):
        return None
    return np.array([torch.as_tensor(value).item() for value in values])


# ---------------------------------------------------------------------- kinds of graphs
def _library(graph: Any) -> str:
    """``"networkx"`` or ``"torch_geometric"`` for a graph of that library, else ""; imports neither."""
    for base in type(graph).__mro__:
        library = base.__module__.partition(".")[0]
        if (library, base.__name__) in (("networkx", "Graph"), ("torch_geometric", "Data")):
            return library
    return ""


def _is_batch(graphs: Any) -> bool:
    """Whether it is a torch-geometric ``Batch``."""
    return callable(getattr(graphs, "to_data_list", None))
