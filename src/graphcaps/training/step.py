"""One training step of all replicas, and an epoch of eager steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from graphcaps.data.step_batches import collate_steps
from graphcaps.data.store import GraphStore
from graphcaps.errors import GraphcapsError
from graphcaps.nn.graph_model import GraphModel
from graphcaps.ops._triton.branches import fork
from graphcaps.profiling import STEP, profiled
from graphcaps.training.batch_schedule import EpochSchedule
from graphcaps.training.epoch_metrics import EpochMetrics
from graphcaps.training.optimizer import ReplicaAdam
from graphcaps.training.sample_weight import batch_weights
from graphcaps.training.streaming import StreamedStore
from graphcaps.types import FeatureTable, GraphBatch, LossOptions, LossTerms

__all__ = ["EagerRunner", "TrainingError", "TrainingStep"]

_METRICS = 1
"""Side stream of :func:`graphcaps.ops._triton.branches.fork` for what the step itself does not read."""


class TrainingError(GraphcapsError):
    """A training that cannot continue."""


class TrainingStep:
    """Forward pass, backward pass, Adam update and metrics of one batch.

    Args:
        model (GraphModel): Model with leading axis F.
        adam (ReplicaAdam): Optimizer of its parameters.
        metrics (EpochMetrics): Accumulates losses and correct predictions.
        options (LossOptions): Weights of classes and loss terms.
        reduce (callable, optional): Called with the parameters and the losses after the backward pass of a rank: sums
            gradients in place over all ranks, and returns the losses of the whole batch. (default: one process)
    """

    def __init__(
        self,
        model: GraphModel,
        adam: ReplicaAdam,
        metrics: EpochMetrics,
        options: LossOptions,
        reduce: Callable[[Sequence[Tensor], LossTerms], LossTerms] | None = None,
    ) -> None:
        self.model, self.adam, self.metrics, self.options = model, adam, metrics, options
        self.reduce = reduce
        self._loss = model.training_function()

    def __call__(self, batch: GraphBatch, active: Tensor | None, graph_weight: Tensor | None = None) -> None:
        """Trains on one batch.

        Args:
            batch (GraphBatch): Graphs with labels.
            active (Tensor, optional): True at replicas that have a graph in the batch, ``[F]``. (default: all)
            graph_weight (Tensor, optional): Weight of each graph, ``[F, B]``. (default: 1 each)
        """
        assert batch.y is not None
        options = self.options if graph_weight is None else replace(self.options, graph_weight=graph_weight)
        loss = self._loss(batch, options)
        terms = loss.terms
        # Nothing before the update reads this. Losses of all ranks are known only after the backward pass.
        with fork(active, stream=_METRICS) as metrics:
            counted = self.adam.count_step(active)
            if self.reduce is None:
                self.metrics.add(terms, loss.class_scores, batch.y)
        self.adam.zero_grad()

        def update() -> None:
            metrics.join()
            self.adam.step(active=active, counted=counted)
            self.adam.zero_grad()  # they would occupy memory that the next step can use

        # A step that is counted may have several updates. Ranks update when they have summed all gradients.
        with profiled("backward"):
            loss.backward(update if counted and self.reduce is None else None)
        if self.reduce is not None:
            self.metrics.add(self.reduce(self.adam.parameters, terms), loss.class_scores, batch.y)
        with profiled("update"):
            update()


class EagerRunner:
    """Runs an epoch one operation after another, with batches of exact size.

    Args:
        step (TrainingStep): Applied to every batch.
        store (GraphStore or StreamedStore): All graphs.
        x (Tensor or FeatureTable): Features of all nodes.
        weights (Tensor, optional): Weight of each graph, on the device of the model, ``[F, G]``. (default: 1 each)
    """

    def __init__(
        self,
        step: TrainingStep,
        store: GraphStore | StreamedStore,
        x: Tensor | FeatureTable,
        weights: Tensor | None = None,
    ) -> None:
        self.step, self.store, self.x, self.weights = step, store, x, weights

    def run(self, schedule: EpochSchedule) -> None:
        """Runs all steps of an epoch."""
        steps = [schedule.graphs(number) for number in range(len(schedule.num_rows))]
        batches = self._batches(steps)
        for graphs in steps:
            with profiled(STEP):
                with profiled("batch"):
                    batch = next(batches)
                active = None
                if len(graphs) > 1:  # of one replica, every step has a graph
                    present = (graphs >= 0).any(-1)
                    active = None if bool(present.all()) else present.to(self.store.device)
                self.step(
                    batch, active, None if self.weights is None else batch_weights(self.weights, graphs)
                )

    def _batches(self, steps: list[Tensor]) -> Iterator[GraphBatch]:
        """The batch of each step."""
        store, x = self.store, self.x
        one = len(steps[0]) == 1 and isinstance(store, GraphStore) and store.device.type == "cpu"
        if one and isinstance(store, GraphStore) and isinstance(x, Tensor):
            return collate_steps(store, x, steps)
        return (store.batch(x, graphs) for graphs in steps)
