r"""Columns of random walks with restart, which describe the place of a node in its graph.

With the adjacency :math:`\tilde A = D^{-1/2} A D^{-1/2}`,

.. math:: R = (1 - c) (I - c \tilde A)^{-1} = (1 - c) \sum_{l \ge 0} c^l \tilde A^l

where c is the probability that a walk takes one more step. The columns of node i are the largest entries of row i of R
in descending order. They do not depend on the order of the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from graphcaps.ops.structure.precomputation import GraphStructure, PlainGraph, Precomputation

__all__ = ["RestartWalks", "restart_matrix"]

_BLOCK = 1024
"""Rows of R that are sorted at a time."""


@dataclass(frozen=True)
class RestartWalks(Precomputation):
    """The largest entries of each row of R.

    Args:
        columns (int): Number of entries; 0 is appended in smaller graphs.
        step_probability (float): Probability c of one more step, at least 0 and below 1.
    """

    kind: ClassVar[str] = "random walks with restart"

    columns: int = 64
    step_probability: float = 0.1

    @property
    def num_columns(self) -> int:
        return self.columns

    def compute(self, graph: PlainGraph) -> GraphStructure:
        matrix = restart_matrix(graph.adjacency(), self.step_probability)
        n = len(matrix)
        kept = min(n, self.columns)
        columns = np.zeros((n, self.columns))
        for first in range(0, n, _BLOCK):
            rows = matrix[first : first + _BLOCK]
            largest = np.partition(rows, n - kept, axis=1)[:, n - kept :]
            columns[first : first + _BLOCK, :kept] = np.sort(largest, axis=1)[:, ::-1]
        return GraphStructure(columns=columns)


def restart_matrix(adjacency: sparse.csr_array, step_probability: float) -> NDArray[np.float64]:
    """R of a graph, ``[n, n]``; the row of a node without edges has a single entry, 1 − c.

    Args:
        adjacency (csr_array): Symmetric adjacency, ``[n, n]``.
        step_probability (float): Probability c of one more step.
    """
    degree = np.asarray(adjacency.sum(1), dtype=np.float64)
    scale = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    system = -step_probability * scale[:, None] * adjacency.toarray() * scale
    system[np.diag_indices_from(system)] += 1
    # The matrix is symmetric and positive definite: half the work of a general inverse.
    factor, _ = linalg.lapack.dpotrf(system, lower=1, overwrite_a=1)
    inverse, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    lower = np.tril(inverse)
    full: NDArray[np.float64] = lower + np.tril(inverse, -1).T
    return (1 - step_probability) * full
