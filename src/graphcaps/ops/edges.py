"""Cleaning of edge lists: all graphs of the package are undirected and simple.

Edges from files and libraries are converted to that form here, and every change is counted:

* **directed**: an edge listed in one direction only is read as undirected;
* **repeated**: rows that list a pair again count once; their weights and attributes are averaged, and the
  label of the first row is kept;
* **self-loops** are removed (the model adds its own);
* **weights** belong to pairs, one for both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace

import numpy as np
import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.types import EdgeList, EdgeTable

__all__ = ["CleanEdges", "EdgeReport", "clean_edges", "edge_table", "edge_table_from_list", "repeat_edges"]


_LARGE_TABLE = 1 << 20
"""Number of entries from which a table is transposed by scipy."""


@dataclass(frozen=True)
class EdgeReport:
    """Counts of what an edge list had and what was changed.

    Args:
        rows (int): Rows as listed.
        self_loops (int): Rows that join a node with itself, removed.
        looped_nodes (int): Different nodes among those.
        repeated (int): Rows that list an ordered pair again, merged.
        one_way (int): Pairs listed in one direction only, read as undirected.
        conflicting_labels (int): Pairs whose rows carry different edge labels (the first is kept).
        edges (int): Undirected edges that remain.
    """

    rows: int = 0
    self_loops: int = 0
    looped_nodes: int = 0
    repeated: int = 0
    one_way: int = 0
    conflicting_labels: int = 0
    edges: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def total(cls, reports: Sequence[EdgeReport]) -> EdgeReport:
        """The report of all edges together, from those of parts that have no node in common."""
        return cls(*(sum(counts) for counts in zip(*(astuple(report) for report in reports), strict=True)))


@dataclass(frozen=True)
class CleanEdges:
    """Undirected simple edges as one CSR table over all nodes; both directions of an edge are entries.

    ``ptr [N + 1]``, ``neighbours [M]`` (ids among all N nodes, ascending in a row), and per entry, where
    given: ``weight [M]``, ``labels [M, L]``, ``attributes [M, A]``.
    """

    ptr: Tensor
    neighbours: Tensor
    weight: Tensor | None
    labels: Tensor | None
    attributes: Tensor | None
    report: EdgeReport


def clean_edges(
    source: Tensor,
    target: Tensor,
    num_nodes: int,
    *,
    weight: Tensor | None = None,
    labels: Tensor | None = None,
    attributes: Tensor | None = None,
) -> CleanEdges:
    """Converts an edge list to undirected simple edges.

    Args:
        source, target (Tensor): Node ids from 0 to ``num_nodes − 1``, ``[E]`` each.
        num_nodes (int): Number of nodes N.
        weight, labels, attributes (Tensor, optional): ``[E]``, ``[E, L]``, ``[E, A]``.
    """
    N, rows = max(num_nodes, 1), source.numel()
    source, target = source.long(), target.long()
    keep = source != target
    self_loops = rows - int(keep.sum())
    looped_nodes = int(torch.unique(source[~keep]).numel()) if self_loops else 0
    if self_loops:
        source, target = source[keep], target[keep]

    keys = source * N + target  # one key per ordered pair
    distinct = _distinct(keys)
    in_order = distinct is keys  # already sorted and distinct, as in most files: no division
    entry_source, entry_target = (source, target) if in_order else (distinct // N, distinct % N)
    if in_order and _is_symmetric(entry_source, entry_target, num_nodes):
        missing = distinct[:0]
    else:
        reverse = entry_target * N + entry_source
        missing = reverse[~_contains(distinct, reverse)]
        del reverse
    entries = distinct
    if missing.numel():
        entries = torch.cat([distinct, missing]).sort().values
        entry_source, entry_target = entries // N, entries % N
    elif in_order:
        entry_target = target.clone(memory_format=torch.contiguous_format)  # never the caller's tensor
    ptr = torch.nn.functional.pad(torch.bincount(entry_source, minlength=num_nodes).cumsum(0), (1, 0))

    conflicting = 0
    merged_weight = merged_labels = merged_attributes = None
    if weight is not None or labels is not None or attributes is not None:
        # Rows of both directions are merged per pair, which keeps the table symmetric.
        pairs, of_row = torch.unique(_pair(source, target, N), return_inverse=True)
        of_entry = torch.searchsorted(pairs, _pair(entry_source, entry_target, N))
        if weight is not None:
            merged_weight = _mean(weight[keep], of_row, pairs.numel())[of_entry]
        if attributes is not None:
            merged_attributes = _mean(attributes[keep], of_row, pairs.numel())[of_entry]
        if labels is not None:
            row_labels = labels[keep]
            first = torch.full_like(pairs, rows).scatter_reduce(
                0, of_row, torch.arange(of_row.numel(), device=of_row.device), "amin"
            )
            pair_labels = row_labels[first]
            differs = (row_labels != pair_labels[of_row]).any(-1)
            conflicting = int(torch.unique(of_row[differs]).numel())
            merged_labels = pair_labels[of_entry]

    report = EdgeReport(
        rows=rows,
        self_loops=self_loops,
        looped_nodes=looped_nodes,
        repeated=keys.numel() - distinct.numel(),
        one_way=missing.numel(),
        conflicting_labels=conflicting,
        edges=entries.numel() // 2,
    )
    return CleanEdges(ptr, entry_target, merged_weight, merged_labels, merged_attributes, report)


def edge_table(
    edge_index: Tensor,
    num_nodes: int,
    weight: Tensor | None = None,
    owner: str = "edge_table",
    *,
    kind: Tensor | None = None,
) -> EdgeTable:
    """Edge table of one batch in torch-geometric's form, ``edge_index [2, E]``.

    Edges are cleaned by :func:`clean_edges`; weights may require a gradient. ``kind [E]`` is that of
    :mod:`graphcaps.ops.edge_kinds`; among repeated edges the first decides. ``owner`` is named in error messages.
    """
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ShapeError(owner, "edge_index", "have the shape [2, E]", list(edge_index.shape))
    if weight is not None and weight.shape != edge_index.shape[1:]:
        raise ShapeError(
            owner, "edge_weight", f"have one number per edge, {edge_index.size(1)}", list(weight.shape)
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise ShapeError(
            owner,
            "edge_index",
            f"hold node ids from 0 to {num_nodes - 1}",
            f"{int(edge_index.min())} to {int(edge_index.max())}",
        )
    labels = None if kind is None else kind.unsqueeze(-1)
    clean = clean_edges(edge_index[0], edge_index[1], num_nodes, weight=weight, labels=labels)
    node = torch.arange(num_nodes, device=edge_index.device)
    return EdgeTable(
        clean.ptr,
        clean.neighbours,
        clean.weight,
        node,
        torch.zeros_like(node),
        num_entries=clean.neighbours.numel(),
        kind=None if clean.labels is None else clean.labels.squeeze(-1).int(),
    )


def edge_table_from_list(pairs: EdgeList, num_nodes: int) -> EdgeTable:
    """Edge table of clean edges of one batch, in any order.

    Unlike :func:`edge_table` it checks nothing and reads no value on the host, so that it can be exported.
    """
    order = (pairs.target * num_nodes + pairs.source).argsort()
    count = pairs.target.new_zeros(num_nodes + 1).index_add(
        0, pairs.target + 1, torch.ones_like(pairs.target)
    )
    node = torch.arange(num_nodes, device=order.device)
    return EdgeTable(
        count.cumsum(0),
        pairs.source[order],
        None if pairs.weight is None else pairs.weight[order],
        node,
        torch.zeros_like(node),
        num_entries=pairs.target.numel(),
        pairs=pairs,
        kind=None if pairs.kind is None else pairs.kind[order],
    )


def repeat_edges(edges: EdgeTable, copies: int) -> EdgeTable:
    """The edges of several copies of each replica, whose rows are ``[*lead, copies, V]``.

    Networks that run on the same graphs side by side are so many more replicas, and one product serves all of them.
    """

    def repeat(rows: Tensor) -> Tensor:
        return rows.unsqueeze(-2).expand(*rows.shape[:-1], copies, -1).contiguous()

    pairs, V = edges.pairs, edges.node.size(-1)
    if pairs is not None:
        first = [row + row // V * (copies - 1) * V for row in (pairs.source, pairs.target)]
        source, target = (torch.cat([row + copy * V for copy in range(copies)]) for row in first)
        weight, kind = (None if each is None else each.repeat(copies) for each in (pairs.weight, pairs.kind))
        pairs = EdgeList(source, target, weight, kind)
    return replace(
        edges,
        node=repeat(edges.node),
        first=repeat(edges.first),
        num_entries=None if edges.num_entries is None else copies * edges.num_entries,
        graphs=None if edges.graphs is None else repeat(edges.graphs),
        pairs=pairs,
        max_entries=None if edges.max_entries is None else copies * edges.max_entries,
    )


def _pair(source: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """One key per unordered pair."""
    return torch.minimum(source, target) * num_nodes + torch.maximum(source, target)


def _distinct(keys: Tensor) -> Tensor:
    """Sorted distinct keys. Keys are often sorted already, and numpy sorts faster than torch on a CPU."""
    if keys.numel() < 2 or bool((keys[1:] > keys[:-1]).all()):
        return keys
    if keys.device.type != "cpu":
        return torch.unique(keys)
    ordered = np.sort(keys.numpy())
    return torch.from_numpy(ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))])


def _is_symmetric(source: Tensor, target: Tensor, num_nodes: int) -> bool:
    """Whether sorted distinct pairs include the reverse of each, if that is found out faster than by a search.

    scipy transposes a sparse matrix in linear time. It is imported for large tables only.
    """
    if (
        source.device.type != "cpu"
        or source.numel() < _LARGE_TABLE
        or max(source.numel(), num_nodes) >= 2**31
    ):
        return False
    from scipy.sparse import csr_array

    ptr = np.zeros(num_nodes + 1, np.int32)
    np.cumsum(torch.bincount(source, minlength=num_nodes).numpy(), out=ptr[1:])
    present = np.ones(source.numel(), np.int8)
    columns = target.to(torch.int32).numpy()
    transposed = csr_array((present, columns, ptr), shape=(num_nodes, num_nodes)).tocsc()
    return np.array_equal(transposed.indptr, ptr) and np.array_equal(transposed.indices, columns)


def _contains(ordered: Tensor, keys: Tensor) -> Tensor:
    """Which of ``keys`` are in the ascending ``ordered``."""
    if not ordered.numel():
        return torch.zeros_like(keys, dtype=torch.bool)
    index = torch.searchsorted(ordered, keys).clamp_max_(ordered.numel() - 1)
    return ordered[index] == keys


def _mean(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Mean of ``values`` over rows of the same group, differentiable."""
    total = values.new_zeros(num_groups, *values.shape[1:]).index_add(0, group, values)
    count = torch.bincount(group, minlength=num_groups).to(values.dtype)
    return total / count.reshape(-1, *[1] * (values.dim() - 1))
