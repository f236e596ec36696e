"""A random forest on local degree profiles: the cheapest baseline for networks without labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.classical import RawInput
from graphcaps.models.forest_model import ForestModel
from graphcaps.models.state_arrays import read_floats
from graphcaps.registry import MODELS, Choices, Interval

__all__ = ["PROFILE", "LDPForest", "local_degree_profile"]

PROFILE = ("degree", "minimum", "maximum", "mean", "standard deviation")
"""The statistics of a node: its degree, and those of the degrees of its neighbours, in this order."""

_COUNTS = 2  # columns for the numbers of nodes and edges


def local_degree_profile(store: GraphStore) -> NDArray[np.float64]:
    """Degree of each node, and minimum, maximum, mean and standard deviation of its neighbours' degrees, ``[N, 5]``.

    A node without neighbours has five zeros. The result is kept as long as the store exists.

    Args:
        store (GraphStore): Graphs.
    """
    if store not in _computed:
        _computed[store] = _compute(store.to("cpu"))
    return _computed[store]


_computed: WeakKeyDictionary[GraphStore, NDArray[np.float64]] = WeakKeyDictionary()


def _compute(store: GraphStore) -> NDArray[np.float64]:
    degree = store.degree.numpy().astype(np.float64)
    profile = np.zeros((store.num_nodes, len(PROFILE)))
    profile[:, 0] = degree
    has_neighbours = np.flatnonzero(degree)  # reduceat takes no empty ranges
    if not len(has_neighbours):
        return profile
    ptr = store.edge_ptr.numpy()
    first = store.node_ptr[:-1].repeat_interleave(store.sizes).numpy()
    near = degree[store.neighbours.numpy() + np.repeat(first, np.diff(ptr))]
    starts, k = ptr[:-1][has_neighbours], degree[has_neighbours]
    total, squares = np.add.reduceat(near, starts), np.add.reduceat(near * near, starts)
    profile[has_neighbours, 1] = np.minimum.reduceat(near, starts)
    profile[has_neighbours, 2] = np.maximum.reduceat(near, starts)
    profile[has_neighbours, 3] = total / k
    # Differences of whole numbers: the order of the neighbours does not matter.
    profile[has_neighbours, 4] = np.sqrt(k * squares - total * total) / k
    return profile


@MODELS.register("ldp-forest")
class LDPForest(ForestModel[NDArray[np.float64]]):
    r"""Classifies graphs with a random forest on histograms of local degree profiles.

    The profile of a node is its degree, and minimum, maximum, mean and standard deviation of the degrees of its
    neighbours (Cai and Wang, 2018). A graph is described by a histogram of each of the five over its nodes, and by its
    numbers of nodes and edges. A value x falls into one of B bins of equal width on a logarithmic scale,

    .. math:: \min\Big(\Big\lfloor B\, \frac{\log(1 + x)}{\log(1 + x_{\max})} \Big\rfloor, B - 1\Big)

    with the largest value x_max of the training graphs. The publication selects between logarithmic and linear bins
    and their number on the data, and uses a support vector machine; here both are fixed, and the classifier is
    scikit-learn's random forest with its defaults apart from the number of trees. Labels and attributes are not read.

    Args:
        num_classes (int): Number of classes.
        bins (int): Number of bins B of each histogram. (default: 50)
        trees (int): Number of trees. (default: 500)
        seed (int): Seed of the forest. (default: 0)
        jobs (int): Number of threads that fit trees. (default: 1)

    Raises:
        ArgumentError: If an option is out of range.
    """

    reference: ClassVar[str] = (
        "A simple yet effective baseline for non-attributed graph classification, "
        "https://arxiv.org/abs/1811.03508, with random forests, Machine Learning 2001, "
        "https://doi.org/10.1023/A:1010933404324"
    )
    inputs: ClassVar[frozenset[RawInput]] = frozenset({"edges"})
    column_arrays: ClassVar[tuple[str, ...]] = ("profile_max",)
    searched: ClassVar[Mapping[str, Choices | Interval]] = {"bins": Choices((30, 50, 70, 100))}

    def __init__(
        self, num_classes: int, *, bins: int = 50, trees: int = 500, seed: int = 0, jobs: int = 1
    ) -> None:
        super().__init__(num_classes, trees=trees, seed=seed, jobs=jobs)
        self._require_at_least(1, bins=bins)
        self.bins = bins

    def _fit_columns(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Largest value of each statistic over the training graphs, ``[5]``."""
        chosen = np.isin(store.node_graph.cpu().numpy(), indices)
        largest: NDArray[np.float64] = local_degree_profile(store)[chosen].max(0, initial=0)
        return largest

    def _columns(
        self, store: GraphStore, indices: NDArray[np.int64], columns: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        B, S, G = self.bins, len(PROFILE), len(store)
        scale = np.log1p(np.where(columns > 0, columns, 1))
        bins = np.minimum(B * np.log1p(local_degree_profile(store)) / scale, B - 1).astype(np.int64)  # [N, 5]
        cell = (store.node_graph.cpu().numpy()[:, None] * S + np.arange(S)) * B + bins
        table = np.zeros((G, S * B + _COUNTS), np.float32)
        table[:, : S * B] = np.bincount(cell.ravel(), minlength=G * S * B).reshape(G, S * B)
        table[:, -2] = store.sizes.cpu().numpy()
        table[:, -1] = np.diff(store.host_entry_ptr.numpy()) // 2  # an edge has two entries
        rows: NDArray[np.float32] = table[indices]
        return rows

    def _num_columns(self, columns: NDArray[np.float64]) -> int:
        return len(PROFILE) * self.bins + _COUNTS

    def _column_state(self, columns: NDArray[np.float64]) -> dict[str, Tensor]:
        return {"profile_max": torch.from_numpy(columns.copy())}

    def _read_columns(self, state: Mapping[str, Tensor]) -> NDArray[np.float64]:
        largest = read_floats(state, "profile_max", "LDPForest", (len(PROFILE),))
        if (largest < 0).any():
            raise ArgumentError("LDPForest", "profile_max", "be at least 0", float(largest.min()))
        return largest
