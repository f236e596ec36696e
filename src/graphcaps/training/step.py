"""One update of all replicas, and an epoch of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphcaps.data.store import GraphStore
from graphcaps.errors import GraphcapsError
from graphcaps.training.batch_schedule import EpochPlan
from graphcaps.training.epoch_metrics import Tally
from graphcaps.training.optimizer import ReplicaAdam
from graphcaps.training.streaming import StreamedStore
from graphcaps.types import FeatureTable, GraphBatch

__all__ = ["EagerSteps", "TrainingError", "Update"]


class TrainingError(GraphcapsError):
    """A training that cannot go on."""


class Update:
    """Forward, backward, Adam, count.

    Args:
        model (Module): Leading axis F.
        adam (ReplicaAdam): Of its parameters.
        tally (Tally): Where losses and right answers are added up.
        weights (dict): Arguments of the model's loss, such as the reconstruction's weight or class weights.
    """

    def __init__(self, model: nn.Module, adam: ReplicaAdam, tally: Tally, weights: dict[str, Any]) -> None:
        self.model, self.adam, self.tally, self.weights = model, adam, tally, weights

    def __call__(self, batch: GraphBatch, active: Tensor | None) -> None:
        """Learns from one batch; ``active [F]`` is True at replicas that have a graph in it (``None``: all)."""
        learner: Any = self.model
        assert batch.y is not None
        output = learner.forward_batch(batch, batch.y)
        terms = learner.loss(output, batch.y, **self.weights)
        self.adam.zero_grad()
        terms.total.backward(torch.ones_like(terms.total))  # replicas do not touch: as if each were alone
        self.adam.step(active=active)
        self.tally.add(terms, output.class_scores, batch.y)


class EagerSteps:
    """Steps run one operation after another, with batches sized exactly by the host.

    Args:
        update (Update): What a step does.
        store (GraphStore or StreamedStore): All graphs.
        x (Tensor or FeatureTable): Features of all nodes.
    """

    def __init__(self, update: Update, store: GraphStore | StreamedStore, x: Tensor | FeatureTable) -> None:
        self.update, self.store, self.x = update, store, x

    def run(self, plan: EpochPlan) -> None:
        """An epoch of updates."""
        for step in range(len(plan.slots)):
            graphs = plan.graphs(step)
            batch = self.store.batch(self.x, graphs)
            present = (graphs >= 0).any(-1)
            self.update(batch, None if bool(present.all()) else present.to(self.store.device))
            self.update.adam.zero_grad()
