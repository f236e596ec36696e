"""Loss, accuracy and class scores of every replica on its validation or test set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from graphcaps.data.batching import collate_padded
from graphcaps.data.store import GraphStore
from graphcaps.inference.probabilities import class_probabilities, prior_scores
from graphcaps.metrics import SelectionMetric, metric_of
from graphcaps.nn.graph_model import GraphModel
from graphcaps.training.batch_schedule import pad_indices
from graphcaps.training.ranks import Ranks
from graphcaps.training.sample_weight import batch_weights
from graphcaps.training.streaming import batch_source
from graphcaps.types import FeatureTable, GraphBatch, LossOptions, ModelOutput

__all__ = ["EvaluationMetrics", "Evaluator", "LabelledGraphs", "prior_metrics", "with_nodes"]


class LabelledGraphs(Protocol):
    """Classes of graphs and those without nodes: a :class:`GraphStore`, or a rank's knowledge of all graphs."""

    @property
    def y(self) -> Tensor | None: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def empty_graphs(self) -> Tensor: ...


_KEPT_ROWS = 1 << 14
"""Number of nodes up to which the batches of an evaluation on a CPU are kept between epochs."""


@dataclass(frozen=True)
class EvaluationMetrics:
    """Metrics of one evaluation; NaN for a replica without graphs.

    Args:
        loss (Tensor): Classification loss, mean over graphs, ``[F]``.
        accuracy (Tensor): Fraction of graphs that are classified correctly, ``[F]``.
        metric (Tensor, optional): The metric that selects the epoch, ``[F]``; ``None`` if that is the loss.
    """

    loss: Tensor
    accuracy: Tensor
    metric: Tensor | None = None


def with_nodes(graphs: Tensor, store: LabelledGraphs) -> Tensor:
    """Those of the graph indices ``graphs`` whose graphs have nodes, in the same order."""
    return graphs[~torch.isin(graphs, store.empty_graphs)]


