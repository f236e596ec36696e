"""Deterministic spectral clustering of one graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh

__all__ = ["DENSE_LIMIT", "cluster_members", "coarse_adjacency", "spectral_clusters"]

DENSE_LIMIT = 3000
"""Most nodes of a graph that is clustered at once, with a dense eigensolver."""
_BLOCK_NODES = 1000  # most nodes of a block of a larger graph
_TIE_BREAK = 1e-4  # of the smallest eigenvalues that matter; rounding is 1e-16


def spectral_clusters(adjacency: sparse.csr_array, num_clusters: int) -> NDArray[np.int64]:
    r"""The cluster of each node, ``[n]``, from 0 on in the order of their first nodes.

    With the k eigenvectors U of the smallest eigenvalues of :math:`I - D^{-1/2} A D^{-1/2}`, k representative nodes are
    chosen by a QR decomposition of :math:`U^\top` with column pivoting, as in Damle, Minden and Ying (Information and
    Inference, 2019). Every node joins the representative with the largest absolute coefficient when its row of U is
    written as a combination of theirs. There is no random start, and no cluster is empty.

    A diagonal that grows with the index of a node, up to 1e-4, is added to the matrix. Graphs with symmetries have
    equal eigenvalues, for which eigenvectors would depend on rounding; this way they depend on the order of nodes.

    Above ``DENSE_LIMIT`` nodes, a sparse eigensolver computes the second eigenvector alone. Nodes are sorted by it, cut
    into blocks of at most 1,000, and the blocks are clustered on their own, with clusters in proportion to their nodes.

    Args:
        adjacency (csr_array): Symmetric adjacency A with weights of at least 0 and an empty diagonal, ``[n, n]``.
        num_clusters (int): Number of clusters k, from 1 to n.
    """
    labels = _cluster(adjacency, num_clusters)
    first = np.unique(labels, return_index=True)[1]
    return np.argsort(np.argsort(first))[np.unique(labels, return_inverse=True)[1]]


def cluster_members(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets ``[k + 1]`` and nodes ``[n]`` of the clusters, one after another, nodes ascending."""
    return np.concatenate([[0], np.bincount(labels).cumsum()]), labels.argsort(kind="stable")


def coarse_adjacency(adjacency: sparse.csr_array, labels: NDArray[np.int64]) -> sparse.csr_array:
    """Sum of the edge weights between each two clusters, ``[k, k]``; edges inside clusters are left out."""
    edges, k = adjacency.tocoo(), int(labels.max()) + 1
    source, target = labels[edges.row], labels[edges.col]
    between = source != target
    entries = (edges.data[between], (source[between], target[between]))
    return sparse.csr_array(sparse.coo_array(entries, shape=(k, k)))  # repeated entries are added


def _cluster(adjacency: sparse.csr_array, k: int) -> NDArray[np.int64]:
    n = adjacency.shape[0]
    if k == 1:
        return np.zeros(n, dtype=np.int64)
    if k >= n:
        return np.arange(n)
    if n <= DENSE_LIMIT:
        return _assign(_embed(adjacency, k))
    order = _second_eigenvector(adjacency).argsort(kind="stable")
    bounds = np.linspace(0, n, -(-n // _BLOCK_NODES) + 1).astype(np.int64)
    # The number of clusters up to each bound, so that rounding does not change their sum.
    until = np.maximum(np.rint(bounds * (k / n)).astype(np.int64), np.arange(len(bounds)))
    labels = np.empty(n, dtype=np.int64)
    for block in range(len(bounds) - 1):
        nodes = np.sort(order[bounds[block] : bounds[block + 1]])
        clusters = int(until[block + 1] - until[block])
        labels[nodes] = until[block] + _cluster(adjacency[nodes][:, nodes], min(max(clusters, 1), len(nodes)))
    return labels


def _normalised(adjacency: sparse.csr_array) -> sparse.csr_array:
    """D^(−1/2) A D^(−1/2); rows of nodes without neighbours are 0."""
    scale = 1 / np.sqrt(np.maximum(adjacency.sum(1), 1))
    return sparse.csr_array(sparse.diags_array(scale) @ adjacency @ sparse.diags_array(scale))


def _embed(adjacency: sparse.csr_array, k: int) -> NDArray[np.float64]:
    """Eigenvectors of the k smallest eigenvalues of the normalised Laplacian, ``[n, k]``."""
    n = adjacency.shape[0]
    laplacian = -_normalised(adjacency).toarray()
    laplacian[np.diag_indices(n)] += 1 + _TIE_BREAK * np.arange(1, n + 1) / n
    if 4 * k > n:
        return np.linalg.eigh(laplacian)[1][:, :k]
    vectors: NDArray[np.float64] = linalg.eigh(laplacian, subset_by_index=(0, k - 1), overwrite_a=True)[1]
    return vectors


def _assign(vectors: NDArray[np.float64]) -> NDArray[np.int64]:
    n, k = vectors.shape
    triangle, order = linalg.qr(vectors.T, mode="r", pivoting=True, check_finite=False)
    coefficients = linalg.solve_triangular(triangle[:, :k], triangle[:, k:], check_finite=False)
    labels = np.empty(n, dtype=np.int64)
    labels[order[:k]] = np.arange(k)
    labels[order[k:]] = np.abs(coefficients).argmax(0)
    return labels


def _second_eigenvector(adjacency: sparse.csr_array) -> NDArray[np.float64]:
    """The eigenvector of the second largest eigenvalue of D^(−1/2) A D^(−1/2), from a fixed start vector."""
    n = adjacency.shape[0]
    shifted = _normalised(adjacency) - sparse.diags_array(_TIE_BREAK * np.arange(1, n + 1) / n)
    values, vectors = eigsh(shifted, k=2, which="LA", v0=np.ones(n) + np.arange(n) / n, tol=1e-5)
    second: NDArray[np.float64] = vectors[:, values.argmin()]
    return second * np.sign(second[np.abs(second).argmax()])
