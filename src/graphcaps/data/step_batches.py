"""The batches of consecutive training steps of one model on a CPU, laid out together.

Which node fills which row, the tiles of the graphs and their adjacency take some two hundred small operations per
batch. For a run of steps they are the same operations on longer arrays, of which each batch gets a slice.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.ops.propagation.adjacency_tiles import AdjacencyTiles, dense_matrices, keep_adjacency_tiles
from graphcaps.ops.ragged.tiles import TILE_HEIGHT, Tiles, keep_tiles
from graphcaps.types import EdgeTable, GraphBatch, Segments

__all__ = ["collate_steps"]

_MAX_ROWS = 1 << 15  # of the steps that are laid out together


def collate_steps(store: GraphStore, x: Tensor, steps: list[Tensor]) -> Iterator[GraphBatch]:
    """The batches of ``store.batch(x, graphs)`` for the graphs of each step.

    Args:
        store (GraphStore): Graphs, on the host.
        x (Tensor): Features of all nodes, ``[N, in]``.
        steps (list): Graphs of each step, ``[1, B]``. A step with padding, with a graph without nodes, or of a store
            with a precomputed structure, is collated alone.
    """
    sizes = store.host_node_ptr.diff().numpy()
    listed = [graphs.numpy()[0] for graphs in steps]
    run: list[np.ndarray] = []
    rows = 0
    for graphs in listed:
        if not _is_plain(store, graphs, sizes):
            yield from _collate_run(store, x, run, sizes)
            run, rows = [], 0
            yield store.batch(x, torch.from_numpy(graphs).unsqueeze(0))
            continue
        count = int(sizes[graphs].sum())
        if run and rows + count > _MAX_ROWS:
            yield from _collate_run(store, x, run, sizes)
            run, rows = [], 0
        run.append(graphs)
        rows += count
    yield from _collate_run(store, x, run, sizes)


def _is_plain(store: GraphStore, graphs: np.ndarray, sizes: np.ndarray) -> bool:
    return store.structure is None and graphs.size > 0 and graphs.min() >= 0 and sizes[graphs].min() > 0


def _collate_run(
    store: GraphStore, x: Tensor, run: list[np.ndarray], sizes: np.ndarray
) -> Iterator[GraphBatch]:
    if not run:
        return
    graphs = np.concatenate(run)
    num_graphs = np.array([len(each) for each in run])
    n = sizes[graphs]
    end = n.cumsum()
    first_graph = num_graphs.cumsum() - num_graphs  # of each step
    step = np.repeat(np.arange(len(run)), num_graphs)  # of each graph
    first_row = (end - n)[first_graph]  # of each step
    start = end - n - first_row[step]  # first row of each graph in its step
    number = np.arange(len(graphs)) - first_graph[step]  # of each graph in its step
    ptr = np.insert(start + n, first_graph, 0)  # in each step 0, then the end of each graph
    offset = np.arange(end[-1]) - np.repeat(end - n, n)  # of each row in its graph
    node = np.repeat(store.node_ptr.numpy()[graphs], n) + offset
    num_rows = np.diff(np.append(first_row, end[-1])).tolist()

    def split(array: np.ndarray, counts: list[int]) -> tuple[Tensor, ...]:
        return torch.from_numpy(array).unsqueeze(0).split(counts, 1)

    counts = num_graphs.tolist()
    nodes = torch.from_numpy(node)
    parts = zip(
        split(ptr, [count + 1 for count in counts]),
        split(np.repeat(number, n), num_rows),
        split(node, num_rows),
        split(np.repeat(start, n), num_rows),
        x.index_select(0, nodes).unsqueeze(0).split(num_rows, 1),
        [None] * len(run) if store.y is None else split(store.y.numpy()[graphs], counts),
        np.maximum.reduceat(n, first_graph).tolist(),
        np.add.reduceat(_entries(store, graphs), first_graph).tolist(),
        strict=True,
    )
    batches = []
    for pointers, index, rows, first, features, y, largest, entries in parts:
        segments = Segments(pointers, index, padded=False, max_size=largest)
        edges = EdgeTable(
            store.edge_ptr, store.neighbours, store.edge_weight, rows, first, entries, store.max_degree,
            store.bits, pointers, kind=store.edge_kind, max_entries=entries,
        )  # fmt: skip
        batches.append(GraphBatch(features, segments, edges, y))
    if n.max() <= TILE_HEIGHT:
        _attach_tiles(store, x.dtype, batches, n, start, number, offset, node)
    yield from batches


def _entries(store: GraphStore, graphs: np.ndarray) -> np.ndarray:
    """Number of edge entries of each graph."""
    ptr = store.host_entry_ptr.numpy()
    return ptr[graphs + 1] - ptr[graphs]


def _attach_tiles(
    store: GraphStore,
    dtype: torch.dtype,
    batches: list[GraphBatch],
    n: np.ndarray,
    start: np.ndarray,
    number: np.ndarray,
    offset: np.ndarray,
    node: np.ndarray,
) -> None:
    """Tiles of all graphs of a run, one per graph, and their adjacency.

    Args:
        store (GraphStore): All graphs.
        dtype (torch.dtype): Type of the matrices.
        batches (list): The batches, without tiles.
        n, start, number (array): Size of each graph, its first row and its number in its step, ``[M]``.
        offset, node (array): Of each row, its number in its graph and its node of the store, ``[R]``.
    """
    t, M = int(n.max()), len(n)
    column = np.arange(t)
    rows = start[:, None] + np.minimum(column, n[:, None] - 1)
    holes = column >= n[:, None]
    position = np.repeat(number, n) * t + offset
    adjacency: Tensor | None = None
    if store.edge_weight is None:
        ptr = store.edge_ptr.numpy()
        degree = ptr[node + 1] - ptr[node]
        total = degree.cumsum()
        entry = np.arange(total[-1] if len(total) else 0) + np.repeat(ptr[node] - total + degree, degree)
        row = np.repeat(np.arange(M), n) * t + offset  # among the rows of all tiles
        adjacency = torch.zeros(M * t * t, dtype=dtype)
        adjacency[torch.from_numpy(np.repeat(row, degree) * t + store.neighbours.numpy()[entry])] = 1
        adjacency = adjacency.view(M, t, t)
        dense = adjacency, *dense_matrices(adjacency, torch.from_numpy(holes))
    first, first_row = 0, 0
    for batch in batches:
        B, V = batch.segments.num_graphs, batch.segments.num_rows
        these, those = slice(first, first + B), slice(first_row, first_row + V)
        tile = torch.from_numpy(rows[these]).unsqueeze(0)
        hole = torch.from_numpy(holes[these])
        place = torch.from_numpy(position[those]).unsqueeze(0)
        tiles = Tiles(
            tile, hole.unsqueeze(0), torch.arange(B).unsqueeze(0), place, B, True,
            (tile.view(-1), hole.view(-1).nonzero().squeeze(-1)), (place.view(-1), None),
        )  # fmt: skip
        keep_tiles(batch.segments, tiles)
        if adjacency is not None:
            keep_adjacency_tiles(batch.edges, AdjacencyTiles(tiles, *(each[these] for each in dense)))
        first, first_row = first + B, first_row + V
