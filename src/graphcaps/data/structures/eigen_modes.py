"""Coarser levels of spectral clusters, whose members are weighted by Laplacian eigenvectors of their cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from graphcaps.data.structures.spectral_clusters import (
    DENSE_LIMIT,
    cluster_members,
    coarse_adjacency,
    spectral_clusters,
)
from graphcaps.ops.structure.precomputation import GraphLevel, GraphStructure, PlainGraph, Precomputation

__all__ = ["EigenLevels", "cluster_modes", "laplacian_modes"]

_TIE_BREAK = (
    1e-8  # where eigenvalues are equal, the eigenvectors depend on the order of nodes and not on rounding
)


@dataclass(frozen=True)
class EigenLevels(Precomputation):
    """One level for each cluster size, and a last one with one node per graph.

    Args:
        cluster_sizes (tuple): For each level the mean number s of members: a graph of n nodes has max(1, ⌊n / s⌋)
            clusters.
        modes (int): Number of eigenvectors H of a cluster.
        final_modes (int): Number of eigenvectors of the coarsest graph, for the last level.
    """

    kind: ClassVar[str] = "eigenvectors of clusters"
    sparse_above: ClassVar[int | None] = DENSE_LIMIT
    weighted_edges: ClassVar[bool] = True

    cluster_sizes: tuple[int, ...] = (10,)
    modes: int = 3
    final_modes: int = 1

    @property
    def level_weights(self) -> tuple[int, ...]:
        return (*(self.modes for _ in self.cluster_sizes), self.final_modes)

    def compute(self, graph: PlainGraph) -> GraphStructure:
        adjacency, levels = graph.adjacency(), []
        for size in self.cluster_sizes:
            labels = spectral_clusters(adjacency, max(1, adjacency.shape[0] // size))
            levels.append(_level(adjacency, labels, self.modes))
            adjacency = levels[-1].adjacency
        levels.append(_level(adjacency, np.zeros(adjacency.shape[0], dtype=np.int64), self.final_modes))
        return GraphStructure(tuple(levels))


def _level(adjacency: sparse.csr_array, labels: NDArray[np.int64], modes: int) -> GraphLevel:
    ptr, members = cluster_members(labels)
    weights = cluster_modes(adjacency, labels, modes)
    return GraphLevel(coarse_adjacency(adjacency, labels), ptr, members, weights)


def cluster_modes(adjacency: sparse.csr_array, labels: NDArray[np.int64], modes: int) -> NDArray[np.float64]:
    """The first eigenvectors of the Laplacian of each cluster's induced subgraph, in the order of its members.

    A cluster with fewer nodes than ``modes`` repeats its last eigenvector.

    Args:
        adjacency (csr_array): Symmetric adjacency, ``[n, n]``.
        labels (array): Cluster of each node, ``[n]``.
        modes (int): Number of eigenvectors H.

    Returns:
        array: Entries of the eigenvectors at the members of :func:`cluster_members`, ``[n, H]``.
    """
    ptr, members = cluster_members(labels)
    sizes = np.diff(ptr)
    weights = np.repeat(1 / np.sqrt(sizes), sizes)[:, None].repeat(modes, 1)  # the constant first eigenvector
    if modes == 1:
        return weights
    position = np.empty(len(labels), dtype=np.int64)
    position[members] = np.arange(len(labels)) - np.repeat(ptr[:-1], sizes)
    edges = adjacency.tocoo()
    inside = labels[edges.row] == labels[edges.col]
    row, column, value = (array[inside] for array in (edges.row, edges.col, edges.data))
    order = labels[row].argsort(kind="stable")
    bounds = np.searchsorted(labels[row][order], np.arange(len(sizes) + 1))
    for cluster in np.flatnonzero(sizes > 1):
        own = order[bounds[cluster] : bounds[cluster + 1]]
        block = np.zeros((sizes[cluster], sizes[cluster]))
        block[position[row[own]], position[column[own]]] = value[own]
        vectors = laplacian_modes(block, modes)
        weights[ptr[cluster] : ptr[cluster + 1]] = vectors
    return weights


def laplacian_modes(adjacency: NDArray[np.float64], modes: int) -> NDArray[np.float64]:
    """Eigenvectors of the smallest eigenvalues of D − A, ``[m, modes]``, with a positive first entry.

    The first one is constant, also if the graph is not connected. Missing ones repeat the last. The basis is
    orthonormal; where eigenvalues are equal, it follows the order of nodes.

    Args:
        adjacency (array): Symmetric adjacency, ``[m, m]``.
        modes (int): Number of eigenvectors.
    """
    m = len(adjacency)
    constant = np.full((m, 1), m**-0.5)
    count = min(modes, m) - 1
    if count == 0:
        return constant.repeat(modes, 1)
    laplacian = np.diag(adjacency.sum(1) + _TIE_BREAK * np.arange(1, m + 1) / m) - adjacency
    # The reflection I − v vᵀ maps the first unit vector to the constant one: its other columns are a basis of the rest.
    v = constant[:, 0].copy()
    v[0] -= 1
    v *= (2 / (v @ v)) ** 0.5
    image = laplacian @ v
    reflected = laplacian - np.outer(v, image) - np.outer(image, v) + (v @ image) * np.outer(v, v)
    found = linalg.eigh(reflected[1:, 1:], subset_by_index=(0, count - 1))[1]
    found = np.concatenate([np.zeros((1, count)), found])
    vectors = np.concatenate([constant, found - np.outer(v, v @ found)], 1)
    leading = np.abs(vectors) > 1e-6
    vectors *= np.sign(vectors[leading.argmax(0), np.arange(count + 1)])
    return np.concatenate([vectors, vectors[:, -1:].repeat(modes - count - 1, 1)], 1)
