"""``GraphStore``: a whole data set as a few flat arrays.

Node i of graph g is row ``node_ptr[g] + i`` of every node array. Its neighbours are
``neighbours[edge_ptr[row] : edge_ptr[row + 1]]``, as indices within the graph. A batch is a gather with offsets:
there is no object per graph. A graph may have no nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphcaps._io.atomic_write import escape_text
from graphcaps.data.batching import collate
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.edges import CleanEdges, EdgeReport
from graphcaps.ops.reconstruction.adjacency_bits import count_words, pack_adjacency
from graphcaps.ops.structure.structure import SizeBound, Structure
from graphcaps.types import AdjacencyBits, FeatureTable, GraphBatch

__all__ = ["MAX_BIT_NODES", "MAX_BIT_WORDS", "GraphStore", "offsets"]


MAX_BIT_WORDS = 1 << 27
"""Most 32-bit words for the adjacency bits of a store: half a gigabyte."""
MAX_BIT_NODES = 1 << 14
"""Most nodes of a graph with adjacency bits, whose number grows with the square of the nodes."""


_HOST_COPIES = ("num_nodes", "host_node_ptr", "host_entry_ptr", "empty_graphs", "max_size", "max_degree")
_NAMED_COLUMNS = ("node_labels", "node_attributes", "edge_labels", "edge_attributes")


@dataclass(frozen=True, eq=False, repr=False)
class GraphStore:
    """G graphs with N nodes and M edge entries (an undirected edge has two entries, one per direction).

    Args:
        name (str): Name for messages and results.
        node_ptr (Tensor): Index of the first node of each graph, then N, ``[G + 1]``.
        edge_ptr (Tensor): Index of the first edge entry of each node, then M, ``[N + 1]``.
        neighbours (Tensor): Neighbours as indices within their graph, ascending for each node, ``[M]``.
        y (Tensor, optional): Class index of each graph, ``[G]``.
        class_names (tuple): Names of the classes in the source.
        node_labels (Tensor, optional): Categorical node labels with their values in the source, ``[N, L]``; integers of
            any width, those of a featurizer one byte.
        node_attributes (Tensor, optional): Numerical node attributes, ``[N, A]``.
        edge_labels, edge_attributes, edge_weight (Tensor, optional): ``[M, …]``, equal for both directions.
        label_names (dict): Text of the codes in ``node_labels`` and ``edge_labels`` that stand for text
            (:mod:`graphcaps.data.label_encoding`).
        truth (dict): Ground truth of nodes that a model does not read, such as the planted part, ``[N]`` each.
        report (EdgeReport): Changes made to the listed edges.
        catalogue_name (str, optional): Name in the catalogue if the data set was loaded by that name
            (:func:`graphcaps.load_dataset`); ``None`` for graphs from a path or an object, whatever their name. It
            decides which preset a run takes (docs/presets.md).
        smiles (tuple, optional): Canonical SMILES of each graph, if the graphs are molecules; atom i is node i.
            Networks do not read it; scaffolds and fingerprints are computed from it.
        featurizer (str, optional): Featurizer of molecules read from SMILES, which says what the columns of
            ``node_labels`` and ``edge_labels`` and their codes mean; ``None`` for other graphs.
        edge_kind (Tensor, optional): Kind of each entry, int32, ``[M]``, equal for both directions. A recipe computes
            it from the edge labels for models that read it (:meth:`FeatureRecipe.edge_kind`).
        fragments (str, optional): Which fragments of molecules were read from SMILES, ``"all"`` or ``"largest"``; a
            model reads new molecules in the same way. ``None`` for other graphs.
        source_columns (dict): Names in the source of the columns of ``node_labels``, ``node_attributes``,
            ``edge_labels`` and ``edge_attributes``, a tuple for each of these that has names. A model compares names
            of attributes (:func:`graphcaps.data.features.compatibility.check_graphs`).
        structure (Structure, optional): What a model precomputes from each graph (:mod:`graphcaps.data.precompute`).

    Raises:
        ShapeError: If a column has the wrong number of rows or axes.
        ArgumentError: If offsets descend, an edge leaves its graph, or the neighbours of a node do not ascend.
    """

    name: str
    node_ptr: Tensor
    edge_ptr: Tensor
    neighbours: Tensor
    y: Tensor | None = None
    class_names: tuple[str, ...] = ()
    node_labels: Tensor | None = None
    node_attributes: Tensor | None = None
    edge_labels: Tensor | None = None
    edge_attributes: Tensor | None = None
    edge_weight: Tensor | None = None
    label_names: dict[int, str] = field(default_factory=dict)
    truth: dict[str, Tensor] = field(default_factory=dict)
    report: EdgeReport = field(default_factory=EdgeReport)
    catalogue_name: str | None = None
    smiles: tuple[str, ...] | None = None
    featurizer: str | None = None
    edge_kind: Tensor | None = None
    fragments: Literal["all", "largest"] | None = None
    source_columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    structure: Structure | None = None

    def __post_init__(self) -> None:
        N, M = self.num_nodes, self.neighbours.numel()
        expected = {
            "edge_ptr": N + 1,
            "node_labels": N,
            "node_attributes": N,
            "edge_labels": M,
            "edge_attributes": M,
            "edge_weight": M,
            "edge_kind": M,
            "y": len(self),
        }
        for name, rows in expected.items():
            tensor = getattr(self, name)
            if tensor is not None and not (isinstance(tensor, Tensor) and tensor.dim()):
                raise ArgumentError("GraphStore", name, f"be a tensor with {rows} rows", repr(tensor)[:60])
            if tensor is not None and tensor.size(0) != rows:
                raise ShapeError("GraphStore", name, f"have {rows} rows", tensor.size(0))
        for name in _NAMED_COLUMNS:
            tensor = getattr(self, name)
            if tensor is not None and tensor.dim() != 2:
                raise ShapeError("GraphStore", name, "have two axes", list(tensor.shape))
        self._check_column_names()
        self._escape_names()
        if self.smiles is not None and len(self.smiles) != len(self):
            raise ShapeError("GraphStore", "smiles", f"have {len(self)} entries", len(self.smiles))
        for name, values in self.truth.items():
            if values.shape != (N,):
                raise ShapeError("GraphStore", f"truth[{name}]", f"have shape [{N}]", list(values.shape))
        sizes = np.diff(self.host_node_ptr.numpy())
        if len(sizes) and sizes.min() < 0:
            graph = int(np.flatnonzero(sizes < 0)[0])
            raise ArgumentError("GraphStore", "node_ptr", "ascend", f"a descending step at graph {graph}")
        if self.device.type == "cpu":  # a store on a GPU is a copy of one that was checked
            self._check_edges()

    def _escape_names(self) -> None:
        """Replaces characters of names that UTF-8 cannot hold, such as bytes of a file name, by ``\\udcff``.

        Otherwise a finished training could not be written.
        """
        escaped = {
            "name": escape_text(self.name),
            "class_names": tuple(map(escape_text, self.class_names)),
            "label_names": {code: escape_text(text) for code, text in self.label_names.items()},
        }
        if len(set(escaped["class_names"])) < len(set(self.class_names)):
            raise ArgumentError("GraphStore", "class_names", "differ when they are written", "equal ones")
        for name, value in escaped.items():
            object.__setattr__(self, name, value)

    def _check_column_names(self) -> None:
        for name, names in self.source_columns.items():
            if name not in _NAMED_COLUMNS:
                expected = f"have the keys {', '.join(_NAMED_COLUMNS)}"
                raise ArgumentError("GraphStore", "source_columns", expected, repr(name))
            tensor = getattr(self, name)
            if tensor is not None and (len(names) != tensor.size(1) or len(set(names)) != len(names)):
                expected = f"hold {tensor.size(1)} different names for '{name}'"
                raise ArgumentError("GraphStore", "source_columns", expected, ", ".join(map(repr, names)))

    def _check_edges(self) -> None:
        """Checks that neighbours are in their graph and ascend: kernels would read other memory, or miss edges."""
        # In numpy: a server makes several stores of a few nodes per request.
        ptr, neighbours = self.edge_ptr.detach().numpy(), self.neighbours.detach().numpy()
        ends, descends = (int(ptr[0]), int(ptr[-1])), bool((ptr[1:] < ptr[:-1]).any())
        if descends or ends != (0, len(neighbours)):
            got = "a descending step" if descends else f"values from {ends[0]} to {ends[1]}"
            raise ArgumentError("GraphStore", "edge_ptr", f"ascend from 0 to {len(neighbours)}", got)
        node_ptr = self.node_ptr.detach().numpy()
        limit = np.repeat(np.diff(node_ptr).astype(np.int32), np.diff(ptr[node_ptr]))
        wrong = (neighbours < 0) | (neighbours >= limit)
        if wrong.any():
            entry = int(np.flatnonzero(wrong)[0])
            expected = f"be from 0 to {int(limit[entry]) - 1} in entry {entry}"
            raise ArgumentError("GraphStore", "neighbours", expected, int(neighbours[entry]))
        descends_at = np.concatenate(([False], neighbours[1:] <= neighbours[:-1], [False]))
        descends_at[ptr] = False  # from the last neighbour of a node to the first of another
        if descends_at.any():
            entry = int(descends_at.argmax())
            got = f"{int(neighbours[entry])} after {int(neighbours[entry - 1])} in entry {entry}"
            fix = "Make the store with GraphStore.from_clean_edges."
            raise ArgumentError("GraphStore", "neighbours", "ascend for each node", got, fix)

    @classmethod
    def from_clean_edges(cls, name: str, node_ptr: Tensor, edges: CleanEdges, **columns: Any) -> GraphStore:
        """Makes a store from cleaned edges over all N nodes (:func:`graphcaps.ops.clean_edges`).

        Args:
            name (str): Name of the store.
            node_ptr (Tensor): Index of the first node of each graph, then N, ``[G + 1]``.
            edges (CleanEdges): Edges with node indices from 0 to N − 1.
            columns: Other arguments of :class:`GraphStore`, such as ``y`` and ``node_labels``.
        """
        sizes = node_ptr[1:] - node_ptr[:-1]
        first = node_ptr[:-1].repeat_interleave(sizes)  # first node of each node's graph
        degree = edges.ptr[1:] - edges.ptr[:-1]
        local = edges.neighbours - first.repeat_interleave(degree)
        return cls(
            name,
            node_ptr,
            edges.ptr,
            local.to(torch.int32),
            edge_labels=edges.labels,
            edge_attributes=edges.attributes,
            edge_weight=edges.weight,
            report=edges.report,
            **columns,
        )

    def column_names(self, table: str) -> tuple[str, ...] | None:
        """Names of the columns of ``node_labels``, ``node_attributes``, ``edge_labels`` or ``edge_attributes``.

        ``None`` if the store does not have the table, or its source gives the columns no names.
        """
        return None if getattr(self, table) is None else self.source_columns.get(table)

    # ------------------------------------------------------------------ sizes
    def __len__(self) -> int:
        return self.node_ptr.numel() - 1

    @cached_property
    def num_nodes(self) -> int:
        """Number of nodes N of all graphs."""
        return int(self.host_node_ptr[-1])

    @property
    def num_edges(self) -> int:
        """Number of undirected edges of all graphs."""
        return self.neighbours.numel() // 2

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def device(self) -> torch.device:
        return self.node_ptr.device

    @property
    def sizes(self) -> Tensor:
        """Number of nodes of each graph, ``[G]``."""
        return self.node_ptr[1:] - self.node_ptr[:-1]

    @property
    def degree(self) -> Tensor:
        """Number of neighbours of each node, ``[N]``."""
        return self.edge_ptr[1:] - self.edge_ptr[:-1]

    @cached_property
    def node_graph(self) -> Tensor:
        """Graph index of each node, ``[N]``."""
        return torch.arange(len(self), device=self.device).repeat_interleave(self.sizes)

    def entry_rows(self) -> Tensor:
        """The two ends of each edge entry as rows of the store, ``[2, M]``; an edge has an entry per direction."""
        source = torch.arange(self.num_nodes, device=self.device).repeat_interleave(self.degree)
        return torch.stack([source, self.neighbours.long() + self.node_ptr[self.node_graph[source]]])

    @cached_property
    def empty_graphs(self) -> Tensor:
        """Indices of the graphs without nodes, ascending, on the host."""
        return torch.from_numpy(np.flatnonzero(np.diff(self.host_node_ptr.numpy()) == 0))

    @cached_property
    def max_size(self) -> int:
        """Number of nodes of the largest graph."""
        return int(np.diff(self.host_node_ptr.numpy()).max()) if len(self) else 0

    @cached_property
    def max_degree(self) -> int:
        """Largest degree of a node."""
        return int(self.degree.max()) if self.num_nodes else 0

    @cached_property
    def bits(self) -> AdjacencyBits | None:
        """Adjacency as bits, for kernels; ``None`` on a CPU and where :attr:`bit_words` is ``None``."""
        if self.device.type != "cuda" or self.bit_words is None:
            return None
        return pack_adjacency(self.edge_ptr, self.neighbours, self.sizes)

    @property
    def bit_words(self) -> int | None:
        """Number of 32-bit words of :attr:`bits`; ``None`` above ``MAX_BIT_WORDS`` or ``MAX_BIT_NODES``."""
        words = count_words(self.host_node_ptr.diff())
        return words if words <= MAX_BIT_WORDS and self.max_size <= MAX_BIT_NODES else None

    # Host copies: batches are sized from these without host–device synchronisation.
    @cached_property
    def host_node_ptr(self) -> Tensor:
        """``node_ptr`` on the host."""
        return self.node_ptr.cpu()

    @cached_property
    def host_entry_ptr(self) -> Tensor:
        """Index of the first edge entry of each graph, then M, on the host, ``[G + 1]``."""
        return self.edge_ptr.cpu()[self.host_node_ptr]

    @cached_property
    def entry_bound(self) -> SizeBound:
        """Bound on the edge entries of a batch."""
        return SizeBound.of(self.host_node_ptr.diff(), self.host_entry_ptr.diff())

    def __repr__(self) -> str:
        shown = [f"{self.name!r}", f"graphs={len(self)}", f"classes={self.num_classes}"]
        shown += [f"nodes={self.num_nodes}", f"edges={self.num_edges}"]
        for entry in ("node_labels", "node_attributes", "edge_labels", "edge_attributes", "edge_weight"):
            tensor = getattr(self, entry)
            if tensor is not None:
                shown.append(f"{entry}={list(tensor.shape)}")
        return f"GraphStore({', '.join(shown)})"

    # ------------------------------------------------------------------ moving and indexing
    def to(self, device: str | torch.device) -> GraphStore:
        """Copies the store to another device; the store itself if it is there."""
        if self.device.type == str(device) == "cpu":
            return self
        for name in _HOST_COPIES:
            getattr(self, name)  # read here, where it needs no host–device synchronisation

        # Asynchronous from pinned memory; on the host, an unfinished copy could be read.
        non_blocking = torch.device(device).type != "cpu"

        def move(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.to(device, non_blocking=non_blocking)
            if isinstance(value, dict):
                return {key: move(item) for key, item in value.items()}
            return value.to(device) if isinstance(value, Structure) else value

        return self._copy({entry.name: move(getattr(self, entry.name)) for entry in fields(self)})

    def with_catalogue_name(self, name: str) -> GraphStore:
        """The same graphs, marked as loaded by a name of the catalogue; arrays are shared."""
        return self.with_unchecked(catalogue_name=name)

    def with_edge_kind(self, kind: Tensor | None) -> GraphStore:
        """The same graphs with another ``edge_kind``; the other arrays are shared."""
        if kind is not None and kind.shape != self.neighbours.shape:
            raise ShapeError(
                "GraphStore", "edge_kind", f"have the shape [{self.neighbours.numel()}]", list(kind.shape)
            )
        return self.with_unchecked(edge_kind=kind)

    def with_structure(self, structure: Structure | None) -> GraphStore:
        """The same graphs with another ``structure``; the other arrays are shared."""
        return self.with_unchecked(structure=structure)

    def with_unchecked(self, **values: Any) -> GraphStore:
        """The same graphs with other values of fields that :func:`dataclasses.replace` would check again in vain.

        Args:
            values: ``None`` for a table that is left out, or a value that is valid for these graphs.
        """
        return self._copy({entry.name: self.__dict__[entry.name] for entry in fields(self)} | values)

    def _copy(self, values: dict[str, Any]) -> GraphStore:
        """A store with the same graphs, without the constructor's checks and with the host copies of this one."""
        store = object.__new__(type(self))
        store.__dict__.update(values)
        store.__dict__.update({name: self.__dict__[name] for name in _HOST_COPIES if name in self.__dict__})
        return store

    def __getitem__(self, indices: int | slice | Sequence[int] | Tensor) -> GraphStore:
        """A store of the selected graphs, in that order; an integer gives a store of one graph.

        ``report`` goes on describing the source as a whole.

        Args:
            indices: Graph indices (negative ones count from the end), a slice, or a mask of length G.

        Raises:
            ArgumentError: If an index is out of range or not an integer.
            ShapeError: If a mask has another length.
        """
        if isinstance(indices, slice):
            indices = range(len(self))[indices]
        selected = torch.as_tensor([indices] if isinstance(indices, int) else indices, device=self.device)
        if selected.is_floating_point() and selected.numel():
            raise ArgumentError("GraphStore", "indices", "hold integers", selected.tolist())
        if selected.dtype == torch.bool:
            if selected.numel() != len(self):
                raise ShapeError(
                    "GraphStore", "indices", f"be a mask of length {len(self)}", selected.numel()
                )
            selected = selected.nonzero().squeeze(-1)
        selected = selected.long().reshape(-1)
        if selected.numel() and not -len(self) <= int(selected.min()) <= int(selected.max()) < len(self):
            raise ArgumentError("GraphStore", "indices", f"be from 0 to {len(self) - 1}", selected.tolist())
        selected = selected % max(len(self), 1)
        # Of these graphs alone: a part of a large store costs what the part has.
        sizes = self.node_ptr[selected + 1] - self.node_ptr[selected]
        nodes = _ranges(self.node_ptr[selected], sizes)
        degree = self.edge_ptr[nodes + 1] - self.edge_ptr[nodes]
        entries = _ranges(self.edge_ptr[nodes], degree)
        return replace(
            self,
            node_ptr=offsets(sizes),
            edge_ptr=offsets(degree),
            neighbours=self.neighbours[entries],
            y=None if self.y is None else self.y[selected],
            **self.select_columns(nodes, entries),
            smiles=None if self.smiles is None else tuple(self.smiles[graph] for graph in selected.tolist()),
            structure=None if self.structure is None else self.structure.select(selected, nodes),
        )

    def select_columns(self, nodes: Tensor, entries: Tensor) -> dict[str, Any]:
        """The fields that have a row per node or per edge entry, with these rows alone."""

        def pick(tensor: Tensor | None, rows: Tensor) -> Tensor | None:
            return None if tensor is None else tensor[rows]

        return {
            "node_labels": pick(self.node_labels, nodes),
            "node_attributes": pick(self.node_attributes, nodes),
            "edge_labels": pick(self.edge_labels, entries),
            "edge_attributes": pick(self.edge_attributes, entries),
            "edge_weight": pick(self.edge_weight, entries),
            "edge_kind": pick(self.edge_kind, entries),
            "truth": {key: value[nodes] for key, value in self.truth.items()},
        }

    def with_nodes(self) -> GraphStore:
        """The graphs that have nodes; the store itself if all have."""
        return self[(self.sizes > 0).nonzero().squeeze(-1)] if self.empty_graphs.numel() else self

    # ------------------------------------------------------------------ batches
    def batch(self, x: Tensor | FeatureTable, graphs: Sequence[int] | Tensor | None = None) -> GraphBatch:
        """Collates graphs into one ragged batch, by index arithmetic.

        Args:
            x (Tensor or FeatureTable): Features of all nodes of the store, ``[N, in]`` (from a
                ``FeatureRecipe``).
            graphs (Tensor, optional): Graphs of the batch, ``[*lead, B]``, −1 for padding. With leading axes
                each replica has its own row, padded to the longest. (default: all graphs in order)

        Raises:
            ShapeError: If ``x`` does not have N rows, or ``graphs`` is empty.
            ArgumentError: If a graph index is out of range or not an integer.
        """
        return collate(self, x, graphs)


def offsets(counts: Tensor) -> Tensor:
    """Cumulative sums along the last axis with a leading zero, one longer than ``counts``."""
    return torch.nn.functional.pad(counts.cumsum(-1), (1, 0))


def _ranges(first: Tensor, length: Tensor) -> Tensor:
    """Concatenated ranges: ``first[k]`` to ``first[k] + length[k] − 1`` for each k."""
    start = first - offsets(length)[:-1]
    total = int(length.sum())
    return torch.arange(total, device=first.device) + start.repeat_interleave(length, output_size=total)