@torch.no_grad()
def prior_metrics(
    model: GraphModel,
    store: LabelledGraphs,
    graphs: list[Tensor],
    priors: Tensor,
    options: LossOptions,
    weights: Tensor | None = None,
) -> Tensor:
    """Sums of loss and correct predictions over graphs without nodes, float64 ``[2, F]``, on the host.

    The prediction for such a graph is the class prior, so that both are constants of a training.

    Args:
        model (GraphModel): Model with leading axis F; only its loss is used.
        store (GraphStore): All graphs, or their classes.
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
        metric (str): Metric to compute beside loss and accuracy; ``"loss"`` for none. (default: "loss")
        keep_scores (bool): Keep the class scores of all graphs for :meth:`read_scores`. (default: ``False``)
        ranks (Ranks, optional): Processes that evaluate other graphs of the same set; metrics are those of the whole
            set. (default: one process)
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
        *,
        metric: SelectionMetric = "loss",
        keep_scores: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        self.model, self.store, self.x, self.ranks = model, store, x, ranks
        self._score = model.scoring_function()
        device = next(model.parameters()).device
        self.sums = torch.zeros(2, len(graphs), dtype=torch.float64, device=device)  # loss, correct
        self.counts = torch.tensor([indices.numel() for indices in graphs], dtype=torch.float64)
        self.constants = torch.zeros(2, len(graphs), dtype=torch.float64)  # of graphs without nodes
        self._metric_function = None if metric == "loss" else metric_of(metric)
        self._scores: _ScoreTable | None = None
        if keep_scores or metric != "loss":
            self._scores = _ScoreTable(model, store, graphs, priors)
        if priors is not None and store.empty_graphs.numel():
            was_training = model.training
            model.eval()  # the loss that this evaluator measures
            self.constants = prior_metrics(model, store, graphs, priors, options, weights)
            model.train(was_training)
            graphs = [with_nodes(indices, store) for indices in graphs]
        self.chunks = [chunk for chunk in pad_indices(graphs).split(batch_size, 1) if chunk.numel()]
        rows = sum(int(store.host_node_ptr.diff()[indices].sum()) for indices in graphs)
        self._keeps_batches = device.type == "cpu" and store.device.type == "cpu" and rows <= _KEPT_ROWS
        self._batches: list[GraphBatch] | None = None
        self.chunk_options = [options] * len(self.chunks)
        if weights is not None:
            weights = weights.to(device)
            self.chunk_options = [
                replace(options, graph_weight=batch_weights(weights, chunk)) for chunk in self.chunks
            ]

    def run(self) -> None:
        """Evaluates all graphs; on a GPU it returns when the work is launched."""
        source = batch_source(self.store, self.sums.device)
        if self._batches is None and self._keeps_batches:
            self._batches = [source.batch(self.x, chunk) for chunk in self.chunks]
        self._evaluate(self._batches or (source.batch(self.x, chunk) for chunk in self.chunks))

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
        sums, counts = self.sums.cpu() + self.constants, self.counts
        if self.ranks is not None:
            *added, counts = self.ranks.total(torch.cat([sums, counts.unsqueeze(0)]))
            sums = torch.stack(added)
        loss, correct = sums / counts
        if self._metric_function is None or self._scores is None:
            return EvaluationMetrics(loss, correct)
        if self.ranks is not None:
            self._scores.measure_all(self._metric_function, self.ranks)
        return EvaluationMetrics(loss, correct, self._scores.metric.cpu())

    def read_scores(self) -> list[Tensor]:
        """Class scores of the last run, on the host: for each replica ``[n_f, O]``, in the order of its graphs.

        Graphs without nodes have scores whose probabilities are the class prior.
        """
        assert self._scores is not None, "scores are not kept"
        return self._scores.read()

    @torch.no_grad()
    def _evaluate(self, batches: Iterable[GraphBatch]) -> None:
        was_training = self.model.training
        self.model.eval()
        self.sums.zero_()
        column = 0
        for batch, options in zip(batches, self.chunk_options, strict=True):
            scores = self._add(batch, options)
            if self._scores is not None:
                self._scores.write(scores, column)
            column += scores.size(-2)
        if self._metric_function is not None and self._scores is not None and self.ranks is None:
            self._scores.measure(self._metric_function)
        self.model.train(was_training)

    def _add(self, batch: GraphBatch, options: LossOptions) -> Tensor:
        """Adds the sums of a batch; returns its class scores, ``[F, B, O]``."""
        assert batch.y is not None
        output = self._score(batch)
        loss = self.model.loss(output, batch.y, options).total.double() * (batch.y >= 0).sum(-1)
        correct = (output.class_scores.argmax(-1) == batch.y).sum(-1)
        self.sums.add_(torch.stack([loss, correct.double()]))
        return output.class_scores


class _ScoreTable:
    """Class scores of all graphs of F replicas in one tensor of fixed shape, on the device.

    A row holds the graphs of a replica that have nodes, padding, then its graphs without nodes, whose scores are
    constants.

    Args:
        model (GraphModel): Model with leading axis F.
        store (GraphStore): All graphs.
        graphs (list): Indices of the graphs of each replica.
        priors (Tensor, optional): Class prior of each replica, ``[F, O]``; needed if a graph has no nodes.
    """

    def __init__(
        self, model: GraphModel, store: GraphStore, graphs: list[Tensor], priors: Tensor | None
    ) -> None:
        assert store.y is not None
        parameter = next(model.parameters())
        empty = [torch.isin(indices, store.empty_graphs) for indices in graphs]
        rows = [indices[~mask] for indices, mask in zip(graphs, empty, strict=True)]
        constant = pad_indices([indices[mask] for indices, mask in zip(graphs, empty, strict=True)])
        table = torch.cat([pad_indices(rows), constant], 1)  # [F, N]
        first_constant = table.size(1) - constant.size(1)
        # Column of each graph of a replica, in the order of ``graphs``.
        self._columns = []
        for mask in empty:
            column = torch.zeros(mask.numel(), dtype=torch.long)
            column[~mask] = torch.arange(int((~mask).sum()))
            column[mask] = torch.arange(first_constant, first_constant + int(mask.sum()))
            self._columns.append(column)
        y = store.y.cpu()[table.clamp_min(0)].masked_fill(table < 0, -1)
        self._y, self._kind = y.to(parameter.device), model.scores
        shape = (*table.shape, store.num_classes)
        self._scores = torch.zeros(shape, dtype=parameter.dtype, device=parameter.device)
        if constant.size(1):
            assert priors is not None
            constants = prior_scores(priors, model.scores).unsqueeze(1)
            self._scores[:, first_constant:] = constants.to(self._scores)
        self.metric = torch.zeros(len(graphs), dtype=torch.float64, device=parameter.device)

    def write(self, scores: Tensor, column: int) -> None:
        """Stores the scores of a batch, ``[F, B, O]``, from a column on."""
        self._scores[:, column : column + scores.size(1)].copy_(scores)

    def measure(self, metric: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Computes a metric of each replica into :attr:`metric`, ``[F]``, without host–device synchronisation."""
        self.metric.copy_(metric(class_probabilities(self._scores, self._kind), self._y))

    def measure_all(self, metric: Callable[[Tensor, Tensor], Tensor], ranks: Ranks) -> None:
        """As :meth:`measure`, over the graphs of all ranks."""
        tables = ranks.gather((self._scores.cpu(), self._y.cpu()))
        scores, y = (torch.cat(columns, 1) for columns in zip(*tables, strict=True))
        self.metric.copy_(metric(class_probabilities(scores, self._kind), y))

    def read(self) -> list[Tensor]:
        """The scores of each replica in the order of its graphs, on the host, ``[n_f, O]``."""
        scores = self._scores.cpu()
        return [row[column] for row, column in zip(scores, self._columns, strict=True)]
