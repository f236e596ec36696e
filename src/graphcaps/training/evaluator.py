"""Loss and accuracy of every replica on its validation or test set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.data.batching import collate_padded
from graphcaps.data.store import GraphStore
from graphcaps.nn.graph_model import GraphModel
from graphcaps.training.batch_schedule import pad_indices
from graphcaps.training.streaming import batch_source
from graphcaps.types import FeatureTable, GraphBatch, LossOptions

__all__ = ["EvaluationMetrics", "Evaluator"]


@dataclass(frozen=True)
class EvaluationMetrics:
    """Metrics of one evaluation; NaN for a replica without graphs.

    Args:
        loss (Tensor): Classification loss, mean over graphs, ``[F]``.
        accuracy (Tensor): Fraction of graphs that are classified correctly, ``[F]``.
    """

    loss: Tensor
    accuracy: Tensor


class Evaluator:
    """Evaluates replica f on the graphs ``graphs[f]``. Sums stay on the device until they are read.

    Args:
        model (GraphModel): Model with leading axis F. It is evaluated in evaluation mode, and its mode is restored.
        store (GraphStore): All graphs.
        x (Tensor or FeatureTable): Features of all nodes.
        graphs (list): Indices of the graphs of each replica.
        batch_size (int): Graphs per replica and batch.
        options (LossOptions): Weights of classes and loss terms. (default: those of :class:`LossOptions`)
    """

    def __init__(
        self,
        model: GraphModel,
        store: GraphStore,
        x: Tensor | FeatureTable,
        graphs: list[Tensor],
        batch_size: int,
        options: LossOptions = LossOptions(),
    ) -> None:
        self.model, self.store, self.x, self.options = model, store, x, options
        device = next(model.parameters()).device
        self.sums = torch.zeros(2, len(graphs), dtype=torch.float64, device=device)  # loss, correct
        self.counts = torch.tensor([indices.numel() for indices in graphs], dtype=torch.float64)
        self.chunks = [chunk for chunk in pad_indices(graphs).split(batch_size, 1) if chunk.numel()]

    def run(self) -> None:
        """Evaluates all graphs; on a GPU it returns when the work is launched."""
        source = batch_source(self.store, self.sums.device)
        self._evaluate(source.batch(self.x, chunk) for chunk in self.chunks)

    def capturable(self) -> Callable[[], None]:
        """:meth:`run` as a function without host–device synchronisation: indices and sizes are moved beforehand."""
        sizes = self.store.host_node_ptr.diff()
        batches = []
        for chunk in self.chunks:
            rows = sizes[chunk.clamp_min(0)].masked_fill(chunk < 0, 0).sum(-1)
            batches.append((chunk.to(self.store.device), int(rows.max())))
        return lambda: self._evaluate(
            collate_padded(self.store, self.x, chunk, rows) for chunk, rows in batches
        )

    def read(self) -> EvaluationMetrics:
        """Metrics of the last run, on the host."""
        loss, correct = self.sums.cpu() / self.counts
        return EvaluationMetrics(loss, correct)

    @torch.no_grad()
    def _evaluate(self, batches: Iterable[GraphBatch]) -> None:
        was_training = self.model.training
        self.model.eval()
        self.sums.zero_()
        for batch in batches:
            self._add(batch)
        self.model.train(was_training)

    def _add(self, batch: GraphBatch) -> None:
        assert batch.y is not None
        output = self.model.forward_batch(batch)
        loss = self.model.loss(output, batch.y, self.options).total.double() * (batch.y >= 0).sum(-1)
        correct = (output.class_scores.argmax(-1) == batch.y).sum(-1)
        self.sums.add_(torch.stack([loss, correct.double()]))
