"""Vectors of Weisfeiler-Lehman colours from the graphs they occur in together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from threadpoolctl import threadpool_limits

__all__ = ["embed_colours", "positive_information"]

_DENSE_COLOURS = 512  # up to this many colours all eigenvectors are computed, which is faster
_EXTRA_VECTORS, _POWERS = 10, 6  # of the randomised iteration


def positive_information(counts: csr_array) -> csr_array:
    r"""Positive pointwise mutual information of each pair of colours, float64 ``[C, C]``, symmetric.

    Two nodes of a graph form a pair, and the pairs of one node have the total weight 1. So colours a and b have the
    weight

    .. math:: N_{ab} = \sum_G \frac{\phi_a(G)\, (\phi_b(G) - [a = b])}{|\phi(G)| - 1}, \qquad
        P_{ab} = \max\Big(0, \log \frac{N_{ab} \sum_{cd} N_{cd}}{\sum_c N_{ac} \sum_c N_{cb}}\Big)

    with the counts φ and their sum |φ| in a graph. It is the expectation of a window of word2vec over all orders of the
    nodes, up to a factor. Graphs with fewer than two nodes have no pairs.

    Args:
        counts (csr_array): Number of nodes of each colour in each graph, ``[G, C]``.
    """
    counts = csr_array(counts, dtype=np.float64)
    nodes = counts.sum(1)
    weight = np.where(nodes > 1, 1 / np.maximum(nodes - 1, 1), 0.0)
    pairs = csr_array(counts.T @ (diags_array(weight) @ counts)) - diags_array(counts.T @ weight)
    pairs = csr_array((pairs + pairs.T) / 2)  # equal up to rounding
    marginal = counts.T @ (nodes > 1).astype(np.float64)
    row = np.repeat(np.arange(len(marginal)), np.diff(pairs.indptr))
    expected = marginal[row] * marginal[pairs.indices] / max(marginal.sum(), 1.0)
    ratio = pairs.data / np.maximum(expected, np.finfo(np.float64).tiny)
    pairs.data = np.log(np.maximum(ratio, 1.0))
    pairs.eliminate_zeros()
    return pairs


def embed_colours(counts: csr_array, dimension: int) -> NDArray[np.float64]:
    r"""Vectors of colours whose scalar products approximate :func:`positive_information`, float64 ``[C, dimension]``.

    With the singular value decomposition :math:`P = Q \Sigma Q'^\top` the vectors are the rows of
    :math:`Q \sqrt{\Sigma}`, the largest singular values first. So the first d columns are the vectors of dimension d.
    Columns without a singular value are 0.

    Args:
        counts (csr_array): Number of nodes of each colour in each graph, ``[G, C]``.
        dimension (int): Length of a vector, at least 1.
    """
    information = positive_information(counts)
    with threadpool_limits(1, user_api="blas"):  # the matrices are narrow: one thread is faster
        values, vectors = _largest_eigenvectors(information, dimension)
    embedding = np.zeros((len(vectors), dimension))
    # The singular values of a symmetric matrix are the absolute eigenvalues.
    embedding[:, : len(values)] = vectors * np.sqrt(np.abs(values))
    return embedding


def _largest_eigenvectors(matrix: csr_array, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The eigenvalues of a symmetric matrix with the largest absolute values, in this order, and their eigenvectors.

    Those of a large matrix come from a randomised subspace iteration (Halko, Martinsson and Tropp, SIAM Review 2011),
    with a fixed seed.
    """
    C = matrix.shape[0]
    if max(_DENSE_COLOURS, 2 * count) >= C:
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        basis = np.random.default_rng(0).normal(size=(C, count + _EXTRA_VECTORS))
        for _ in range(_POWERS):
            basis, _triangle = np.linalg.qr(matrix @ basis)
        values, rotation = np.linalg.eigh(basis.T @ (matrix @ basis))
        vectors = basis @ rotation
    order = np.argsort(-np.abs(values), kind="stable")[:count]
    return values[order], vectors[:, order]
