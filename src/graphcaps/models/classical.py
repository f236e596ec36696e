"""The contract of models that are fitted without gradient training: kernels, forests and simple baselines."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.config import FeatureConfig
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError, UsageError, check_at_least
from graphcaps.registry import RegisteredModel, ScoreKind

__all__ = ["ClassicalModel", "RawInput", "ValidationGraphs"]

RawInput = Literal["edges", "node_labels", "node_attributes", "edge_labels", "smiles"]
"""What a model reads of the graphs of a store."""


@dataclass(frozen=True, eq=False)
class ValidationGraphs:
    """Graphs beside the training graphs, on which a model selects its settings; it is not fitted to them.

    Args:
        indices (ndarray): Indices of the graphs in the store of the training graphs, ``[n]``.
        y (ndarray): Class of each graph, ``[n]``.
        sample_weight (ndarray, optional): Weight of each graph, positive, ``[n]``. (default: 1 each)
    """

    indices: NDArray[np.int64]
    y: NDArray[np.int64]
    sample_weight: NDArray[np.float64] | None = None


class ClassicalModel(RegisteredModel, ABC):
    """A classifier that is fitted once, without epochs, on a CPU.

    A model is constructed with ``(num_classes, *, seed=0, jobs=1, **options)``. It reads the graphs themselves, as
    :attr:`inputs` says, and not the input columns of a configuration. A model that needs columns fits a
    :class:`graphcaps.data.FeatureRecipe` of its own and keeps it in its state.

    A subclass implements :meth:`_fit`, :meth:`_predict_proba`, :meth:`_state` and :meth:`_load_state`. Its fit depends
    on the graphs at ``indices``, in their order, on ``y`` and on the seed; its predictions depend on one graph each.
    :func:`graphcaps.testing.check_model` tests this.

    Args:
        num_classes (int): Number of classes O.
        seed (int): Seed of all random choices. (default: 0)
        jobs (int): Number of threads; results do not depend on it. (default: 1)

    Attributes:
        is_fitted (bool): Whether the model was fitted, or its state loaded: before, it neither predicts nor is saved.
        inputs (frozenset): What the model reads of a graph, see :data:`RawInput`.
        selected_options (tuple): Options with several values, of which a fit selects one on validation graphs, or
            without those on a part of the training graphs. (default: ())
        uses_seed (bool): Whether a fit depends on the seed, apart from the graphs that are held out where no validation
            graphs are given. If not, there is no committee of such models. (default: ``True``)
        size_option (str, optional): The option that the time of a fit grows with, such as the number of trees; tests
            set it to a small number. (default: None)

    Raises:
        ArgumentError: If a number is out of range.
    """

    scores: ClassVar[ScoreKind] = "probabilities"
    inputs: ClassVar[frozenset[RawInput]]
    selected_options: ClassVar[tuple[str, ...]] = ()
    uses_seed: ClassVar[bool] = True
    size_option: ClassVar[str | None] = None

    def __init__(self, num_classes: int, *, seed: int = 0, jobs: int = 1) -> None:
        self._require_at_least(1, num_classes=num_classes, jobs=jobs)
        self._require_at_least(0, seed=seed)
        self.num_classes, self.seed, self.jobs = num_classes, seed, jobs
        self.is_fitted = False

    @classmethod
    def options(cls) -> dict[str, inspect.Parameter]:
        """The options of the model by name: keyword-only arguments without ``seed`` and ``jobs``."""
        return {name: entry for name, entry in super().options().items() if name not in ("seed", "jobs")}

    @classmethod
    def features(cls) -> FeatureConfig:
        """The node features that hold what the model reads; a configuration of this model records them."""
        return FeatureConfig(
            attributes="node_attributes" in cls.inputs,
            labels="node_labels" in cls.inputs,
            degree=False,
            degree_onehot=None,
            propagation=0,
            edge_labels="counts" if "edge_labels" in cls.inputs else None,
        )

    @property
    def selected(self) -> dict[str, float]:
        """The value of each of :attr:`selected_options` that a fit selected; empty without such options."""
        return {}

    def fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None = None,
        validation: ValidationGraphs | None = None,
    ) -> None:
        """Fits the model to some graphs of a store; an earlier fit is replaced.

        Args:
            store (GraphStore): Graphs.
            indices (ndarray): Indices of the training graphs, ``[n]``.
            y (ndarray): Class of each training graph, from 0 to O − 1, ``[n]``. A class may be absent.
            sample_weight (ndarray, optional): Weight of each training graph, positive, ``[n]``. (default: 1 each)
            validation (ValidationGraphs, optional): Graphs on which a model with :attr:`selected_options` selects
                them; others do not read them. (default: a part of the training graphs, where something is selected)

        Raises:
            ShapeError: If there is not one class per graph, or not one weight.
            ArgumentError: If there are no training graphs, or a class is out of range.
        """
        indices, y = self._check_graphs(store, indices, y, sample_weight)
        if not len(indices):
            raise ArgumentError(type(self).__name__, "indices", "name at least one training graph", "none")
        if validation is not None:
            weights = validation.sample_weight
            checked = self._check_graphs(store, validation.indices, validation.y, weights)
            validation = ValidationGraphs(*checked, weights) if len(checked[0]) else None
        self.is_fitted = False
        self._fit(store, indices, y, sample_weight, validation)
        self.is_fitted = True

    def predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Class probabilities of some graphs of a store, ``[n, O]``; rows sum to 1.

        Args:
            store (GraphStore): Graphs, with any labels.
            indices (ndarray): Indices of the graphs, ``[n]``.

        Raises:
            UsageError: If the model is not fitted.
            ArgumentError: If an index is out of range.
        """
        indices = self._check_indices(store, indices)
        self._require_fitted("predicts")
        return self._predict_proba(store, indices)

    def state(self) -> dict[str, Tensor]:
        """What was fitted, as arrays by name, for a model file; at least one array.

        Raises:
            UsageError: If the model is not fitted.
        """
        self._require_fitted("is saved")
        return self._state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores a result of :meth:`state`; predictions are then the same, bit by bit.

        Raises:
            ArgumentError: If an array is missing, or the arrays are not the state of this model with its options.
        """
        self._load_state(state)
        self.is_fitted = True

    @abstractmethod
    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        """:meth:`fit` with checked arguments; validation graphs are at least one."""

    @abstractmethod
    def _predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """:meth:`predict_proba` with checked arguments."""

    @abstractmethod
    def _state(self) -> dict[str, Tensor]:
        """:meth:`state` of a fitted model."""

    @abstractmethod
    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        """:meth:`load_state`; a refused state leaves the model as it was."""

    def _require_at_least(self, least: int, **options: float) -> None:
        check_at_least(type(self).__name__, least, **options)

    def _require_fitted(self, purpose: str) -> None:
        if not self.is_fitted:
            raise UsageError(f"{type(self).__name__}: fit the model before it {purpose}.")

    def _check_graphs(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices and classes as int64 arrays."""
        owner, y = type(self).__name__, np.asarray(y, dtype=np.int64)
        indices = self._check_indices(store, indices)
        if y.shape != indices.shape:
            raise ShapeError(owner, "y", f"have one class per graph, {len(indices)}", list(y.shape))
        if len(y) and not 0 <= y.min() <= y.max() < self.num_classes:
            expected = f"hold classes from 0 to {self.num_classes - 1}"
            raise ArgumentError(owner, "y", expected, f"{y.min()} to {y.max()}")
        if sample_weight is not None and sample_weight.shape != indices.shape:
            expected = f"have one weight per graph, {len(indices)}"
            raise ShapeError(owner, "sample_weight", expected, list(sample_weight.shape))
        return indices, y

    def _check_indices(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        owner, indices = type(self).__name__, np.asarray(indices)
        if indices.ndim != 1 or (len(indices) and not np.issubdtype(indices.dtype, np.integer)):
            raise ShapeError(
                owner, "indices", "be one axis of integers", f"{indices.dtype} {list(indices.shape)}"
            )
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(store):
            expected = f"be from 0 to {len(store) - 1}"
            raise ArgumentError(owner, "indices", expected, f"{indices.min()} to {indices.max()}")
        return indices.astype(np.int64)
