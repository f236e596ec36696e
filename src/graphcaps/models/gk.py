"""The graphlet kernel of three nodes, counted exactly, with a support vector machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.classical import RawInput
from graphcaps.models.kernel_svm import COSTS, DenseKernelSVM, Setting
from graphcaps.models.state_arrays import read_floats
from graphcaps.registry import MODELS

__all__ = ["GK", "count_graphlets", "count_triangles"]

_DENSE_NODES = 512  # up to this many nodes, A² is faster as a dense product
_GRAPHLETS = 4  # with 0, 1, 2 and 3 edges


def count_triangles(store: GraphStore) -> NDArray[np.int64]:
    r"""Number of triangles of each graph, :math:`\operatorname{tr} A^3 / 6`, int64 ``[G]``.

    Args:
        store (GraphStore): Graphs.
    """
    store = store.to("cpu")
    triangles = np.zeros(len(store), np.int64)
    node_ptr, edge_ptr = store.host_node_ptr.numpy(), store.edge_ptr.numpy()
    neighbours = store.neighbours.numpy()
    for graph, (first, end) in enumerate(pairwise(node_ptr.tolist())):
        ptr, n = edge_ptr[first : end + 1] - edge_ptr[first], int(end - first)
        column = neighbours[edge_ptr[first] : edge_ptr[end]]
        if len(column) < 6:  # three edges have two entries each
            continue
        if n <= _DENSE_NODES:
            A = np.zeros((n, n), np.float32)  # numbers of paths are whole and below 2²⁴
            A[np.repeat(np.arange(n), np.diff(ptr)), column] = 1
            closed = float((A @ A)[A > 0].sum(dtype=np.float64))
        else:
            S = csr_array((np.ones(len(column)), column, ptr), shape=(n, n))
            closed = float((S @ S).multiply(S).sum())
        triangles[graph] = round(closed) // 6
    return triangles


def count_graphlets(store: GraphStore) -> NDArray[np.float64]:
    r"""Number of sets of three nodes with 0, 1, 2 and 3 edges between them, whole numbers, float64 ``[G, 4]``.

    With n nodes, m edges, degrees d and t triangles they have a closed form:

    .. math::
        p = \sum_v \tfrac{d_v (d_v - 1)}{2} - 3t, \qquad e = m (n - 2) - 2p - 3t, \qquad
        \big(\tbinom{n}{3} - e - p - t,\; e,\; p,\; t\big)

    The result is kept as long as the store exists: the folds of a cross-validation share it.

    Args:
        store (GraphStore): Graphs.
    """
    if store not in _counted:
        _counted[store] = _count(store)
    return _counted[store]


_counted: WeakKeyDictionary[GraphStore, NDArray[np.float64]] = WeakKeyDictionary()


def _count(store: GraphStore) -> NDArray[np.float64]:
    degree = store.degree.cpu().numpy().astype(np.float64)
    graph, G = store.node_graph.cpu().numpy(), len(store)
    n = store.sizes.cpu().numpy().astype(np.float64)
    m = np.bincount(graph, degree, G) / 2
    t = count_triangles(store).astype(np.float64)
    p = np.bincount(graph, degree * (degree - 1), G) / 2 - 3 * t
    e = m * (n - 2) - 2 * p - 3 * t
    e = np.where(n < 3, 0, e)  # an edge alone has no third node
    none = n * (n - 1) * (n - 2) / 6 - e - p - t
    return np.stack([none, e, p, t], axis=1)


@MODELS.register("gk")
class GK(DenseKernelSVM[float]):
    r"""Classifies graphs with a support vector machine on the frequencies of their graphlets of three nodes.

    A graph is described by the frequencies x of its induced subgraphs of three nodes with 0, 1, 2 and 3 edges
    (Shervashidze et al., AISTATS 2009), and two graphs are compared by

    .. math:: K(G, G') = \exp(-\gamma\, s\, \lVert x - x' \rVert^2), \qquad s = \frac{1}{4 \operatorname{Var}(x)}

    with the variance of all frequencies of the training graphs, as ``gamma="scale"`` of scikit-learn's ``SVC``.
    The publication samples graphlets of up to five nodes and uses a linear kernel; here those of three nodes are
    counted exactly, in a closed form. A graph of fewer than three nodes has the frequencies 0. γ and C are selected on
    validation graphs, see :class:`graphcaps.models.kernel_svm.KernelSVM`. Labels and attributes are not read.

    Args:
        num_classes (int): Number of classes.
        gamma (tuple): Values of γ to select among. (default: 0.01, 0.1, 1, 10, 100)
        C (tuple): Values of C to select among. (default: 0.001, 0.01, … 1000)
        max_gigabytes (float): Largest memory of the Gram matrices, in GB. (default: 8)
        seed (int): Seed of the graphs that are held out without validation graphs. (default: 0)
        jobs (int): Number of threads that fit machines. (default: 1)

    Raises:
        ArgumentError: If an option is out of range.
    """

    uses_seed: ClassVar[bool] = False
    reference: ClassVar[str] = (
        "Efficient graphlet kernels for large graph comparison, AISTATS 2009, "
        "https://proceedings.mlr.press/v5/shervashidze09a.html"
    )
    inputs: ClassVar[frozenset[RawInput]] = frozenset({"edges"})
    selected_options: ClassVar[tuple[str, ...]] = ("gamma", "C")
    column_arrays: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(
        self,
        num_classes: int,
        *,
        gamma: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0),
        C: tuple[float, ...] = COSTS,
        max_gigabytes: float = 8.0,
        seed: int = 0,
        jobs: int = 1,
    ) -> None:
        super().__init__(num_classes, C=C, max_gigabytes=max_gigabytes, seed=seed, jobs=jobs)
        self._require_positive("gamma", gamma)
        self.gamma = tuple(float(value) for value in gamma)

    @property
    def settings(self) -> Sequence[Setting]:
        return [(gamma,) for gamma in self.gamma]

    def _fit_columns(self, store: GraphStore, indices: NDArray[np.int64]) -> float:
        variance = float(self._frequencies(store, indices).var())
        return 1 / (_GRAPHLETS * variance) if variance > 0 else 1.0

    def _rows(self, store: GraphStore, indices: NDArray[np.int64], columns: float) -> NDArray[np.float64]:
        return self._frequencies(store, indices) * np.sqrt(columns)

    def _frequencies(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        counts = count_graphlets(store)[indices]
        frequencies: NDArray[np.float64] = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        return frequencies

    def _kernel(
        self, left: NDArray[np.float64], right: NDArray[np.float64], setting: Setting
    ) -> NDArray[np.float64]:
        distance = np.zeros((len(left), len(right)))
        for a, b in zip(left.T, right.T, strict=True):
            distance += (a[:, None] - b) ** 2
        kernel: NDArray[np.float64] = np.exp(-setting[0] * distance)
        return kernel

    def _width(self, columns: float) -> int:
        return _GRAPHLETS

    def _column_state(self, columns: float) -> dict[str, Tensor]:
        return {"scale": torch.tensor([columns], dtype=torch.float64)}

    def _read_columns(self, state: Mapping[str, Tensor]) -> float:
        scale = float(read_floats(state, "scale", "GK", (1,))[0])
        if scale <= 0:
            raise ArgumentError("GK", "scale", "be positive", scale)
        return scale
