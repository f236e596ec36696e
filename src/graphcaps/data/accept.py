"""Whatever a caller holds graphs in, as a store of graphs to classify: their own classes are left aside."""

from __future__ import annotations

import copy
from typing import Any

from graphcaps.data.convert_networkx import from_networkx
from graphcaps.data.convert_pyg import from_pyg
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["as_store"]


def as_store(graphs: Any, *, attributes: bool = False, owner: str = "FittedModel") -> GraphStore:
    """A store from one graph or several, of one kind.

    Args:
        graphs: A ``GraphStore`` (handed back as it is), a torch-geometric ``Data`` or ``Batch``, a networkx
            graph, an iterable of ``Data`` or of networkx graphs, or SMILES (a text or a list of them, read by
            :func:`graphcaps.data.molecules.from_smiles`). Node labels of networkx graphs stand in
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
        from graphcaps.data.molecules import from_smiles

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
