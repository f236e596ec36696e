"""A whole data set as a few flat arrays.

Node i of graph g is row ``node_ptr[g] + i`` of every node array; its neighbours, counted from the first
node of the graph, are ``neighbours[edge_ptr[row] : edge_ptr[row + 1]]``. A batch is a gather with offsets:
there is no object per graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphcaps.data.batching import collate
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.edges import CleanEdges, EdgeReport
from graphcaps.ops.reconstruction.adjacency_bits import bit_rows, count_words
from graphcaps.types import BitRows, FeatureTable, GraphBatch

__all__ = ["MAX_BIT_NODES", "MAX_BIT_WORDS", "GraphStore"]


MAX_BIT_WORDS = 1 << 27
"""Words of bits up to which a store keeps its edges as bits too: half a gigabyte."""
MAX_BIT_NODES = 1 << 14
"""Nodes of a graph up to which it does so: the bits of a graph grow with the square of its nodes."""


@dataclass(frozen=True, eq=False, repr=False)
class GraphStore:
    """G graphs with N nodes and M edge entries (an edge has two entries, one per direction).

    Args:
        name (str): Name for messages and results.
        node_ptr (Tensor): First node of each graph, and the end of the last, ``[G + 1]``.
        edge_ptr (Tensor): First entry of each node, and the end of the last, ``[N + 1]``.
        neighbours (Tensor): Neighbours, counted from the first node of their graph, ``[M]``.
        y (Tensor, optional): Class of each graph, 0 to the number of classes − 1, ``[G]``.
        class_names (tuple): What the classes are called in the source.
        node_labels (Tensor, optional): Categories as in the source, ``[N, L]``.
        node_attributes (Tensor, optional): Numbers, ``[N, A]``.
        edge_labels, edge_attributes, edge_weight (Tensor, optional): ``[M, …]``, equal for both directions.
        truth (dict): What is known about nodes and not shown to a model, such as the planted part, ``[N]`` each.
        report (EdgeReport): What was done to the edges as listed.
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
    truth: dict[str, Tensor] = field(default_factory=dict)
    report: EdgeReport = field(default_factory=EdgeReport)

    def __post_init__(self) -> None:
        N, M = self.num_nodes, self.neighbours.numel()
        expected = {
            "edge_ptr": N + 1,
            "node_labels": N,
            "node_attributes": N,
            "edge_labels": M,
            "edge_attributes": M,
            "edge_weight": M,
            "y": len(self),
        }
        for name, rows in expected.items():
            tensor = getattr(self, name)
            if tensor is not None and tensor.size(0) != rows:
                raise ShapeError("GraphStore", name, f"have {rows} rows", tensor.size(0))
        for name in ("node_labels", "node_attributes", "edge_labels", "edge_attributes"):
            tensor = getattr(self, name)
            if tensor is not None and tensor.dim() != 2:
                raise ShapeError("GraphStore", name, "have two axes", list(tensor.shape))
        for name, values in self.truth.items():
            if values.shape != (N,):
                raise ShapeError("GraphStore", f"truth[{name}]", f"have the shape [{N}]", list(values.shape))
        if len(self) and bool((self.sizes < 1).any()):
            graph = int((self.sizes < 1).nonzero()[0, 0])
            raise ArgumentError("GraphStore", "node_ptr", "give every graph a node", f"none in graph {graph}")
        if self.device.type == "cpu":  # what was checked there is not checked again on a GPU
            self._check_edges()

    def _check_edges(self) -> None:
        """Neighbours inside their own graph: a wrong one would be read from foreign memory."""
        if N := self.num_nodes:
            if (
                int(self.edge_ptr[0])
                or int(self.edge_ptr[N]) != len(self.neighbours)
                or bool((self.degree < 0).any())
            ):
                raise ArgumentError(
                    "GraphStore", "edge_ptr", f"rise from 0 to {len(self.neighbours)}", "something else"
                )
            room = self.sizes.int().repeat_interleave(self.host_entry_ptr.diff())
            wrong = (self.neighbours < 0) | (self.neighbours >= room)
            if bool(wrong.any()):
                entry = int(wrong.nonzero()[0, 0])
                expected = f"name nodes from 0 to {int(room[entry]) - 1} in entry {entry}"
                raise ArgumentError("GraphStore", "neighbours", expected, int(self.neighbours[entry]))

    @classmethod
    def from_clean_edges(cls, name: str, node_ptr: Tensor, edges: CleanEdges, **columns: Any) -> GraphStore:
        """A store from edges over all N nodes (:func:`graphcaps.ops.clean_edges`) and node columns."""
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

    # ------------------------------------------------------------------ sizes
    def __len__(self) -> int:
        return self.node_ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """N, over all graphs."""
        return int(self.host_node_ptr[-1])

    @property
    def num_edges(self) -> int:
        """Undirected edges of all graphs."""
        return self.neighbours.numel() // 2

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def device(self) -> torch.device:
        return self.node_ptr.device

    @property
    def sizes(self) -> Tensor:
        """Nodes of each graph, ``[G]``."""
        return self.node_ptr[1:] - self.node_ptr[:-1]

    @property
    def degree(self) -> Tensor:
        """Neighbours of each node, ``[N]``."""
        return self.edge_ptr[1:] - self.edge_ptr[:-1]

    @cached_property
    def node_graph(self) -> Tensor:
        """Graph of each node, ``[N]``."""
        return torch.arange(len(self), device=self.device).repeat_interleave(self.sizes)

    @cached_property
    def max_size(self) -> int:
        """Nodes of the largest graph."""
        return int(self.host_node_ptr.diff().max()) if len(self) else 0

    @cached_property
    def max_degree(self) -> int:
        """Most neighbours of a node."""
        return int(self.degree.max()) if self.num_nodes else 0

    @cached_property
    def bits(self) -> BitRows | None:
        """The edges as bits, for kernels: on a GPU, where they take less memory than a stated limit."""
        if self.device.type != "cuda" or self.bit_words is None:
            return None
        return bit_rows(self.edge_ptr, self.neighbours, self.sizes)

    @property
    def bit_words(self) -> int | None:
        """Words that the edges take as bits; ``None`` where there are too many, or a graph is too large."""
        words = count_words(self.host_node_ptr.diff())
        return words if words <= MAX_BIT_WORDS and self.max_size <= MAX_BIT_NODES else None

    # Host copies: batches are sized from these without asking the device.
    @cached_property
    def host_node_ptr(self) -> Tensor:
        """``node_ptr`` on the host."""
        return self.node_ptr.cpu()

    @cached_property
    def host_entry_ptr(self) -> Tensor:
        """First edge entry of each graph, and the end of the last, on the host, ``[G + 1]``."""
        return self.edge_ptr.cpu()[self.host_node_ptr]

    def __repr__(self) -> str:
        shown = [f"{self.name!r}", f"graphs={len(self)}", f"classes={self.num_classes}"]
        shown += [f"nodes={self.num_nodes}", f"edges={self.num_edges}"]
        for entry in ("node_labels", "node_attributes", "edge_labels", "edge_attributes", "edge_weight"):
            tensor = getattr(self, entry)
            if tensor is not None:
                shown.append(f"{entry}={list(tensor.shape)}")
        return f"GraphStore({', '.join(shown)})"

    # ------------------------------------------------------------------ moving and choosing
    def to(self, device: str | torch.device) -> GraphStore:
        """The same store on another device."""

        def move(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.to(device, non_blocking=True)  # without waiting, from pinned memory
            if isinstance(value, dict):
                return {key: move(item) for key, item in value.items()}
            return value

        # What was checked here is not checked there, and what the host knows of it is not asked again.
        moved = object.__new__(type(self))
        for entry in fields(self):
            object.__setattr__(moved, entry.name, move(getattr(self, entry.name)))
        for name in ("host_node_ptr", "host_entry_ptr", "max_size", "max_degree"):
            moved.__dict__[name] = getattr(self, name)
        return moved

    def __getitem__(self, indices: int | slice | Sequence[int] | Tensor) -> GraphStore:
        """A store of the named graphs, in that order; a single number gives a store of one graph.

        ``report`` describes the source as a whole and stays as it is.
        """
        if isinstance(indices, slice):
            indices = range(len(self))[indices]
        wanted = torch.as_tensor([indices] if isinstance(indices, int) else indices, device=self.device)
        if wanted.is_floating_point() and wanted.numel():
            raise ArgumentError("GraphStore", "indices", "hold whole numbers", wanted.tolist())
        if wanted.dtype == torch.bool:
            if wanted.numel() != len(self):
                marks = f"{wanted.numel()} marks"
                raise ShapeError("GraphStore", "indices", f"mark each of {len(self)} graphs", marks)
            wanted = wanted.nonzero().squeeze(-1)
        wanted = wanted.long().reshape(-1)
        if wanted.numel() and not -len(self) <= int(wanted.min()) <= int(wanted.max()) < len(self):
            raise ArgumentError(
                "GraphStore", "indices", f"name graphs from 0 to {len(self) - 1}", wanted.tolist()
            )
        wanted = wanted % max(len(self), 1)
        sizes = self.sizes[wanted]
        nodes = _ranges(self.node_ptr[wanted], sizes)
        degree = self.degree[nodes]
        entries = _ranges(self.edge_ptr[nodes], degree)

        def pick(tensor: Tensor | None, rows: Tensor) -> Tensor | None:
            return None if tensor is None else tensor[rows]

        return replace(
            self,
            node_ptr=_offsets(sizes),
            edge_ptr=_offsets(degree),
            neighbours=self.neighbours[entries],
            y=pick(self.y, wanted),
            node_labels=pick(self.node_labels, nodes),
            node_attributes=pick(self.node_attributes, nodes),
            edge_labels=pick(self.edge_labels, entries),
            edge_attributes=pick(self.edge_attributes, entries),
            edge_weight=pick(self.edge_weight, entries),
            truth={key: value[nodes] for key, value in self.truth.items()},
        )

    # ------------------------------------------------------------------ batches
    def batch(self, x: Tensor | FeatureTable, graphs: Sequence[int] | Tensor | None = None) -> GraphBatch:
        """The named graphs as one ragged batch, by index arithmetic alone.

        Args:
            x (Tensor or FeatureTable): Features of all nodes of the store, ``[N, in]`` (from a
                ``FeatureRecipe``).
            graphs (Tensor, optional): Graphs of the batch, ``[*lead, B]``, −1 for none; with leading axes
                each replica gets its own row, filled up to the longest. (default: all graphs in order)
        """
        return collate(self, x, graphs)


def _offsets(counts: Tensor) -> Tensor:
    """Running sums from zero along the last axis, one longer than ``counts``."""
    return torch.nn.functional.pad(counts.cumsum(-1), (1, 0))


def _ranges(first: Tensor, length: Tensor) -> Tensor:
    """``first[0], first[0] + 1, …`` of the given lengths, one range after another."""
    start = first - _offsets(length)[:-1]
    total = int(length.sum())
    return torch.arange(total, device=first.device) + start.repeat_interleave(length, output_size=total)
