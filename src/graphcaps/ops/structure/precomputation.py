"""What a model may compute from each graph once, before it is trained: coarser levels and further node columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # imported late: every command imports this module

__all__ = ["GraphLevel", "GraphStructure", "PlainGraph", "Precomputation"]


@dataclass(frozen=True, eq=False)
class PlainGraph:
    """One undirected graph as arrays, without self-loops.

    Args:
        ptr (array): First entry of each node, and the end of the last, ``[n + 1]``.
        neighbours (array): Neighbours of each node, ``[m]``; an edge has an entry in both directions.
        labels (array, optional): Labels of the nodes, ``[n, L]``, for a precomputation with ``reads_labels``.
    """

    ptr: NDArray[np.int64]
    neighbours: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None

    @classmethod
    def from_adjacency(cls, adjacency: csr_array) -> PlainGraph:
        """The graph of the nonzero entries of a symmetric matrix, without its diagonal."""
        from scipy.sparse import csr_array

        entries = adjacency.tocoo()
        keep = entries.row != entries.col
        kept = (entries.data[keep], (entries.row[keep], entries.col[keep]))
        clean = csr_array(kept, shape=adjacency.shape)
        return cls(clean.indptr.astype(np.int64), clean.indices.astype(np.int64))

    @property
    def num_nodes(self) -> int:
        return len(self.ptr) - 1

    @property
    def degree(self) -> NDArray[np.int64]:
        """Number of neighbours of each node, ``[n]``."""
        return np.diff(self.ptr)

    def adjacency(self) -> csr_array:
        """The adjacency matrix, ``[n, n]``, float64."""
        from scipy.sparse import csr_array

        ones = np.ones(len(self.neighbours))
        return csr_array((ones, self.neighbours, self.ptr), shape=(self.num_nodes,) * 2)


@dataclass(frozen=True, eq=False)
class GraphLevel:
    """A coarser graph, and the members of each of its nodes: nodes of the level below.

    Args:
        adjacency (csr_array): Symmetric adjacency, ``[c, c]``; its diagonal is not read, and its values are edge
            weights if the precomputation has ``weighted_edges``.
        member_ptr (array): First member of each coarse node, and the end of the last, ``[c + 1]``.
        members (array): Members of the coarse nodes, one coarse node after another, ``[P]``.
        weights (array, optional): H weights of each member, ``[P, H]``.
    """

    adjacency: csr_array
    member_ptr: NDArray[np.int64]
    members: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    @property
    def num_nodes(self) -> int:
        """Number of coarse nodes c."""
        return len(self.member_ptr) - 1


@dataclass(frozen=True, eq=False)
class GraphStructure:
    """What a :class:`Precomputation` computes from one graph.

    Args:
        levels (tuple): Coarser levels; the first one's members are the nodes of the graph, those of every other
            one the nodes of the level before it. (default: none)
        columns (array, optional): Further columns of the nodes, ``[n, c]``.
    """

    levels: tuple[GraphLevel, ...] = ()
    columns: NDArray[np.float64] | None = None

    @property
    def num_entries(self) -> int:
        """Number of edge entries and members of all levels."""
        return sum(level.adjacency.nnz + len(level.members) for level in self.levels)


@dataclass(frozen=True)
class Precomputation(ABC):
    """A deterministic function of one graph that a model needs computed before it sees a batch.

    It is computed on the CPU, once per data set, and stored in the cache folder
    (:mod:`graphcaps.data.precompute`). A subclass is a frozen dataclass whose fields are the options of the
    computation; they and ``kind`` are the key of the stored result.

    Attributes:
        kind (str): Name of the computation.
        version (int): Increased whenever the same options and graph give another result. (default: 1)
        reads_labels (bool): Whether it reads node labels. (default: False)
        weighted_edges (bool): Whether edges of the coarser levels have weights. (default: False)
        sparse_above (int, optional): Number of nodes above which a graph is clustered in blocks that a sparse
            eigensolver finds; trainings say so. (default: None)
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    reads_labels: ClassVar[bool] = False
    weighted_edges: ClassVar[bool] = False
    sparse_above: ClassVar[int | None] = None

    @property
    def level_weights(self) -> tuple[int, ...]:
        """For each level the number H of weights of a member, 0 if members have none. (default: no levels)"""
        return ()

    @property
    def num_columns(self) -> int:
        """Number of further columns of the nodes. (default: 0)"""
        return 0

    @abstractmethod
    def compute(self, graph: PlainGraph) -> GraphStructure:
        """The structure of a graph with at least one node."""
