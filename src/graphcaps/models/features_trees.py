"""Extremely randomised trees on statistics of the input columns: the baseline for graphs with attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.classical import RawInput
from graphcaps.models.forest_arrays import ForestMethod
from graphcaps.models.forest_model import ForestModel
from graphcaps.models.state_arrays import read_integers
from graphcaps.registry import MODELS, Choices, Interval

__all__ = ["STATISTICS", "FeaturesTrees", "column_statistics"]

STATISTICS = ("mean", "sum", "std", "max")
"""What is computed of each column over the nodes of a graph, in this order."""

_COUNTS = 2  # columns for the numbers of nodes and edges
_NODES_PER_STEP = 1 << 16  # nodes whose columns are in memory at a time
_MOST_ENTRIES = 1 << 29  # graphs × columns, 2 GiB
_LARGEST = 1e28  # sums over a table of the size above stay finite in float32
_RECIPE = ("num_attributes", "label_ptr", "label_values")  # names of the columns in a state


def column_statistics(store: GraphStore, recipe: FeatureRecipe) -> NDArray[np.float32]:
    """Statistics of the input columns over the nodes of each graph, ``[G, 4 · num_columns + 2]``.

    Column blocks are in the order of :data:`STATISTICS`; the last two columns are the numbers of nodes and of edges.
    All statistics of a graph without nodes are 0. Statistics are computed in float64 from columns that are rounded to
    float32, so that a column that is constant in a graph has a deviation of exactly 0. Values are bounded by
    ±1e28. The result is kept as long as the store exists: the folds of a cross-validation share it.

    Args:
        store (GraphStore): Graphs with the columns that the recipe was fitted on; labels without a column count as 0.
        recipe (FeatureRecipe): A fitted recipe.

    Raises:
        ArgumentError: If the result would have more than 2²⁹ entries.
    """
    kept = _computed.setdefault(store, {})
    if recipe not in kept:
        kept[recipe] = _compute(store, recipe)
    return kept[recipe]


_computed: WeakKeyDictionary[GraphStore, dict[FeatureRecipe, NDArray[np.float32]]] = WeakKeyDictionary()


def _compute(store: GraphStore, recipe: FeatureRecipe) -> NDArray[np.float32]:
    C = recipe.num_columns
    width = len(STATISTICS) * C + _COUNTS
    if len(store) * width > _MOST_ENTRIES:
        raise ArgumentError(
            "features-trees",
            "store",
            f"have at most {_MOST_ENTRIES:,} statistics",
            f"{len(store):,} graphs with {width:,} each in {store.name}",
            "Choose wl-forest.",
        )
    table = np.zeros((len(store), width), np.float32)
    for first, end in _steps(store):
        part = store if end - first == len(store) else store[torch.arange(first, end)]
        filled = np.flatnonzero(part.sizes.cpu().numpy())  # reduceat takes no empty ranges
        if not len(filled):
            continue
        x = _bounded(recipe.encode(part, torch.float64).cpu().numpy()).astype(np.float64)  # [N, C]
        starts = part.host_node_ptr.numpy()[:-1][filled]
        nodes = np.diff(part.host_node_ptr.numpy())[filled][:, None]
        total = np.add.reduceat(x, starts)
        mean = total / nodes
        centred = x - np.repeat(mean, nodes[:, 0], axis=0)
        std = np.sqrt(np.add.reduceat(centred * centred, starts) / nodes)
        high = np.maximum.reduceat(x, starts)
        table[first + filled, : width - _COUNTS] = _bounded(np.hstack([mean, total, std, high]))
    table[:, -2] = store.sizes.cpu().numpy()
    table[:, -1] = np.diff(store.host_entry_ptr.numpy()) // 2  # an edge has two entries
    return table


def _steps(store: GraphStore) -> Iterator[tuple[int, int]]:
    """Ranges of graphs with about 65,536 nodes each."""
    ptr = store.host_node_ptr.numpy()
    marks = np.searchsorted(ptr, np.arange(_NODES_PER_STEP, int(ptr[-1]), _NODES_PER_STEP))
    return pairwise(np.unique([0, *marks, len(store)]).tolist())


def _bounded(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return values.clip(-_LARGEST, _LARGEST).astype(np.float32)


@MODELS.register("features-trees")
class FeaturesTrees(ForestModel[FeatureRecipe]):
    r"""Classifies graphs with extremely randomised trees on statistics of the input columns.

    The columns of a node are the attributes and the one-hot labels x, or 1 where there are neither, its degree, and x
    propagated along the edges (:class:`graphcaps.data.FeatureRecipe`):

    .. math:: [\,x,\; \deg,\; Ax,\; A^2x,\; \dots,\; A^px\,]

    A graph is described by mean, sum, standard deviation and maximum of each column over its nodes, and by its numbers
    of nodes and edges. The trees are scikit-learn's extra trees, with its defaults apart from the number
    of trees. Edge labels, edge attributes and edge weights are not read.

    Args:
        num_classes (int): Number of classes.
        propagation (int): Largest power p of A. (default: 3)
        trees (int): Number of trees. (default: 500)
        seed (int): Seed of the trees. (default: 0)
        jobs (int): Number of threads that fit trees. (default: 1)

    Raises:
        ArgumentError: If an option is out of range.
    """

    reference: ClassVar[str] = (
        "Extremely randomized trees, Machine Learning 2006, https://doi.org/10.1007/s10994-006-6226-1, on statistics "
        "of the input features of Graph Feature Networks, https://arxiv.org/abs/1905.04579"
    )
    inputs: ClassVar[frozenset[RawInput]] = frozenset({"edges", "node_labels", "node_attributes"})
    method: ClassVar[ForestMethod] = "extra-trees"
    column_arrays: ClassVar[tuple[str, ...]] = _RECIPE
    searched: ClassVar[Mapping[str, Choices | Interval]] = {"propagation": Interval(0, 3)}

    def __init__(
        self,
        num_classes: int,
        *,
        propagation: int = 3,
        trees: int = 500,
        seed: int = 0,
        jobs: int = 1,
    ) -> None:
        super().__init__(num_classes, trees=trees, seed=seed, jobs=jobs)
        self._require_at_least(0, propagation=propagation)
        self.propagation = propagation

    def _fit_columns(self, store: GraphStore, indices: NDArray[np.int64]) -> FeatureRecipe:
        fitted = self._recipe().fit(store[torch.from_numpy(indices)])
        # Only what the columns are computed from: names and origin of the values are kept beside the model.
        return self._recipe(fitted.num_attributes, fitted.label_values)

    def _recipe(
        self,
        num_attributes: int | None = None,
        label_values: tuple[tuple[int, ...], ...] | None = None,
    ) -> FeatureRecipe:
        return FeatureRecipe(
            degree_onehot=None,
            propagation=self.propagation,
            num_attributes=num_attributes,
            label_values=label_values,
        )

    def _columns(
        self, store: GraphStore, indices: NDArray[np.int64], columns: FeatureRecipe
    ) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = column_statistics(store, columns)[indices]
        return rows

    def _num_columns(self, columns: FeatureRecipe) -> int:
        return len(STATISTICS) * columns.num_columns + _COUNTS

    def _column_state(self, columns: FeatureRecipe) -> dict[str, Tensor]:
        blocks = columns.label_values or ()
        arrays = (
            [columns.num_attributes or 0],
            np.cumsum([0, *map(len, blocks)]),
            [value for block in blocks for value in block],
        )
        tensors = (torch.tensor(np.asarray(values, dtype=np.int64)) for values in arrays)
        return dict(zip(_RECIPE, tensors, strict=True))

    def _read_columns(self, state: Mapping[str, Tensor]) -> FeatureRecipe:
        counts, ptr, values = (read_integers(state, name, "FeaturesTrees") for name in _RECIPE)
        if len(counts) != 1 or counts[0] < 0:
            raise ArgumentError("FeaturesTrees", _RECIPE[0], "be one number, at least 0", counts.tolist())
        if not len(ptr) or ptr[0] != 0 or ptr[-1] != len(values) or (np.diff(ptr) < 1).any():
            raise ArgumentError(
                "FeaturesTrees", _RECIPE[1], f"ascend from 0 to {len(values)}", "other values"
            )
        blocks = tuple(tuple(values[first:end].tolist()) for first, end in pairwise(ptr))
        return self._recipe(int(counts[0]), blocks)
