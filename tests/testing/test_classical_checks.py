"""Every check of classical models fails on a model that breaks this point of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models import ClassicalModel, RawInput, ValidationGraphs, model_names
from graphcaps.registry import MODELS, Choices, Interval, RegisteredModel
from graphcaps.testing import ContractError, check_model, model_checks


class Good(ClassicalModel):
    """Predicts the class whose training graphs have the nearest mean label, by a softmax of distances."""

    reference: ClassVar[str] = "none, a model of the tests"
    inputs: ClassVar[frozenset[RawInput]] = frozenset({"edges", "node_labels"})
    uses_seed: ClassVar[bool] = False

    def __init__(self, num_classes: int, *, scale: float = 1.0, seed: int = 0, jobs: int = 1) -> None:
        super().__init__(num_classes, seed=seed, jobs=jobs)
        self.scale, self.means = scale, np.zeros((num_classes, 2))
        self.prior = np.zeros(num_classes)

    def values(self, store: GraphStore, graphs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sum of the first label, and number of edge entries, of each graph, ``[n, 2]``."""
        labels = np.zeros(store.num_nodes) if store.node_labels is None else store.node_labels[:, 0].numpy()
        graph, degree = store.node_graph.numpy(), store.degree.numpy()
        sums = [np.bincount(graph, weights=each, minlength=len(store)) for each in (labels, degree)]
        return np.stack(sums, axis=1)[graphs]

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        values = self.values(store, indices)
        self.prior = np.bincount(y, sample_weight, self.num_classes) / len(y)
        # Sums of whole numbers: their order does not matter.
        means = [values[y == c].sum(0) / max((y == c).sum(), 1) for c in range(self.num_classes)]
        self.means = np.stack(means)

    def _predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        distance = np.abs(self.values(store, indices)[:, None, :] - self.means).sum(-1)
        weights = np.exp(-np.minimum(distance, 50) / self.scale) * self.prior
        return weights / weights.sum(-1, keepdims=True)

    def _state(self) -> dict[str, Tensor]:
        return {
            "means": torch.from_numpy(self.means.copy()),
            "prior": torch.from_numpy(self.prior.copy()),
        }

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        if set(state) != {"means", "prior"} or state["means"].shape != (self.num_classes, 2):
            raise ArgumentError("Good", "means", "be the means of all classes", "others")
        self.means, self.prior = state["means"].numpy().copy(), state["prior"].numpy().copy()


class NoSentence(Good):
    """a model"""


class BadRange(Good):
    """Searches a value of the wrong type."""

    searched: ClassVar[Mapping[str, Choices | Interval]] = {"scale": Choices(("large",))}


class TakesAnything(Good):
    """Accepts options that it does not have."""

    def __init__(self, num_classes: int, *, seed: int = 0, jobs: int = 1, **options: Any):
        super().__init__(num_classes, seed=seed, jobs=jobs)


class DoNotSum(Good):
    """Gives probabilities that sum to less than one."""

    def _predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        return 0.9 * super()._predict_proba(store, indices)


class Draws(Good):
    """Draws from a generator without a seed."""

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        super()._fit(store, indices, y, sample_weight, validation)
        self.means = self.means + np.random.default_rng().random()


class KeepsItsSeedSecret(Good):
    """Depends on the seed without saying so."""

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        super()._fit(store, indices, y, sample_weight, validation)
        self.means = self.means + self.seed


class NeedsNoSeed(Good):
    """Says that it depends on the seed, which it does not."""

    uses_seed: ClassVar[bool] = True


class GoesOn(Good):
    """Keeps what an earlier fit found."""

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        before = self.means
        super()._fit(store, indices, y, sample_weight, validation)
        self.means = self.means + before


class IgnoresWeights(Good):
    """Fits to all graphs alike."""

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        super()._fit(store, indices, y, None, validation)


class FitsValidation(Good):
    """Fits to validation graphs as well."""

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        if validation is not None:
            indices, y = np.append(indices, validation.indices), np.append(y, validation.y)
        super()._fit(store, indices, y, sample_weight, None)


class FitsWhatSelects(FitsValidation):
    """Selects a scale, and fits to the graphs that should select it."""

    selected_options: ClassVar[tuple[str, ...]] = ("scales",)

    def __init__(
        self, num_classes: int, *, scales: tuple[float, ...] = (1.0,), seed: int = 0, jobs: int = 1
    ) -> None:
        super().__init__(num_classes, scale=scales[0], seed=seed, jobs=jobs)


class ReadsFirstNode(Good):
    """Depends on the first node of a graph."""

    def values(self, store: GraphStore, graphs: NDArray[np.int64]) -> NDArray[np.float64]:
        values = super().values(store, graphs)
        values[:, 0] = store.degree.numpy()[store.node_ptr.numpy()[graphs]]
        return values


class ReadsTheStore(Good):
    """Depends on graphs that are not in the training set."""

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        super()._fit(store, indices, y, sample_weight, validation)
        self.means = self.means + self.values(store, np.arange(len(store))).mean()


class ReadsThePlace(Good):
    """Depends on the index of a graph in its store."""

    def values(self, store: GraphStore, graphs: NDArray[np.int64]) -> NDArray[np.float64]:
        return super().values(store, graphs) + graphs[:, None]


class ReadsTheBatch(Good):
    """Depends on the graphs that are predicted together."""

    def _predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        values = super()._predict_proba(store, indices)
        return (values + values.mean(0)) / 2 if len(values) else values


