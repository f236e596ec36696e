"""Whatever a user holds graphs in, read as one store, with the classes that stand in them."""

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
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["GraphInput", "as_store", "coerce_graphs", "concat_stores"]


def as_store(graphs: Any, *, attributes: bool = False, owner: str = "FittedModel") -> GraphStore:
    """A store from one graph or several, of one kind.

    Args:
        graphs: A ``GraphStore`` (handed back as it is), a torch-geometric ``Data`` or ``Batch``, a networkx
            graph, an iterable of ``Data`` or of networkx graphs, or SMILES (a text or a list of them, read by
            :func:`graphcaps.data.readers.molecules.from_smiles`). Node labels of networkx graphs stand in
            the entry ``label`` as whole numbers, as :func:`graphcaps.data.to_networkx` writes them; so do edge
            labels, where every edge has one.
        attributes (bool): Whether networkx nodes are asked for their entry ``attributes``. (default: False)
        owner (str): Who speaks in error messages.

    Raises:
        ArgumentError: If it is none of these, or a graph is not sound.
    """
    if isinstance(graphs, GraphStore):
        return graphs
    listed = _listed(graphs, owner)
    if not listed:
        raise ArgumentError(owner, "graphs", "hold at least one graph", "none")
    if all(isinstance(graph, str) for graph in listed):
        from graphcaps.data.readers.molecules import from_smiles

        return from_smiles(listed)
    if all(_is(graph, "networkx") for graph in listed):
        try:
            return from_networkx(
                listed,
                [None] * len(listed),  # type: ignore[list-item]
                node_attributes="attributes" if attributes else None,
                edge_label="label" if _labelled_edges(listed) else None,
                codes={},  # text would be numbered anew, and so differently from training
            )
        except ArgumentError as error:
            if error.name != "label" or error.fix:
                raise
            hint = "Convert text with from_networkx(graphs, codes=…), by the codes of the training graphs."
            raise ArgumentError(owner, "label", error.expected, error.got, hint) from error
    if all(_is(graph, "torch_geometric") for graph in listed):
        return from_pyg([_without_class(graph) for graph in listed])
    kinds = ", ".join(sorted({type(graph).__name__ for graph in listed}))
    raise ArgumentError(
        owner,
        "graphs",
        "be a GraphStore, torch-geometric Data, networkx graphs or SMILES, of one kind",
        kinds,
    )


def _listed(graphs: Any, owner: str) -> list[Any]:
    """One graph, or what an iterable of them holds."""
    if isinstance(graphs, str):
        return [graphs]
    to_list = getattr(graphs, "to_data_list", None)  # a torch-geometric Batch
    if _is(graphs, "torch_geometric") and callable(to_list):
        return list(to_list())
    if _is(graphs, "networkx") or _is(graphs, "torch_geometric"):
        return [graphs]
    try:
        return list(graphs)
    except TypeError:
        wanted = "be a GraphStore, torch-geometric Data, networkx graphs or SMILES"
        raise ArgumentError(owner, "graphs", wanted, type(graphs).__name__) from None


def _labelled_edges(graphs: list[Any]) -> bool:
    """Whether every edge of networkx graphs has a label that a store can hold; others are passed over."""
    labels = [entry.get("label") for graph in graphs for *_, entry in graph.edges(data=True)]
    return bool(labels) and all(isinstance(label, int) or _whole_numbers(label) for label in labels)


def _whole_numbers(label: Any) -> bool:
    return isinstance(label, tuple) and all(isinstance(value, int) for value in label)


def _is(graph: Any, library: str) -> bool:
    """Whether it is a graph of that library, or of a class derived from one; the library is not imported."""
    names = {"networkx": "Graph", "torch_geometric": "Data"}
    return any(
        kind.__module__.partition(".")[0] == library and kind.__name__ == names[library]
        for kind in type(graph).__mro__
    )


def _without_class(data: Any) -> Any:
    """A shallow copy without ``y``, which may hold anything where classes are not known yet."""
    if getattr(data, "y", None) is None:
        return data
    bare = copy.copy(data)
    bare.y = None
    return bare


_OWNER = "HGCNClassifier"
_KINDS = "be a GraphStore or a list of torch-geometric Data, networkx graphs or SMILES"


@dataclass(frozen=True, eq=False)
class GraphInput:
    """Graphs as a store without classes, and their classes where they carry them.

    Args:
        store (GraphStore): The graphs.
        y (ndarray, optional): Class of each, as the source has it: names of a store's classes, ``Data.y``,
            ``graph.graph["y"]``.
        codes (dict): Numbers that stand for node labels that are text.
        attributes (bool): Whether networkx nodes were asked for attributes.
    """

    store: GraphStore
    y: np.ndarray | None
    codes: dict[str, int]
    attributes: bool


