"""The class prior: what a classifier reaches that reads nothing of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.classical import ClassicalModel, RawInput, ValidationGraphs
from graphcaps.registry import MODELS

__all__ = ["Majority"]


@MODELS.register("majority")
class Majority(ClassicalModel):
    """Predicts the class frequencies of the training graphs for every graph, hence the most frequent class.

    Of equally frequent classes the first is predicted. A model that is not more accurate has learned nothing.

    Args:
        num_classes (int): Number of classes.
        seed (int): Not used. (default: 0)
        jobs (int): Not used. (default: 1)
    """

    reference: ClassVar[str] = "the class prior; no publication"
    inputs: ClassVar[frozenset[RawInput]] = frozenset()
    uses_seed: ClassVar[bool] = False

    def __init__(self, num_classes: int, *, seed: int = 0, jobs: int = 1) -> None:
        super().__init__(num_classes, seed=seed, jobs=jobs)
        self.prior: NDArray[np.float64]

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        total = len(y) if sample_weight is None else sample_weight.sum()
        self.prior = np.bincount(y, sample_weight, self.num_classes) / total

    def _predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.tile(self.prior, (len(indices), 1))

    def _state(self) -> dict[str, Tensor]:
        return {"prior": torch.from_numpy(self.prior.copy())}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        prior = state["prior"].double().numpy() if set(state) == {"prior"} else np.zeros(0)
        if prior.shape != (self.num_classes,) or (prior < 0).any() or not np.isclose(prior.sum(), 1):
            expected = f"be {self.num_classes} probabilities that sum to 1"
            raise ArgumentError("Majority", "prior", expected, "other values")
        self.prior = prior
