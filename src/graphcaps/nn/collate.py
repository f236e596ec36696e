"""Converts graphs in the form of torch-geometric to a :class:`GraphBatch`, and checks them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.autocast import autocast_enabled
from graphcaps.ops.compilation import untraced
from graphcaps.ops.edge_kinds import edge_kind
from graphcaps.ops.edges import edge_table
from graphcaps.ops.structure.computation import compute_graphs
from graphcaps.ops.structure.level_layout import attach_structure, count_level_rows
from graphcaps.ops.structure.precomputation import PlainGraph, Precomputation
from graphcaps.ops.structure.structure import join_structures
from graphcaps.types import GraphBatch, Segments

__all__ = ["attach_precomputed", "collate", "collate_segments"]


@untraced
def collate(
    owner: str,
    x: Tensor,
    edge_index: Tensor,
    batch: Tensor | None,
    edge_weight: Tensor | None,
    num_graphs: int | None,
    dtype: torch.dtype,
    *,
    edge_attr: Tensor | None = None,
    edge_kinds: tuple[int, ...] = (),
) -> GraphBatch:
    """A batch for a module ``owner`` with weights of type ``dtype``; the other arguments as in :meth:`HGCN.forward`.

    Raises:
        ArgumentError: If a feature is not finite, or ``edge_attr`` is missing for a module that reads it, or given to
            one that does not.
        ShapeError: If shapes or types disagree, ``batch`` is not sorted, or an edge connects two graphs.
    """
    if x.dim() != 2:
        raise ShapeError(owner, "x", "have the shape [V, in]", list(x.shape))
    if autocast_enabled(x):
        x = x.to(dtype)  # a layer before this one may have made it bfloat16
    if x.dtype != dtype:
        fix = f"Convert it with x.to({dtype})."
        raise ShapeError(owner, "x", f"be {dtype}, as the weights are", x.dtype, fix)
    if not bool(x.detach().isfinite().all()):
        row = int((~x.detach().isfinite()).any(-1).nonzero()[0])
        raise ArgumentError(owner, "x", "be finite", f"NaN or infinity in row {row}")
    if edge_index.is_floating_point():
        raise ShapeError(owner, "edge_index", "be an integer tensor", edge_index.dtype)
    kind = _edge_kind(owner, edge_index, edge_attr, edge_kinds)
    segments = collate_segments(owner, x, batch, num_graphs)
    edges = edge_table(edge_index, x.size(0), edge_weight, owner, kind=kind)
    graph = segments.index
    if bool((graph[edge_index[0]] != graph[edge_index[1]]).any()):
        raise ShapeError(owner, "edge_index", "connect nodes of the same graph", "an edge between two graphs")
    return GraphBatch(x, segments, edges)


def attach_precomputed(
    owner: str, batch: GraphBatch, precomputation: Precomputation | None, dtype: torch.dtype
) -> GraphBatch:
    """The batch of :func:`collate` with what a module ``owner`` needs computed from each graph, computed here.

    Raises:
        ArgumentError: If the computation reads node labels, which the arguments of a call do not have.
    """
    if precomputation is None:
        return batch
    if precomputation.reads_labels:
        fix = "Make a batch from graphcaps.data.precompute.precompute(store, model.precomputation)."
        raise ArgumentError(owner, "x", "come with node labels, which are precomputed from", "none", fix)
    sizes = batch.segments.sizes.cpu()
    ptr, neighbours = batch.edges.ptr.cpu().numpy(), batch.edges.neighbours.cpu().numpy().astype(np.int64)
    graphs = [  # neighbours are rows of the batch
        PlainGraph(ptr[first : end + 1] - ptr[first], neighbours[ptr[first] : ptr[end]] - first)
        for first, end in pairwise(batch.segments.ptr.tolist())
    ]
    results = list(compute_graphs(precomputation, graphs))
    structure = join_structures(precomputation, sizes, results).to(batch.segments.ptr.device, dtype)
    order = torch.arange(batch.num_graphs, device=batch.segments.ptr.device)
    return attach_structure(batch, structure, order, count_level_rows(structure, order.cpu()))


def collate_segments(owner: str, x: Tensor, batch: Tensor | None, num_graphs: int | None) -> Segments:
    """Segments of a sorted ``batch [V]``, the graph of each row of ``x [V, d]``; one graph without it.

    Raises:
        ShapeError: If shapes or types disagree, or ``batch`` is not sorted.
    """
    if x.dim() != 2:
        raise ShapeError(owner, "x", "have the shape [V, in]", list(x.shape))
    if batch is None:
        batch = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        num_graphs = 1 if num_graphs is None and not x.size(0) else num_graphs  # one graph, without nodes
    if batch.is_floating_point():
        raise ShapeError(owner, "batch", "be an integer tensor", batch.dtype)
    if batch.shape != x.shape[:1]:
        raise ShapeError(owner, "batch", f"have one entry per node, {x.size(0)}", list(batch.shape))
    if bool((batch[1:] < batch[:-1]).any()):
        raise ShapeError(owner, "batch", "be sorted", "an unsorted tensor", "Sort the nodes by graph.")
    if num_graphs is not None and batch.numel() and int(batch[-1]) >= num_graphs:
        raise ShapeError(owner, "batch", f"name graphs below 'num_graphs', {num_graphs}", int(batch[-1]))
    return Segments.from_index(batch, num_graphs)


def _edge_kind(
    owner: str, edge_index: Tensor, edge_attr: Tensor | None, edge_kinds: tuple[int, ...]
) -> Tensor | None:
    """Kinds of the edges for a module with these ``edge_kinds``; ``None`` if it reads none."""
    if not edge_kinds:
        if edge_attr is not None:
            fix = "Build it with edge_kinds, the number of values of each edge label, or leave edge_attr out."
            raise ArgumentError(owner, "edge_attr", "be None without edge_kinds", "a tensor", fix)
        return None
    if edge_attr is None:
        expected = f"hold the labels of the edges, since edge_kinds is {edge_kinds}"
        raise ArgumentError(owner, "edge_attr", expected, "None")
    if edge_attr.shape[:1] != edge_index.shape[1:]:
        expected = f"have one row per edge, {edge_index.size(-1)}"
        raise ShapeError(owner, "edge_attr", expected, list(edge_attr.shape))
    return edge_kind(edge_attr, edge_kinds, owner)