class LosesClasses(Good):
    """Has columns for the classes of its training graphs only."""

    def _predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        return super()._predict_proba(store, indices)[:, self.prior > 0]


class PredictsAbsentClasses(Good):
    """Gives classes without training graphs a mean of zero."""

    def _predict_proba(self, store: GraphStore, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        self.prior[:] = 1
        return super()._predict_proba(store, indices)


class NeedsManyGraphs(Good):
    """Gives NaN for few training graphs."""

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        super()._fit(store, indices, y, sample_weight, validation)
        self.means = self.means if len(y) > 5 else self.means * np.nan


class NeedsSeenLabels(Good):
    """Gives NaN for large labels."""

    def values(self, store: GraphStore, graphs: NDArray[np.int64]) -> NDArray[np.float64]:
        values = super().values(store, graphs)
        return np.where(values > 500, np.nan, values)


class NeedsEdges(Good):
    """Divides by the number of edges."""

    def values(self, store: GraphStore, graphs: NDArray[np.int64]) -> NDArray[np.float64]:
        values = super().values(store, graphs)
        with np.errstate(all="ignore"):
            return values / values[:, [1]]


class NeedsNodes(Good):
    """Divides by the number of nodes."""

    def values(self, store: GraphStore, graphs: NDArray[np.int64]) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            return super().values(store, graphs) / store.sizes.numpy()[graphs, None]


class ReadsMore(Good):
    """Reads attributes that it does not name."""

    def values(self, store: GraphStore, graphs: NDArray[np.int64]) -> NDArray[np.float64]:
        values = super().values(store, graphs)
        return values if store.node_attributes is None else values + float(store.node_attributes[0, 0])


class ReadsLess(Good):
    """Names attributes that it does not read."""

    inputs: ClassVar[frozenset[RawInput]] = frozenset({"edges", "node_labels", "node_attributes"})


class SharesItsState(Good):
    """Returns its own array as state."""

    def _state(self) -> dict[str, Tensor]:
        return {"means": torch.from_numpy(self.means), "prior": torch.from_numpy(self.prior)}

    def _fit(
        self,
        store: GraphStore,
        indices: NDArray[np.int64],
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None,
        validation: ValidationGraphs | None,
    ) -> None:
        shared = self.means
        super()._fit(store, indices, y, sample_weight, validation)
        shared[:] = self.means
        self.means = shared


class SavesLess(Good):
    """Leaves a fitted value out of its state."""

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        super()._load_state(state)
        self.means = np.round(self.means)


class LoadsAnything(Good):
    """Accepts arrays that it does not know."""

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        super()._load_state({name: value for name, value in state.items() if name in ("means", "prior")})


def register(monkeypatch: pytest.MonkeyPatch, model: type[RegisteredModel]) -> None:
    model_names()  # imports all models; those that were imported into the copy would be lost with it
    monkeypatch.setattr(MODELS, "_models", dict(MODELS._models))
    MODELS.register("tested")(model)


def test_a_good_model_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Good)
    check_model("tested")


BROKEN = [
    (NoSentence, "description", "must be a sentence"),
    (TakesAnything, "unknown-options", "an unknown option must be refused"),
    (DoNotSum, "probabilities", "the sum of the probabilities"),
    (Draws, "determinism", "the probabilities of a second fit"),
    (GoesOn, "determinism", "a fit after another one"),
    (KeepsItsSeedSecret, "determinism", "'uses_seed' must say whether a fit depends on the seed"),
    (NeedsNoSeed, "determinism", "'uses_seed' must say whether a fit depends on the seed"),
    (IgnoresWeights, "sample-weight", "must become more probable"),
    (FitsValidation, "validation", "no option is selected: those with validation graphs must be equal"),
    (FitsWhatSelects, "validation", "validation graphs must not be fitted"),
    (ReadsFirstNode, "node-order", "other node orders must be equal"),
    (ReadsTheStore, "graph-order", "a store without other graphs"),
    (ReadsThePlace, "graph-order", "a store of another order"),
    (ReadsTheBatch, "batch", "alone and beside others must be equal"),
    (LosesClasses, "absent-class", "must have the shape"),
    (PredictsAbsentClasses, "absent-class", "must not be predicted|must be predicted"),
    (NeedsManyGraphs, "few-graphs", "after a fit to two graphs must be from 0 to 1"),
    (NeedsSeenLabels, "new-graphs", "unseen labels must be from 0 to 1"),
    (NeedsEdges, "new-graphs", "without edges must be from 0 to 1"),
    (NeedsNodes, "new-graphs", "a graph without nodes must be from 0 to 1"),
    (ReadsMore, "inputs", "'node_attributes' is not in inputs"),
    (ReadsLess, "inputs", "'node_attributes' is in inputs, but changes nothing"),
    (SharesItsState, "state", "the probabilities of a loaded state must be equal"),
    (SavesLess, "state", "the probabilities of a loaded state must be equal"),
    (SavesLess, "file", "the probabilities of a loaded model must be equal"),
    (LoadsAnything, "state", "a state with an unknown array must be refused"),
]


@pytest.mark.parametrize(
    ("model", "check", "problem"), BROKEN, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_broken_model_fails(
    monkeypatch: pytest.MonkeyPatch, model: type[ClassicalModel], check: str, problem: str
) -> None:
    register(monkeypatch, model)
    with pytest.raises(ContractError, match=problem):
        model_checks("tested")[check]()


def test_a_range_of_refused_values_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, BadRange)
    with pytest.raises(ArgumentError, match="'scale' must be a number, got 'large'"):
        model_checks("tested")["description"]()
