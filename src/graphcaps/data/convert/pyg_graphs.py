"""Conversion from and to torch-geometric graphs.

=====================  ==========================================================================
torch-geometric        store
=====================  ==========================================================================
``x``                  ``node_attributes`` as numbers; one-hot columns are not recognised as labels
``edge_index``         edges, cleaned; ``store.report`` counts the changes, and a warning counts edges that are
                       listed in one direction only
``edge_weight``        ``edge_weight``; a warning counts edges with other values in one direction than in the other
``edge_attr``          integers and one-hot rows: ``edge_labels``, unless there are ``edge_labels``; one number
                       per edge (1-D, floating): ``edge_weight``, unless there is one; other numbers:
                       ``edge_attributes``, which no model uses
``y``                  class label of the graph, one integer or text
``node_labels``        ``node_labels``: a tensor (as :func:`to_pyg` writes it), or a list of integers and text
``edge_labels``        ``edge_labels``, likewise
``truth_<key>``        ``truth[<key>]`` (as :func:`to_pyg` writes them)
``featurizer``,        ``featurizer`` and ``fragments`` of molecules from SMILES (as :func:`to_pyg` writes them)
``fragments``
=====================  ==========================================================================

``edge_attr`` is read in the same way in all graphs of a call: as labels only if it holds integers or one-hot rows in
every graph. Other tensors of nodes and edges are not read; a warning names them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from graphcaps.data.convert.graph_arrays import GraphArrays, set_featurizer, store_from_graphs
from graphcaps.data.features.compatibility import UnseenPolicy, check_graphs
from graphcaps.data.label_encoding import label_code
from graphcaps.data.readers.graph_metadata import warn_of_notes
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

# torch-geometric takes seconds to import, so it is imported only on conversion.
if TYPE_CHECKING:
    from torch_geometric.data import Batch, Data

    from graphcaps.data.features.recipe import FeatureRecipe

__all__ = ["from_pyg", "read_pyg", "to_pyg"]

_TRUTH = "truth_"
_OWNER = "from_pyg"
_MOLECULE_ENTRIES = ("featurizer", "fragments")


def from_pyg(
    data: Data | Batch | Iterable[Data], name: str = "graphs", *, class_names: Sequence[str] | None = None
) -> GraphStore:
    """Converts a torch-geometric ``Data``, ``Batch``, data set or list of ``Data`` to a store.

    The number of nodes is ``num_nodes`` or the rows of a node tensor. Without either it is the largest index in
    ``edge_index`` plus 1, which misses isolated nodes with larger indices.

    Args:
        data (Data, Batch or iterable): Graphs on any device; the store is on the CPU.
        name (str): Name of the store.
        class_names (sequence, optional): Names of the classes 0, 1, …. (default: the distinct values of ``y``,
            ascending)

    Warns:
        ReadingWarning: Once for each note on what is not read.

    Raises:
        ArgumentError: If the tensors or the class label of a graph do not match those of the others; the message names
            the graph.
    """
    store, notes = read_pyg(data, name, class_names=class_names)
    warn_of_notes(_OWNER, notes)
    return store


def read_pyg(
    data: Data | Batch | Iterable[Data], name: str = "graphs", *, class_names: Sequence[str] | None = None
) -> tuple[GraphStore, list[str]]:
    """Converts as :func:`from_pyg` does, and returns the notes instead of warnings, one sentence each."""
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
                _OWNER, "data", "hold torch-geometric Data", f"{type(graph).__name__} at graph {index}"
            )
    names: dict[int, str] = {}
    use = _edge_attr_use(graphs)
    arrays = [_read(index, graph, names, use) for index, graph in enumerate(graphs)]
    # Ground truth that not all graphs have is dropped, as for graphs from SMILES among others.
    tables = [set(each.truth or {}) for each in arrays if each.num_nodes]
    shared = set.intersection(*tables) if tables else set()
    arrays = [
        replace(each, truth={key: value for key, value in (each.truth or {}).items() if key in shared})
        for each in arrays
    ]
    store = store_from_graphs(arrays, name, class_names=class_names, label_names=names, owner=_OWNER)
    featurizers, fragments = ([data.to_dict().get(key) for data in graphs] for key in _MOLECULE_ENTRIES)
    store = set_featurizer(store, featurizers, fragments, _OWNER)
    notes = _unread(graphs)
    if one_way := store.report.one_way:
        subject = "1 edge is" if one_way == 1 else f"{one_way:,} edges are"
        notes.append(f"{subject} listed in one direction only; edges are read as undirected.")
    notes += _asymmetric(arrays, store.report.conflicting_labels)
    return store, notes


def to_pyg(
    store: GraphStore,
    graphs: Sequence[int] | Tensor | None = None,
    as_batch: bool = False,
    *,
    recipe: FeatureRecipe | None = None,
    unseen: UnseenPolicy = "refuse",
) -> list[Data] | Batch:
    """Converts graphs of a store to a list of ``Data`` or to one ``Batch``.

    Every edge is listed in both directions. ``y`` is the class index; names are in ``store.class_names``, so that
    ``from_pyg(to_pyg(store), class_names=store.class_names)`` restores the graphs, but not the names of attribute
    columns, the text of labels and SMILES.

    Args:
        store (GraphStore): Graphs.
        graphs (sequence, optional): Indices of the graphs. (default: all)
        as_batch (bool): Whether to return a ``Batch``. (default: False)
        recipe (FeatureRecipe, optional): A fitted recipe: ``x`` is then what a model reads, the input columns, and
            ``edge_attr`` the index of each edge's label, −1 for one that was not in training, if the recipe reads
            them in messages. Labels and ground truth are left out. (default: attributes and labels as they are)
        unseen (str): With ``recipe``: labels that were not in training are an error with ``"refuse"``, and no column
            of ``x`` with ``"ignore"``. (default: ``"refuse"``)

    Raises:
        ArgumentError: If the recipe is not fitted or does not fit the graphs.
    """
    from torch_geometric.data import Batch, Data

    selected = store if graphs is None else store[graphs]
    if recipe is not None:
        checked = check_graphs(selected, recipe, unseen=unseen, owner="to_pyg", argument="store")
        selected = _encoded(checked.require(), recipe)
    first, entry_ptr = selected.node_ptr.tolist(), selected.edge_ptr[selected.node_ptr].tolist()
    source = torch.arange(selected.num_nodes, device=selected.device) - selected.node_ptr[selected.node_graph]
    edge_index = torch.stack([source.repeat_interleave(selected.degree), selected.neighbours.long()])
    node_entries: dict[str, Tensor | None] = {
        "x": selected.node_attributes,
        "node_labels": _as_long(selected.node_labels),
    }
    node_entries |= {_TRUTH + key: _as_long(value) for key, value in selected.truth.items()}
    edge_entries = {
        "edge_attr": selected.edge_attributes,
        "edge_labels": _as_long(selected.edge_labels),
        "edge_weight": selected.edge_weight,
    }
    data_list = []
    for g in range(len(selected)):
        nodes, entries = slice(first[g], first[g + 1]), slice(entry_ptr[g], entry_ptr[g + 1])
        parts: dict[str, Any] = {"edge_index": edge_index[:, entries], "num_nodes": first[g + 1] - first[g]}
        parts |= {key: value[nodes] for key, value in node_entries.items() if value is not None}
        parts |= {key: value[entries] for key, value in edge_entries.items() if value is not None}
        if selected.y is not None:
            parts["y"] = selected.y[g : g + 1]
        molecule = dict(zip(_MOLECULE_ENTRIES, (selected.featurizer, selected.fragments), strict=True))
        parts |= {key: entry for key, entry in molecule.items() if entry is not None}
        data_list.append(Data(**parts))
    return Batch.from_data_list(data_list) if as_batch else data_list


def _as_long(values: Tensor | None) -> Tensor | None:
    """Integers of any width as torch-geometric has them, 64 bits wide; other numbers as they are."""
    return values if values is None or values.is_floating_point() else values.long()


def _encoded(store: GraphStore, recipe: FeatureRecipe) -> GraphStore:
    """The graphs with the input columns of a recipe as node attributes and label indices as edge attributes."""
    return replace(
        store,
        node_attributes=recipe.encode(store),
        edge_attributes=recipe.edge_attr(store),
        node_labels=None,
        edge_labels=None,
        truth={},
        featurizer=None,
        fragments=None,
        source_columns={},
    )


_EdgeAttrUse = Literal["one-hot", "labels", "weight", "attributes"]
_READ = {
    "x",
    "edge_index",
    "edge_weight",
    "edge_attr",
    "y",
    "node_labels",
    "edge_labels",
    "num_nodes",
    "batch",
    "ptr",
}


def _edge_attr_use(graphs: Sequence[Data]) -> _EdgeAttrUse:
    """What ``edge_attr`` is in all graphs that have edges: one-hot labels, integer labels, a weight or numbers."""
    tensors = [
        data.edge_attr for data in graphs if isinstance(data.edge_attr, Tensor) and data.edge_attr.numel()
    ]
    has_labels = any("edge_labels" in data and data.edge_labels is not None for data in graphs)
    has_weight = any("edge_weight" in data and data.edge_weight is not None for data in graphs)
    if tensors and not has_labels and all(_is_one_hot(tensor) for tensor in tensors):
        return "one-hot"
    if tensors and not has_labels and not any(tensor.is_floating_point() for tensor in tensors):
        return "labels"
    is_weight = all(tensor.dim() == 1 and tensor.is_floating_point() for tensor in tensors)
    return "weight" if is_weight and not has_weight else "attributes"


def _is_one_hot(tensor: Tensor) -> bool:
    """Whether every row has one 1, and zeros in its other columns, of which there is at least one."""
    if tensor.dim() != 2 or tensor.size(1) < 2:
        return False
    return bool((((tensor == 0) | (tensor == 1)).all(-1) & (tensor.sum(-1) == 1)).all())


def _asymmetric(graphs: Sequence[GraphArrays], labels: int) -> list[str]:
    """Sentences on edges with other values in one direction than in the other.

    Args:
        graphs (sequence): Graphs as listed.
        labels (int): Number of edges with different labels.
    """
    values = 0
    for graph in graphs:
        columns = [
            column.reshape(len(column), -1).double()
            for column in (graph.edge_weight, graph.edge_attributes)
            if column is not None and column.numel()
        ]
        if not columns:
            continue
        table = torch.cat(columns, dim=1)  # [E, columns]
        low, high = graph.edge_index.min(0).values, graph.edge_index.max(0).values
        pairs, pair = torch.unique(low * graph.num_nodes + high, return_inverse=True)
        row = torch.empty_like(pairs).scatter_(0, pair, torch.arange(pair.numel()))  # one row of each pair
        differs = (table != table[row[pair]]).any(-1)
        values += int(torch.unique(pair[differs]).numel())
    notes = []
    for count, entry, kept in (
        (values, "another weight or attribute", "the mean of both is kept"),
        (labels, "another label", "the first one listed is kept"),
    ):
        if count:
            subject = "1 edge has" if count == 1 else f"{count:,} edges have"
            notes.append(
                f"{subject} {entry} in one direction than in the other; edges are read as undirected, {kept}."
            )
    return notes


def _unread(graphs: Sequence[Data]) -> list[str]:
    """A sentence that names the tensors of nodes and edges that are not read, if there are any."""
    unread = sorted(
        {
            key
            for data in graphs
            for key in data.keys()  # noqa: SIM118 - Data has no iterator over names
            if key not in _READ
            and not key.startswith(_TRUTH)
            and (data.is_node_attr(key) or data.is_edge_attr(key))
        }
    )
    if not unread:
        return []
    listed = ", ".join(f"'{key}'" for key in unread)
    return [f"{listed} {'is' if len(unread) == 1 else 'are'} not read; put numbers of nodes into 'x'."]


def _read(index: int, data: Data, names: dict[int, str], use: _EdgeAttrUse) -> GraphArrays:
    if "edge_index" not in data and ("adj_t" in data or "adj" in data):
        raise ArgumentError(_OWNER, "data", "hold its edges as 'edge_index'", f"a matrix in graph {index}")
    with warnings.catch_warnings():
        # torch-geometric warns if it infers the number of nodes from the edges.
        warnings.simplefilter("ignore")
        num_nodes = data.num_nodes or 0
    edges = _tensor(index, data, "edge_index")
    if edges is None:
        edges = torch.empty(2, 0, dtype=torch.long)
    weight, attributes = _tensor(index, data, "edge_weight"), _tensor(index, data, "edge_attr")
    labels = _labels(index, data, "edge_labels", names)
    if attributes is not None and use == "weight":
        weight, attributes = attributes, None
    elif attributes is not None and use in ("one-hot", "labels"):
        labels = attributes.argmax(-1, keepdim=True) if use == "one-hot" else _matrix(attributes)
        attributes = None
    return GraphArrays(
        num_nodes,
        edges,
        _class(index, data),
        node_labels=_labels(index, data, "node_labels", names),
        node_attributes=_numbers(_matrix(_tensor(index, data, "x"))),
        edge_labels=None if labels is None else labels.long(),
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
        raise ArgumentError(_OWNER, key, "be a dense tensor", f"{type(value).__name__} in graph {index}")
    return value.detach().cpu()


def _labels(index: int, data: Data, key: str, names: dict[int, str]) -> Tensor | None:
    """Labels as codes, ``[rows, columns]``; ``names`` receives the text of labels in a list."""
    value = getattr(data, key, None)
    if not isinstance(value, list | tuple):
        return _matrix(_tensor(index, data, key))
    table = [list(row) if isinstance(row, list | tuple) else [row] for row in value]
    codes = [[label_code(label, names) for label in row] for row in table]
    for row, labels in enumerate(table):
        if len(labels) != len(table[0]) or None in codes[row]:
            got = f"{repr(value[row])[:80]} in row {row} of graph {index}"
            raise ArgumentError(_OWNER, key, "hold text or whole numbers, equally many in each row", got)
    return torch.tensor(codes, dtype=torch.long).reshape(len(table), -1)


def _matrix(value: Tensor | None) -> Tensor | None:
    return value.unsqueeze(-1) if value is not None and value.dim() == 1 else value


def _numbers(value: Tensor | None) -> Tensor | None:
    return value.float() if value is not None and not value.is_floating_point() else value


def _class(index: int, data: Data) -> int | str | None:
    value = getattr(data, "y", None)
    if value is None or isinstance(value, str):
        return value
    value = torch.as_tensor(value)
    if value.numel() != 1:
        raise ArgumentError(
            _OWNER, "y", "be one class label per graph", f"{value.numel()} values in graph {index}"
        )
    number = value.item()
    if isinstance(number, bool):
        return number
    if not float(number).is_integer():
        raise ArgumentError(_OWNER, "y", "be an integer", f"{number} in graph {index}")
    return int(number)
