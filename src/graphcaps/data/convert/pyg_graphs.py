"""From and to the graphs of torch-geometric.

=====================  ==========================================================================
torch-geometric        store
=====================  ==========================================================================
``x``                  ``node_attributes`` as numbers; one-hot columns are not recognised as labels
``edge_index``         edges, cleaned as everywhere; what was done stands in ``store.report``
``edge_weight``        ``edge_weight``
``edge_attr``          ``edge_attributes``; one number per edge (1-D, floating) is read as the weight
                       where there is no ``edge_weight``
``y``                  class of the graph, one whole number
``node_labels``        ``node_labels`` (our own entry, as :func:`to_pyg` writes it)
``edge_labels``        ``edge_labels`` (our own entry)
``truth_<key>``        ``truth[<key>]`` (our own entries)
=====================  ==========================================================================
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

# torch-geometric takes seconds to import: only those who convert pay for it.
if TYPE_CHECKING:
    from torch_geometric.data import Batch, Data

__all__ = ["from_pyg", "to_pyg"]

_TRUTH = "truth_"


def from_pyg(
    data: Data | Batch | Iterable[Data], name: str = "graphs", *, class_names: Sequence[str] | None = None
) -> GraphStore:
    """A store from a torch-geometric ``Data``, ``Batch``, data set or list of ``Data``.

    The number of nodes is ``num_nodes`` or the rows of a node entry; where there is neither it is read from
    the edges, which know nothing of isolated nodes behind the last one they name.

    Args:
        data (Data, Batch or iterable): Graphs, on any device; the store lies on the CPU.
        name (str): Name of the store.
        class_names (sequence, optional): Names of the classes 0, 1, …; else the values of ``y`` in ascending
            order are the classes and name them.

    Raises:
        ArgumentError: If a graph has no nodes, or entries, widths or classes that do not fit the others; the
            message names the graph.
    """
    from torch_geometric.data import Batch, Data

    if isinstance(data, Batch):
        graphs = data.to_data_list()
    elif isinstance(data, Data):
        graphs = [data]
    else:
        graphs = list(data)
    for index, graph in enumerate(graphs):
        if not isinstance(graph, Data):
            raise ArgumentError(
                "from_pyg", "data", "hold torch-geometric Data", f"{type(graph).__name__} at graph {index}"
            )
    arrays = [_read(index, graph) for index, graph in enumerate(graphs)]
    # Our own entries, which some graphs of a list may lack: graphs from SMILES beside others.
    shared = set.intersection(*(set(each.truth or {}) for each in arrays)) if arrays else set()
    arrays = [replace(each, truth={key: (each.truth or {})[key] for key in shared}) for each in arrays]
    return store_from_graphs(arrays, name, class_names=class_names, owner="from_pyg")


def to_pyg(
    store: GraphStore, graphs: Sequence[int] | Tensor | None = None, as_batch: bool = False
) -> list[Data] | Batch:
    """The named graphs (all where none are named) as a list of ``Data``, or as one ``Batch``.

    Every edge stands in both directions. ``y`` is the number of the class; the names stay in
    ``store.class_names``: ``from_pyg(to_pyg(store), class_names=store.class_names)`` gives the graphs back.
    """
    from torch_geometric.data import Batch, Data

    chosen = store if graphs is None else store[graphs]
    first, entry_ptr = chosen.node_ptr.tolist(), chosen.edge_ptr[chosen.node_ptr].tolist()
    source = torch.arange(chosen.num_nodes, device=chosen.device) - chosen.node_ptr[chosen.node_graph]
    edge_index = torch.stack([source.repeat_interleave(chosen.degree), chosen.neighbours.long()])
    node_entries: dict[str, Tensor | None] = {"x": chosen.node_attributes, "node_labels": chosen.node_labels}
    node_entries |= {_TRUTH + key: value for key, value in chosen.truth.items()}
    edge_entries = {
        "edge_attr": chosen.edge_attributes,
        "edge_labels": chosen.edge_labels,
        "edge_weight": chosen.edge_weight,
    }
    made = []
    for g in range(len(chosen)):
        nodes, entries = slice(first[g], first[g + 1]), slice(entry_ptr[g], entry_ptr[g + 1])
        parts: dict[str, Any] = {"edge_index": edge_index[:, entries], "num_nodes": first[g + 1] - first[g]}
        parts |= {key: value[nodes] for key, value in node_entries.items() if value is not None}
        parts |= {key: value[entries] for key, value in edge_entries.items() if value is not None}
        if chosen.y is not None:
            parts["y"] = chosen.y[g : g + 1]
        made.append(Data(**parts))
    return Batch.from_data_list(made) if as_batch else made


def _read(index: int, data: Data) -> GraphArrays:
    if "edge_index" not in data and ("adj_t" in data or "adj" in data):
        raise ArgumentError(
            "from_pyg", "data", "hold its edges as 'edge_index'", f"a matrix in graph {index}"
        )
    with warnings.catch_warnings():
        # It warns where it has to count nodes by the edges; the docstring says so.
        warnings.simplefilter("ignore")
        num_nodes = data.num_nodes or 0
    edges = _tensor(index, data, "edge_index")
    if edges is None:
        edges = torch.empty(2, 0, dtype=torch.long)
    weight, attributes = _tensor(index, data, "edge_weight"), _tensor(index, data, "edge_attr")
    if weight is None and attributes is not None and attributes.dim() == 1 and attributes.is_floating_point():
        weight, attributes = attributes, None
    return GraphArrays(
        num_nodes,
        edges,
        _class(index, data),
        node_labels=_matrix(_tensor(index, data, "node_labels")),
        node_attributes=_numbers(_matrix(_tensor(index, data, "x"))),
        edge_labels=_matrix(_tensor(index, data, "edge_labels")),
        edge_attributes=_numbers(_matrix(attributes)),
        edge_weight=_numbers(weight),
        truth={
            key.removeprefix(_TRUTH): value.detach().cpu()
            for key, value in data.to_dict().items()
            if key.startswith(_TRUTH) and isinstance(value, Tensor)
        },
    )


def _tensor(index: int, data: Data, key: str) -> Tensor | None:
    value = getattr(data, key, None)
    if value is None:
        return None
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        raise ArgumentError("from_pyg", key, "be a dense tensor", f"{type(value).__name__} in graph {index}")
    return value.detach().cpu()


def _matrix(value: Tensor | None) -> Tensor | None:
    return value.unsqueeze(-1) if value is not None and value.dim() == 1 else value


def _numbers(value: Tensor | None) -> Tensor | None:
    return value.float() if value is not None and not value.is_floating_point() else value


def _class(index: int, data: Data) -> int | None:
    value = getattr(data, "y", None)
    if value is None:
        return None
    value = torch.as_tensor(value)
    if value.numel() != 1:
        raise ArgumentError(
            "from_pyg", "y", "be one class per graph", f"{value.numel()} values in graph {index}"
        )
    number = value.item()
    if not float(number).is_integer():
        raise ArgumentError("from_pyg", "y", "be a whole number", f"{number} in graph {index}")
    return int(number)
