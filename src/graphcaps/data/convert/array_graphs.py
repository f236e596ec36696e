"""Conversion from adjacency matrices and edge lists in arrays.

A square matrix (numpy, scipy.sparse or a dense tensor) is an adjacency matrix: entries that are not zero are edges.
Values other than 1 are weights. An integer array of shape [2, E] (torch-geometric's ``edge_index``) or [E, 2] is an
edge list. Its number of nodes is given, or is the largest index plus 1, which misses isolated nodes with larger
indices. Indices far above the number of edges are taken for identifiers and refused. Edges are then cleaned
(:func:`graphcaps.ops.clean_edges`), and ``store.report`` counts the changes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["from_arrays", "is_array"]

_OWNER = "from_arrays"
_MAX_NODES_PER_EDGE, _ALWAYS_ALLOWED = 1000, 10**6  # nodes of an edge list, if their number is not stated
_SHAPES = "be square adjacency matrices, or integer edge lists of shape [2, E] or [E, 2]"


def is_array(value: object) -> bool:
    """Whether it is a numeric numpy array, a tensor or a scipy.sparse matrix."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    return isinstance(value, Tensor) or _is_sparse(value)


def _is_sparse(value: object) -> bool:
    """Whether it is a scipy.sparse matrix; there is none before its module is imported, which takes a while."""
    module = sys.modules.get("scipy.sparse")
    return module is not None and bool(module.issparse(value))


def from_arrays(
    arrays: Sequence[Any], name: str = "graphs", *, num_nodes: int | Sequence[int] | None = None
) -> GraphStore:
    """Converts adjacency matrices or edge lists, one per graph, to a store.

    Args:
        arrays (sequence): numpy arrays, scipy.sparse matrices or dense tensors.
        name (str): Name of the store.
        num_nodes (int or sequence, optional): Number of nodes of each graph; all arrays are then edge lists.
            (default: that of the matrix, or the largest index of an edge list plus 1)

    Raises:
        ArgumentError: If an array is neither, or could be both; the message names the graph.
    """
    counts = _node_counts(num_nodes, len(arrays))
    graphs = [_graph(index, array, counts[index]) for index, array in enumerate(arrays)]
    if any(graph.edge_weight is not None for graph in graphs):
        graphs = [
            graph
            if graph.edge_weight is not None
            else replace(graph, edge_weight=torch.ones(graph.edge_index.size(1)))
            for graph in graphs
        ]
    return store_from_graphs(graphs, name, owner=_OWNER)


def _node_counts(num_nodes: int | Sequence[int] | None, graphs: int) -> list[int | None]:
    if num_nodes is None:
        return [None] * graphs
    listed = [num_nodes] * graphs if isinstance(num_nodes, int | np.integer) else list(num_nodes)
    if len(listed) != graphs:
        raise ArgumentError(_OWNER, "num_nodes", f"hold one number per graph, {graphs}", len(listed))
    for count in listed:
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 0:
            raise ArgumentError(_OWNER, "num_nodes", "be whole numbers", repr(count))
    return [int(count) for count in listed]


def _graph(index: int, array: Any, num_nodes: int | None) -> GraphArrays:
    if isinstance(array, Tensor):
        if array.layout != torch.strided:
            fix = "Pass a dense tensor or a scipy.sparse matrix."
            raise ArgumentError(_OWNER, "graphs", _SHAPES, f"a sparse tensor as graph {index}", fix)
        array = array.detach().cpu().numpy()
    sparse = _is_sparse(array)
    shape = tuple(array.shape)
    described = f"an array of shape {list(shape)} as graph {index}"
    is_edge_list = len(shape) == 2 and 2 in shape and not sparse and array.dtype.kind in "iu"
    if num_nodes is not None and not is_edge_list:
        raise ArgumentError(_OWNER, "num_nodes", "be passed with integer edge lists only", described)
    if is_edge_list and shape == (2, 2):
        raise ArgumentError(
            _OWNER,
            "graphs",
            "have a shape that is either a matrix or an edge list",
            described,
            "Pass a matrix as scipy.sparse.coo_array(…), edges as torch-geometric Data(edge_index=…, num_nodes=…).",
        )
    if is_edge_list:
        return _edge_list(index, array if shape[0] == 2 else array.T, num_nodes)
    if len(shape) != 2 or shape[0] != shape[1] or array.dtype.kind not in "biuf":
        raise ArgumentError(_OWNER, "graphs", _SHAPES, described)
    return _adjacency(index, array)


def _edge_list(index: int, ends: np.ndarray, num_nodes: int | None) -> GraphArrays:
    if num_nodes is None:
        if not ends.size:
            fix = "Pass num_nodes=…."
            raise ArgumentError(
                _OWNER, "graphs", "have edges, or a number of nodes", f"none in graph {index}", fix
            )
        num_nodes = int(ends.max()) + 1
        limit = max(_ALWAYS_ALLOWED, _MAX_NODES_PER_EDGE * ends.shape[1])
        if num_nodes > limit:
            expected = f"hold node indices below {limit:,} in graph {index}"
            fix = "Number the nodes from 0, or pass num_nodes=…."
            raise ArgumentError(_OWNER, "graphs", expected, num_nodes - 1, fix)
    return GraphArrays(num_nodes, torch.from_numpy(np.ascontiguousarray(ends, dtype=np.int64)))


def _adjacency(index: int, matrix: Any) -> GraphArrays:
    from scipy.sparse import coo_array

    entries = coo_array(matrix)
    values = np.asarray(entries.data, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ArgumentError(_OWNER, "graphs", "hold finite numbers", f"NaN or infinity in graph {index}")
    edges = values != 0  # a sparse matrix may store zeros
    source, target = (torch.from_numpy(axis[edges].astype(np.int64)) for axis in entries.coords)
    weights = values[edges]
    weight = None if bool((weights == 1).all()) else torch.from_numpy(weights).float()
    return GraphArrays(int(entries.shape[0]), torch.stack([source, target]), edge_weight=weight)