def coerce_graphs(
    X: Any, *, codes: dict[str, int] | None = None, attributes: bool | None = None
) -> GraphInput:
    """Reads graphs to learn from, or, with the ``codes`` and ``attributes`` of those, graphs to classify.

    Raises:
        ArgumentError: If they are of no known kind or of several, or not sound.
    """
    if isinstance(X, GraphStore):
        return _from_store(X)
    if isinstance(X, np.ndarray) and X.dtype != object and X.dtype.kind not in "US":
        hint = "A graph is more than a row of numbers: see docs/estimator.md for what can be read."
        raise ArgumentError(_OWNER, "X", _KINDS, f"an array of shape {list(X.shape)}", hint)
    if isinstance(X, str):
        raise ArgumentError(_OWNER, "X", _KINDS, "one text", "Put it into a list.")
    listed = list(X) if _has_length(X) and not _is_one_graph(X) else X
    if isinstance(listed, list):
        if not listed:
            raise ArgumentError(_OWNER, "X", "hold at least one graph", "none")
        if all(isinstance(graph, str) for graph in listed):
            return _from_smiles(listed)
        if all(isinstance(graph, GraphStore) for graph in listed):  # what sklearn makes of a store it cuts up
            return _from_store(concat_stores(listed))
        if all(_kind(graph) == "networkx" for graph in listed):
            return _from_networkx(listed, codes, attributes)
        numbers = [graph for graph in listed if not _kind(graph)]
        if numbers:
            raise ArgumentError(_OWNER, "X", _KINDS, f"a list with {type(numbers[0]).__name__}")
    store = as_store(listed, owner=_OWNER)
    return GraphInput(store, _data_classes(listed), {}, False)


def concat_stores(stores: Sequence[GraphStore]) -> GraphStore:
    """One store of the graphs of several, which have the same columns and class names.

    Raises:
        ArgumentError: If they do not.
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
        found = [getattr(store, name) for store in stores]
        if any((value is None) != (found[0] is None) for value in found):
            raise ArgumentError(_OWNER, "X", f"hold stores that all have '{name}', or none", "both kinds")
        columns[name] = None if found[0] is None else torch.cat(found)
    if any(store.class_names != first.class_names for store in stores):
        raise ArgumentError(_OWNER, "X", "hold stores with the same class names", "others")
    return replace(
        first,
        node_ptr=offsets("node_ptr", "nodes"),
        edge_ptr=offsets("edge_ptr", "entries"),
        neighbours=torch.cat([store.neighbours for store in stores]),
        truth={},
        **columns,
    )


def _from_store(store: GraphStore) -> GraphInput:
    y = None if store.y is None else np.array(store.class_names)[store.y.cpu().numpy()]
    return GraphInput(store, y, {}, store.node_attributes is not None)


def _from_smiles(texts: list[str]) -> GraphInput:
    from graphcaps.data.readers.molecules import from_smiles

    store: GraphStore = from_smiles(texts)
    return GraphInput(replace(store, y=None, class_names=()), None, {}, store.node_attributes is not None)


def _from_networkx(graphs: list[Any], codes: dict[str, int] | None, attributes: bool | None) -> GraphInput:
    read_with: dict[Any, int]
    if codes is None:
        codes = read_with = node_label_codes(graphs)
    else:
        read_with = _codes_for(graphs, codes)
    if attributes is None:
        entries = [entry for graph in graphs for _, entry in graph.nodes(data=True)]
        attributes = any("attributes" in entry for entry in entries)
    store = from_networkx(
        graphs,
        [None] * len(graphs),  # type: ignore[list-item]
        node_attributes="attributes" if attributes else None,
        codes=read_with,
    )
    y = [graph.graph.get("y") for graph in graphs]
    return GraphInput(store, None if None in y else np.array(y), codes, attributes)


def _codes_for(graphs: list[Any], codes: dict[str, int]) -> dict[Any, int]:
    """Numbers for the node labels of graphs to classify, by the ``codes`` of the graphs that were learned from.

    A label that training never saw gets a number that no training label has, so that it is treated as any other
    such label. Without codes, labels were numbers, or read from a file, or there were none: text is then numbered
    as in files. The result is empty where labels can be read as they are.
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
        known = {value: label_code(value, {}) for value in values}
        return {value: code for value, code in known.items() if code is not None}
    strangers = {value: text_code(str(value)) for value in values if value not in codes}
    if strangers:
        shown = ", ".join(f"{value!r} (as {code})" for value, code in sorted(strangers.items(), key=str)[:3])
        more = ", …" if len(strangers) > 3 else ""
        warnings.warn(f"{_OWNER}: node labels that training never saw: {shown}{more}.", stacklevel=5)
    return codes | strangers


def _data_classes(graphs: Any) -> np.ndarray | None:
    """``Data.y`` of each graph where all have one whole number."""
    listed = graphs if isinstance(graphs, list) else graphs.to_data_list() if _is_batch(graphs) else [graphs]
    values = [getattr(graph, "y", None) for graph in listed]
    if any(value is None or torch.as_tensor(value).numel() != 1 for value in values):
        return None
    return np.array([torch.as_tensor(value).item() for value in values])


def _kind(graph: Any) -> str:
    """Library of a graph, "" for anything else; the library is not imported."""
    for kind in type(graph).__mro__:
        library = kind.__module__.partition(".")[0]
        if (library, kind.__name__) in (("networkx", "Graph"), ("torch_geometric", "Data")):
            return library
    return ""


def _is_one_graph(X: Any) -> bool:
    return bool(_kind(X))


def _is_batch(X: Any) -> bool:
    return callable(getattr(X, "to_data_list", None))


def _has_length(X: Any) -> bool:
    return hasattr(X, "__len__") or hasattr(X, "__iter__")
