"""The base of forests: columns that describe a graph, and decision trees of scikit-learn on them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.models.classical import ClassicalModel, ValidationGraphs
from graphcaps.models.forest_arrays import ForestArrays, ForestMethod
from graphcaps.models.state_arrays import split_state

__all__ = ["Columns", "ForestModel"]

Columns: TypeAlias = NDArray[np.float32] | csr_array | csr_matrix
"""A row per graph, float32, dense or sparse."""

Fitted = TypeVar("Fitted")


class ForestModel(ClassicalModel, Generic[Fitted]):
    """Decision trees of scikit-learn, with its defaults apart from the number of trees, on columns of a graph.

    A subclass says what the columns are: :meth:`_fit_columns` fits their description to the training graphs, such as
    the colours that have a column, and :meth:`_columns` computes them. ``Fitted`` is the type of the description.

    Args:
        num_classes (int): Number of classes.
        trees (int): Number of trees. (default: 500)
        seed (int): Seed of the trees. (default: 0)
        jobs (int): Number of threads that fit trees. (default: 1)

    Attributes:
        columns (Fitted): The description of the columns, after a fit.
        forest (ForestArrays): The trees, after a fit.
        method (str): ``"random-forest"`` or ``"extra-trees"``. (default: "random-forest")
        column_arrays (tuple): Names of the arrays of :meth:`_column_state`. (default: ())

    Raises:
        ArgumentError: If an option is out of range.
    """

    size_option: ClassVar[str | None] = "trees"
    method: ClassVar[ForestMethod] = "random-forest"
    column_arrays: ClassVar[tuple[str, ...]] = ()

    def __init__(self, num_classes: int, *, trees: int = 500, seed: int = 0, jobs: int = 1) -> None:
        super().__init__(num_classes, seed=seed, jobs=jobs)
        self._require_at_least(1, trees=trees)
        self.trees = trees
        self.columns: Fitted
        self.forest: ForestArrays

    @abstractmethod
    def _fit_columns(self, store: GraphStore, indices: NDArray[np.int64]) -> Fitted:
        """The description of the columns for these training graphs; the classes play no part in it."""

    @abstractmethod
    def _columns(self, store: GraphStore, indices: NDArray[np.int64], columns: Fitted) -> Columns:
        """The columns of some graphs, ``[len(indices), num_columns]``; those of a graph do not depend on others."""

    @abstractmethod
    def _num_columns(self, columns: Fitted) -> int:
        """Number of columns."""

    @abstractmethod
    def _column_state(self, columns: Fitted) -> dict[str, Tensor]:
        """The description as arrays by name."""

    @abstractmethod
    def _read_columns(self, state: Mapping[str, Tensor]) -> Fitted:
        """Restores a result of :meth:`_column_state`.

        Raises:
            ArgumentError: If the arrays are not those of this model with its options.
        """

    @property
    def _class_weight(self) -> str | None:
        """How the trees weigh classes. (default: alike)"""
        return None

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        self.columns = self._fit_columns(store, indices)
        self.forest = ForestArrays.fit(
            self._columns(store, indices, self.columns),
            y,
            sample_weight,
            method=self.method,
            num_classes=self.num_classes,
            trees=self.trees,
            seed=self.seed,
            jobs=self.jobs,
            class_weight=self._class_weight,
        )

    def _predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.forest.predict_proba(self._columns(store, indices, self.columns))

    def _state(self) -> dict[str, Tensor]:
        return self._column_state(self.columns) | self.forest.state()

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        own, arrays = split_state(state, self.column_arrays)
        columns, owner = self._read_columns(own), type(self).__name__
        forest = ForestArrays.from_state(
            arrays, self.num_classes, self._num_columns(columns), owner, trees=self.trees
        )
        self.columns, self.forest = columns, forest
