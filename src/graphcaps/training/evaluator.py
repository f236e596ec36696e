"""Loss and accuracy of every replica on its validation or test set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphcaps.data.batching import collate_padded
from graphcaps.data.store import GraphStore
from graphcaps.inference.probabilities import prior_scores
from graphcaps.nn.graph_model import GraphModel
from graphcaps.training.batch_schedule import pad_indices
from graphcaps.training.sample_weight import batch_weights
from graphcaps.training.streaming import batch_source
from graphcaps.types import FeatureTable, GraphBatch, LossOptions, ModelOutput

__all__ = ["EvaluationMetrics", "Evaluator", "prior_metrics", "with_nodes"]


@dataclass(frozen=True)
class EvaluationMetrics:
    """Metrics of one evaluation; NaN for a replica without graphs.

    Args:
        loss (Tensor): Classification loss, mean over graphs, ``[F]``.
        accuracy (Tensor): Fraction of graphs that are classified correctly, ``[F]``.
    """

    loss: Tensor
    accuracy: Tensor


def with_nodes(graphs: Tensor, store: GraphStore) -> Tensor:
    """Those of the graph indices ``graphs`` whose graphs have nodes, in the same order."""
    return graphs[~torch.isin(graphs, store.empty_graphs)]


@torch.no_grad()
def prior_metrics(
    model: GraphModel,
    store: GraphStore,
    graphs: list[Tensor],
    priors: Tensor,
    options: LossOptions,
    weights: Tensor | None = None,
) -> Tensor:
    """Sums of loss and correct predictions over graphs without nodes, float64 ``[2, F]``, on the host.

    The prediction for such a graph is the class prior, so that both are constants of a training.

    Args:
        model (GraphModel): Model with leading axis F; only its loss is used.
        store (GraphStore): All graphs.
        graphs (list): Indices of the graphs of each replica; those with nodes do not count.
        priors (Tensor): Class prior of each replica, ``[F, O]``.
        options (LossOptions): Weights of classes and loss terms.
        weights (Tensor, optional): Weight of each graph, ``[F, G]``. (default: 1 each)
    """
    assert store.y is not None
    empty = pad_indices([indices[torch.isin(indices, store.empty_graphs)] for indices in graphs])
    y = store.y.cpu()[empty.clamp_min(0)].masked_fill(empty < 0, -1)  # [F, B]
    scores = prior_scores(priors, model.scores).unsqueeze(-2).expand(*y.shape, -1)
    weight = options.class_weight
    options = replace(
        options,
        class_weight=None if weight is None else weight.cpu(),
        graph_weight=None if weights is None else batch_weights(weights.cpu(), empty),
    )
    loss = model.loss(ModelOutput(scores), y, options).total.double() * (y >= 0).sum(-1)
    return torch.stack([loss, (scores.argmax(-1) == y).sum(-1).double()])


class Evaluator:
    """Evaluates replica f on the graphs ``graphs[f]``. Sums stay on the device until they are read.

    The prediction for a graph without nodes is the class prior of the replica's training graphs, whatever the model
    is. Its loss and its correctness are constants: they are computed once, and the model sees the other graphs only.

    Args:
        model (GraphModel): Model with leading axis F. It is evaluated in evaluation mode, and its mode is restored.
        store (GraphStore): All graphs.
        x (Tensor or FeatureTable): Features of all nodes.
        graphs (list): Indices of the graphs of each replica.
        batch_size (int): Graphs per replica and batch.
        options (LossOptions): Weights of classes and loss terms. (default: those of :class:`LossOptions`)
        priors (Tensor, optional): Class prior of each replica, ``[F, O]``; needed if a graph has no nodes.
        weights (Tensor, optional): Weight of each graph in the loss, ``[F, G]``. (default: 1 each)
    """

    def __init__(
        self,
        model: GraphModel,
        store: GraphStore,
        x: Tensor | FeatureTable,
        graphs: list[Tensor],
        batch_size: int,
        options: LossOptions = LossOptions(),
        priors: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.model, self.store, self.x = model, store, x
        device = next(model.parameters()).device
        self.sums = torch.zeros(2, len(graphs), dtype=torch.float64, device=device)  # loss, correct
        self.counts = torch.tensor([indices.numel() for indices in graphs], dtype=torch.float64)
        self.constants = torch.zeros(2, len(graphs), dtype=torch.float64)  # of graphs without nodes
        if priors is not None and store.empty_graphs.numel():
            self.constants = prior_metrics(model, store, graphs, priors, options, weights)
            graphs = [with_nodes(indices, store) for indices in graphs]
        self.chunks = [chunk for chunk in pad_indices(graphs).split(batch_size, 1) if chunk.numel()]
        self.chunk_options = [options] * len(self.chunks)
        if weights is not None:
            weights = weights.to(device)
            self.chunk_options = [
                replace(options, graph_weight=batch_weights(weights, chunk)) for chunk in self.chunks
            ]

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
        loss, correct = (self.sums.cpu() + self.constants) / self.counts
        return EvaluationMetrics(loss, correct)

    @torch.no_grad()
    def _evaluate(self, batches: Iterable[GraphBatch]) -> None:
        was_training = self.model.training
        self.model.eval()
        self.sums.zero_()
        for batch, options in zip(batches, self.chunk_options, strict=True):
            self._add(batch, options)
        self.model.train(was_training)

    def _add(self, batch: GraphBatch, options: LossOptions) -> None:
        assert batch.y is not None
        output = self.model.forward_batch(batch)
        loss = self.model.loss(output, batch.y, options).total.double() * (batch.y >= 0).sum(-1)
        correct = (output.class_scores.argmax(-1) == batch.y).sum(-1)
        self.sums.add_(torch.stack([loss, correct.double()]))
