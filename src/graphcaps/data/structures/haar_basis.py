"""Coarser levels whose rows are coefficients in the Haar basis of a chain of spectral clusterings."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from graphcaps.data.structures.spectral_clusters import (
    DENSE_LIMIT,
    cluster_members,
    coarse_adjacency,
    spectral_clusters,
)
from graphcaps.ops.structure.precomputation import GraphLevel, GraphStructure, PlainGraph, Precomputation

__all__ = ["HaarLevels", "cluster_contrasts", "haar_basis"]

_CONTRAST_NODES = 32  # most nodes of a cluster whose contrasts compare one node with all later ones


@dataclass(frozen=True)
class HaarLevels(Precomputation):
    """A chain of clusterings of n nodes into ⌊n / 2⌋ + 1 clusters each, the last into one.

    Row l of a level is the coefficient of the l-th vector of the Haar basis of the level below; its edges are those of
    the clusters.

    Args:
        num_levels (int): Number of clusterings.
    """

    kind: ClassVar[str] = "haar"
    sparse_above: ClassVar[int | None] = DENSE_LIMIT
    weighted_edges: ClassVar[bool] = True

    num_levels: int = 3

    @property
    def level_weights(self) -> tuple[int, ...]:
        return (1,) * self.num_levels

    def compute(self, graph: PlainGraph) -> GraphStructure:
        adjacencies, chain = [graph.adjacency()], []
        for number in range(self.num_levels):
            n = adjacencies[-1].shape[0]
            last = number == self.num_levels - 1
            chain.append(spectral_clusters(adjacencies[-1], 1 if last else min(n, n // 2 + 1)))
            adjacencies.append(coarse_adjacency(adjacencies[-1], chain[-1]))
        levels = []
        for number, labels in enumerate(chain):
            # The first N' vectors of the basis: those of the coarse level, spread over the clusters.
            vectors = (_spread(labels) @ haar_basis(chain[number + 1 :])).tocsc()
            vectors.sort_indices()
            pointers, members = vectors.indptr.astype(np.int64), vectors.indices.astype(np.int64)
            levels.append(GraphLevel(adjacencies[number + 1], pointers, members, vectors.data[:, None]))
        return GraphStructure(tuple(levels))


def haar_basis(chain: list[NDArray[np.int64]]) -> sparse.csr_array:
    r"""The orthonormal Haar basis of a level, its vectors as columns, ``[n, n]``.

    The first vectors are those of the next coarser level, :math:`\phi_l(\mathrm{parent}) / \sqrt{|\mathrm{cluster}|}`;
    the others are the contrasts of :func:`cluster_contrasts` inside each cluster, one cluster after another.

    Args:
        chain (list): Cluster of each node, ``[n]``, then of each cluster of the next coarser level, and so on; the last
            has one cluster. An empty list is the level of a single node.
    """
    if not chain:
        return sparse.csr_array(np.ones((1, 1)))
    labels = chain[0]
    ptr, members = cluster_members(labels)
    rows, columns, values, column = [], [], [], 0
    for first, end in pairwise(ptr):
        block = cluster_contrasts(int(end - first))
        rows.append(members[first + block.row])
        columns.append(column + block.col)
        values.append(block.data)
        column += block.shape[1]
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    contrasts = sparse.csr_array(sparse.coo_array(entries, shape=(len(labels), column)))
    return sparse.csr_array(sparse.hstack([_spread(labels) @ haar_basis(chain[1:]), contrasts]))


def cluster_contrasts(size: int) -> sparse.coo_array:
    r"""Orthonormal vectors with sum 0 over the nodes of a cluster, as columns, ``[c, c − 1]``.

    .. math:: \phi_l = \sqrt{\frac{c - l + 1}{c - l + 2}} \Big(\chi_{l-1} - \frac{1}{c - l + 1} \sum_{j \ge l} \chi_j
        \Big), \quad l = 2, \dots, c

    These are the published ones. They have c² / 2 entries, so that a cluster of more than 32 nodes is halved first: one
    vector compares its halves, and the others are those of each half.
    """
    if size <= _CONTRAST_NODES:
        later = np.arange(size - 1, 0, -1)  # nodes after the one that is compared
        matrix = np.tril(np.broadcast_to(-1 / np.maximum(later, 1), (size, size - 1)), -1)
        matrix[np.arange(size - 1), np.arange(size - 1)] = 1
        return sparse.coo_array(matrix * np.sqrt(later / (later + 1)))
    a, b = size // 2, size - size // 2
    halves = np.concatenate([np.full(a, np.sqrt(b / (a * size))), np.full(b, -np.sqrt(a / (b * size)))])
    rest = sparse.block_diag([cluster_contrasts(a), cluster_contrasts(b)])
    return sparse.coo_array(sparse.hstack([sparse.coo_array(halves[:, None]), rest]))


def _spread(labels: NDArray[np.int64]) -> sparse.csr_array:
    """1 / √size at each node's cluster, ``[n, k]``: the transpose sums over clusters and divides by √size."""
    sizes = np.bincount(labels)
    values = 1 / np.sqrt(sizes[labels])
    return sparse.csr_array((values, labels, np.arange(len(labels) + 1)), shape=(len(labels), len(sizes)))
