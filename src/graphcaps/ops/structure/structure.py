"""The precomputed structures of all graphs of a store, as a few flat arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from graphcaps.errors import ArgumentError
from graphcaps.ops.structure.precomputation import GraphLevel, GraphStructure, Precomputation
from graphcaps.types import ShapeRepr

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # imported late: every command imports this module

__all__ = ["SizeBound", "StoredLevel", "Structure", "join_structures"]


@dataclass(frozen=True)
class SizeBound:
    r"""A bound on what the graphs of a batch have together, from the number of graphs and of nodes alone.

    The smallest concave and nondecreasing function :math:`f` with :math:`f(0) \ge 0` that is at least the count of
    every graph at its number of nodes. B graphs with V nodes then have at most :math:`B f(V / B)` together, by Jensen's
    inequality. Steps of a captured training are sized with it.

    Args:
        sizes, counts (tuple): Corners of :math:`f`, which is constant after the last.
    """

    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Tensor, counts: Tensor) -> SizeBound:
        """The bound for graphs with these numbers of nodes and counts, ``[G]`` each."""
        corners = [(0, 0)]
        distinct, index = sizes.cpu().unique(return_inverse=True)  # ascending
        highest = torch.zeros_like(distinct).scatter_reduce(0, index, counts.cpu(), "amax")
        for size, count in zip(distinct.tolist(), highest.tolist(), strict=True):
            if count <= corners[-1][1]:
                continue  # below a corner with fewer nodes
            while len(corners) > 1 and _turns_up(corners[-2], corners[-1], (size, count)):
                corners.pop()
            corners.append((size, count))
        return cls(tuple(size for size, _ in corners), tuple(count for _, count in corners))

    def total(self, num_rows: int, num_graphs: int) -> int:
        """Most that ``num_graphs`` graphs with ``num_rows`` nodes together can have, at least 1."""
        if not num_graphs:
            return 1
        bound = num_graphs * float(np.interp(num_rows / num_graphs, self.sizes, self.counts))
        return max(1, int(bound * (1 + 1e-9)))  # against rounding


def _turns_up(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Whether b is on or below the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])


@dataclass(frozen=True, repr=False, eq=False)
class StoredLevel(ShapeRepr):
    """One coarser level of all G graphs of a store, with C coarse nodes and P members.

    Args:
        node_ptr (Tensor): First coarse node of each graph, and the end of the last, ``[G + 1]``.
        edge_ptr (Tensor): First edge entry of each coarse node, and the end of the last, ``[C + 1]``.
        neighbours (Tensor): Coarse neighbours, counted from the first coarse node of their graph, int32, ``[M]``.
        edge_weight (Tensor, optional): Weight of each entry, ``[M]``.
        entry_ptr (Tensor): First member of each graph, and the end of the last, ``[G + 1]``.
        member_ptr (Tensor): First member of each coarse node, and the end of the last, ``[C + 1]``.
        members (Tensor): Members, counted from the first node of their graph on the level below, int32, ``[P]``.
        owners (Tensor): Coarse node of each member, counted from the first of its graph, int32, ``[P]``.
        weights (Tensor, optional): Weights of each member, ``[P, H]``.
        host_node_ptr, host_entry_ptr (Tensor): ``node_ptr`` and ``entry_ptr`` on the host.
        node_bound, entry_bound (SizeBound): Bounds on the coarse nodes and members of a batch.
        max_size, max_degree (int): Coarse nodes of the largest graph, and largest degree.
    """

    node_ptr: Tensor
    edge_ptr: Tensor
    neighbours: Tensor
    edge_weight: Tensor | None
    entry_ptr: Tensor
    member_ptr: Tensor
    members: Tensor
    owners: Tensor
    weights: Tensor | None
    host_node_ptr: Tensor
    host_entry_ptr: Tensor
    node_bound: SizeBound
    entry_bound: SizeBound
    max_size: int
    max_degree: int

    @classmethod
    def from_arrays(cls, sizes: Tensor, arrays: Mapping[str, Tensor]) -> StoredLevel:
        """The level of graphs with these numbers of nodes ``[G]`` from the arrays of :meth:`arrays`, on the CPU."""
        nodes, degree, counts = arrays["nodes"], arrays["degree"], arrays["counts"]
        node_ptr, member_ptr = _offsets(nodes), _offsets(counts)
        entry_ptr = member_ptr[node_ptr]
        # Operations gather from these arrays also at padding, so none of them is empty.
        padding = (0, int(not len(counts)))
        owners = torch.arange(len(counts)) - node_ptr[:-1].repeat_interleave(nodes)
        weights = arrays.get("weights")
        return cls(
            node_ptr=node_ptr,
            edge_ptr=pad(_offsets(degree), padding),
            neighbours=arrays["neighbours"].int(),
            edge_weight=arrays.get("edge_weight"),
            entry_ptr=entry_ptr,
            member_ptr=pad(member_ptr, padding),
            members=_not_empty(arrays["members"].int()),
            owners=_not_empty(owners.repeat_interleave(counts).int()),
            weights=None if weights is None else _not_empty(weights),
            host_node_ptr=node_ptr,
            host_entry_ptr=entry_ptr,
            node_bound=SizeBound.of(sizes, nodes),
            entry_bound=SizeBound.of(sizes, entry_ptr.diff()),
            max_size=_largest(nodes),
            max_degree=_largest(degree),
        )

    def arrays(self) -> dict[str, Tensor]:
        """The arrays that determine the level: coarse nodes of each graph, edge entries and members of each coarse
        node, and what these are."""
        C, P = int(self.host_node_ptr[-1]), int(self.host_entry_ptr[-1])
        arrays = {
            "nodes": self.node_ptr.diff(),
            "degree": self.edge_ptr[: C + 1].diff(),
            "counts": self.member_ptr[: C + 1].diff(),
            "neighbours": self.neighbours,
            "members": self.members[:P],
        }
        if self.edge_weight is not None:
            arrays["edge_weight"] = self.edge_weight
        if self.weights is not None:
            arrays["weights"] = self.weights[:P]
        return arrays


_MOVED = (
    "node_ptr", "edge_ptr", "neighbours", "edge_weight",
    "entry_ptr", "member_ptr", "members", "owners", "weights",
)  # fmt: skip


@dataclass(frozen=True, repr=False, eq=False)
class Structure(ShapeRepr):
    """What a :class:`Precomputation` computed from the graphs of a store.

    Args:
        levels (tuple): Coarser levels, from the finest to the coarsest.
        columns (Tensor, optional): Further columns of all nodes, ``[N, c]``.
    """

    levels: tuple[StoredLevel, ...] = ()
    columns: Tensor | None = None

    @cached_property
    def num_bytes(self) -> int:
        """Bytes of all arrays."""
        tensors = [getattr(level, name) for level in self.levels for name in _MOVED]
        return sum(t.numel() * t.element_size() for t in (*tensors, self.columns) if t is not None)

    def to(self, device: str | torch.device | None = None, dtype: torch.dtype | None = None) -> Structure:
        """The structure on another device, or with weights and columns of another type."""
        # On the host, an unfinished copy could be read.
        non_blocking = device is not None and torch.device(device).type != "cpu"

        def move(tensor: Tensor | None) -> Any:
            if tensor is None:
                return None
            kind = dtype if tensor.is_floating_point() else None
            return tensor.to(device=device, dtype=kind, non_blocking=non_blocking)

        levels = tuple(
            replace(level, **{name: move(getattr(level, name)) for name in _MOVED}) for level in self.levels
        )
        return Structure(levels, move(self.columns))

    def select(self, graphs: Tensor, nodes: Tensor) -> Structure:
        """The structures of some graphs, in that order, on the same device.

        Args:
            graphs (Tensor): Indices of the graphs, ``[g]``.
            nodes (Tensor): Indices of all their nodes in the store.
        """
        return Structure(
            tuple(_select_graphs(level, graphs) for level in self.levels),
            None if self.columns is None else self.columns[nodes],
        )


def _select_graphs(level: StoredLevel, graphs: Tensor) -> StoredLevel:
    sizes, counts = (ptr.diff()[graphs] for ptr in (level.node_ptr, level.entry_ptr))
    nodes, entries = _ranges(level.node_ptr[graphs], sizes), _ranges(level.entry_ptr[graphs], counts)
    degree, members = level.edge_ptr.diff()[nodes], level.member_ptr.diff()[nodes]
    edges, padding = _ranges(level.edge_ptr[nodes], degree), (0, int(not len(nodes)))
    node_ptr, entry_ptr = _offsets(sizes), _offsets(counts)
    return replace(
        level,  # the bounds of all graphs are bounds of some of them
        node_ptr=node_ptr,
        edge_ptr=pad(_offsets(degree), padding),
        neighbours=level.neighbours[edges],
        edge_weight=None if level.edge_weight is None else level.edge_weight[edges],
        entry_ptr=entry_ptr,
        member_ptr=pad(_offsets(members), padding),
        members=_not_empty(level.members[entries]),
        owners=_not_empty(level.owners[entries]),
        weights=None if level.weights is None else _not_empty(level.weights[entries]),
        host_node_ptr=node_ptr.cpu(),
        host_entry_ptr=entry_ptr.cpu(),
    )


def join_structures(
    precomputation: Precomputation, sizes: Tensor, graphs: Sequence[GraphStructure | None]
) -> Structure:
    """The structures of single graphs as one, on the CPU.

    Args:
        precomputation (Precomputation): What they were computed by.
        sizes (Tensor): Number of nodes of each graph, ``[G]``.
        graphs (sequence): Structure of each graph; ``None`` for a graph without nodes.

    Raises:
        ArgumentError: If a structure does not have the levels, weights and columns that the precomputation states.
    """
    expected = (precomputation.level_weights, precomputation.num_columns)
    for index, graph in enumerate(graphs):
        if graph is None:
            continue
        weights = tuple(0 if level.weights is None else level.weights.shape[1] for level in graph.levels)
        found = (weights, 0 if graph.columns is None else graph.columns.shape[1])
        if found != expected:
            what = f"give levels with {expected[0]} weights and {expected[1]} columns for graph {index}"
            raise ArgumentError(precomputation.kind, "compute", what, f"{found[0]} and {found[1]}")
    levels = []
    for number, H in enumerate(precomputation.level_weights):
        joined = _join_levels([None if graph is None else graph.levels[number] for graph in graphs], H)
        if not precomputation.weighted_edges:
            del joined["edge_weight"]
        levels.append(StoredLevel.from_arrays(sizes, joined))
    columns = None
    if precomputation.num_columns:
        parts = [graph.columns for graph in graphs if graph is not None and graph.columns is not None]
        columns = _joined(parts, torch.float64, precomputation.num_columns)
    return Structure(tuple(levels), columns)


def _join_levels(levels: list[GraphLevel | None], H: int) -> dict[str, Tensor]:
    """The arrays of :meth:`StoredLevel.arrays` for the levels of single graphs, with H weights of each member."""
    real = [level for level in levels if level is not None]
    adjacencies = [_without_diagonal(level.adjacency) for level in real]
    arrays = {
        "nodes": torch.tensor(
            [0 if level is None else level.num_nodes for level in levels], dtype=torch.int64
        ),
        "degree": _joined([np.diff(adjacency.indptr) for adjacency in adjacencies], torch.int64),
        "counts": _joined([np.diff(level.member_ptr) for level in real], torch.int64),
        "neighbours": _joined([adjacency.indices for adjacency in adjacencies], torch.int32),
        "members": _joined([level.members for level in real], torch.int32),
        "edge_weight": _joined([adjacency.data for adjacency in adjacencies], torch.float64),
    }
    if H:
        weights = [level.weights for level in real if level.weights is not None]
        arrays["weights"] = _joined(weights, torch.float64, H)
    return arrays


def _without_diagonal(adjacency: csr_array) -> csr_array:
    """The adjacency without self-loops, with sorted neighbours."""
    from scipy.sparse import csr_array

    entries = adjacency.tocoo()
    keep = entries.row != entries.col
    kept = (entries.data[keep], (entries.row[keep], entries.col[keep]))
    return csr_array(kept, shape=adjacency.shape)


def _joined(parts: Sequence[np.ndarray], dtype: torch.dtype, columns: int | None = None) -> Tensor:
    """The concatenated arrays, ``[0]`` or ``[0, columns]`` without any."""
    if not parts:
        return torch.empty((0,) if columns is None else (0, columns), dtype=dtype)
    return torch.from_numpy(np.concatenate(parts)).to(dtype)


def _largest(values: Tensor) -> int:
    return int(values.max()) if values.numel() else 0


def _not_empty(values: Tensor) -> Tensor:
    """The same rows, or a single row of zeros."""
    return values if len(values) else values.new_zeros(1, *values.shape[1:])


def _offsets(counts: Tensor) -> Tensor:
    return pad(counts.cumsum(0), (1, 0))


def _ranges(first: Tensor, length: Tensor) -> Tensor:
    """Concatenated ranges: ``first[k]`` to ``first[k] + length[k] − 1`` for each k."""
    total = int(length.sum())
    start = first - _offsets(length)[:-1]
    return torch.arange(total, device=first.device) + start.repeat_interleave(length, output_size=total)
