"""An epoch of F replicas: training steps, evaluation, and the state that a resumed training needs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from graphcaps._io.provenance import library_versions
from graphcaps.config import TrainConfig
from graphcaps.data.batching import collate_padded
from graphcaps.data.features.encoding import compact_features
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.inference.probabilities import class_prior
from graphcaps.metrics import SelectionMetric
from graphcaps.nn.capsule_use import CapsuleUse, measure_capsule_use
from graphcaps.nn.graph_model import GraphModel
from graphcaps.training.batch_schedule import EVALUATION_ROWS, EpochSchedule, pad_indices, schedule_epoch
from graphcaps.training.class_weights import balanced_class_weights
from graphcaps.training.cuda_graphs import BucketedRunner, CudaGraphRecorder, can_capture
from graphcaps.training.device import available_cores, limit_threads, matmul_precision
from graphcaps.training.epoch_metrics import EpochMetrics
from graphcaps.training.evaluator import (
    EvaluationMetrics,
    Evaluator,
    LabelledGraphs,
    prior_metrics,
    with_nodes,
)
from graphcaps.training.graph_shards import GradientSum, GraphShard, ShardRunner
from graphcaps.training.optimizer import ReplicaAdam
from graphcaps.training.replica_settings import ReplicaNumbers
from graphcaps.training.replica_trainer import EpochEnd, strip_prefix
from graphcaps.training.replicas import Replica, copy_replicas_, spread_sample
from graphcaps.training.sample_weight import normalise_weights
from graphcaps.training.step import EagerRunner, TrainingError, TrainingStep
from graphcaps.training.streaming import batch_source
from graphcaps.training.weight_averaging import WeightAverage
from graphcaps.types import FeatureTable, GraphBatch, LossOptions

__all__ = ["StepMode", "Trainer", "TrainingError"]

_PRECOMPILE = "GRAPHCAPS_PRECOMPILE"
"""Environment variable: 0 compiles kernels when they are launched, one after another, and not before the first step."""

_GRAPHS_OF_USE, _GRAPHS_OF_MEANS = 200, 1000  # of each replica: more hardly change which capsules are in use
_SIZE_OF_USE = 50_000  # nodes and edge entries of these graphs of a replica, approximately
_LEAST_OF_USE = 20  # graphs of a replica, however large they are

StepMode = Literal["auto", "eager", "bucketed", "captured"]


class Trainer:
    """Trains F replicas as one model over one store.

    Each replica has its own graphs, order, weights, moments, running statistics and dropout stream. Replica f of F
    therefore learns what it would learn alone, up to rounding. Graphs without nodes have no gradient: the training sets
    leave them out, and the weights are those of a training without them, bit by bit. Losses and accuracies count them
    with the class prior of the replica's training graphs. :class:`~graphcaps.training.loop.TrainingLoop` adds early
    stopping, the choice of an epoch and checkpoints to the epochs that are run here.

    On a GPU with kernels, training steps and evaluation are captured as CUDA graphs and replayed. An epoch then has
    one host–device synchronisation: its metrics are read at its end.

    Args:
        model (GraphModel): Model with leading axis F; see :func:`stack_replicas`.
        store (GraphStore): All graphs, with labels, on the model's device, or on the host to be streamed.
        x (Tensor or FeatureTable): Features of all nodes, on the device of the store, ``[N, in]``.
        replicas (list): Training, validation and test graphs of each replica.
        config (TrainConfig): Hyper-parameters of the training.
        step_mode (str): ``"eager"`` runs one operation after another; ``"bucketed"`` rounds batches up to a few
            shapes; ``"captured"`` captures each of these shapes as a CUDA graph; ``"auto"`` captures where that is
            possible. (default: "auto")
        class_weight (Tensor or str, optional): Weight of each class in the losses, ``[O]``; ``"balanced"`` for those of
            :func:`~graphcaps.training.class_weights.balanced_class_weights` of each replica's training graphs.
        sample_weight (Tensor, optional): Weight of each graph in the losses, ``[G]``; they are scaled to a mean of 1
            over the training set and over the validation set of each replica. Accuracies are not weighted.
        metric (str): Metric of the validation set that selects the epoch. (default: "loss")
        keep_scores (bool): Keep the class scores of validation and test graphs for :meth:`scores`.
            (default: ``False``)
        replica_configs (sequence, optional): Training of each replica, where they differ in learning rate, its halving,
            weight decay and reconstruction weight. (default: ``config`` for all)
        allow_divergence (bool): Train on if the loss of a replica is not a number: its metrics are NaN, and the others
            are as without it. (default: ``False``, an error)
        shard (GraphShard, optional): The graphs of ``store`` among those of all ranks, which train together. Indices
            of ``replicas`` and ``sample_weight`` are then those of all graphs, and steps run eagerly. (default: one
            process)

    Raises:
        UsageError: If the store has no labels.
        ArgumentError: If a replica has no training graphs with nodes.
    """

    def __init__(
        self,
        model: GraphModel,
        store: GraphStore,
        x: Tensor | FeatureTable,
        replicas: list[Replica],
        config: TrainConfig,
        *,
        step_mode: StepMode = "auto",
        class_weight: Tensor | Literal["balanced"] | None = None,
        sample_weight: Tensor | None = None,
        metric: SelectionMetric = "loss",
        keep_scores: bool = False,
        replica_configs: Sequence[TrainConfig] | None = None,
        allow_divergence: bool = False,
        shard: GraphShard | None = None,
    ) -> None:
        if store.y is None:
            raise UsageError(f"Trainer: '{store.name}' has no class labels; add graph labels to train on it.")
        labelled: LabelledGraphs = store if shard is None else shard
        y = store.y.cpu() if shard is None else shard.y
        train_sets = [replica.train for replica in replicas]
        priors = None
        if labelled.empty_graphs.numel():
            priors = torch.stack([class_prior(y[graphs], store.num_classes) for graphs in train_sets])
            replicas = [replace(replica, train=with_nodes(replica.train, labelled)) for replica in replicas]
        if not replicas or any(replica.train.numel() == 0 for replica in replicas):
            got = "none" if priors is None else "graphs without nodes only"
            raise ArgumentError("Trainer", "replicas", "each have at least one training graph", got)
        self._priors = priors
        self.model, self.store, self._shard = model, store, shard
        F, device = len(replicas), next(model.parameters()).device
        source = batch_source(store, device)
        # Streamed graphs carry their features with them; resident features are analysed once.
        is_resident = source is store and shard is None  # tables of different ranks may differ in form
        self.x = compact_features(x, store) if is_resident and isinstance(x, Tensor) else x
        self.replicas, self.config = replicas, config
        self._device = device
        if isinstance(class_weight, str):
            balanced = [balanced_class_weights(y[graphs], store.num_classes) for graphs in train_sets]
            class_weight = torch.stack(balanced)  # [F, O]
        self._numbers = None if replica_configs is None else ReplicaNumbers(config, replica_configs)
        self._allow_divergence = allow_divergence
        reconstruction_weight: float | Tensor = config.reconstruction_weight
        decay: float | Tensor = config.weight_decay
        if self._numbers is not None:
            reconstruction_weight, decay = self._numbers.reconstruction_weight, self._numbers.weight_decay
            if isinstance(reconstruction_weight, Tensor):
                reconstruction_weight = reconstruction_weight.to(next(model.parameters()))
        self._loss_options = LossOptions(
            None if class_weight is None else class_weight.to(device), reconstruction_weight
        )
        # Loss and correct predictions of training graphs without nodes, and the number of all training graphs.
        self._constants = torch.zeros(2, F, dtype=torch.float64)
        self._sample_weight = sample_weight
        weights = None if sample_weight is None else normalise_weights(sample_weight, train_sets).to(device)
        if priors is not None:
            self._constants = prior_metrics(model, labelled, train_sets, priors, self._loss_options, weights)
        self._num_train = torch.tensor([graphs.numel() for graphs in train_sets], dtype=torch.float64)
        self.adam = ReplicaAdam(model, F, weight_decay=decay)
        self.average = WeightAverage(model, config.average_epochs) if config.average_epochs > 1 else None
        self.epoch = 0
        self._kept: dict[str, Tensor] = {}
        if step_mode == "auto" and shard is not None:
            step_mode = "eager"  # a captured step cannot communicate
        elif step_mode == "auto":
            features = x.x if isinstance(x, FeatureTable) else x
            step_mode = "captured" if can_capture(model, store, features) else "eager"
        self._recorder = CudaGraphRecorder() if step_mode == "captured" else None
        self._sizes = store.host_node_ptr.diff() if shard is None else shard.sizes
        self._metrics = EpochMetrics(F, device)
        reduce = None if shard is None else GradientSum(shard.ranks)
        step = TrainingStep(model, self.adam, self._metrics, self._loss_options, reduce)
        self._schedule = self._draw_schedule(0)
        self._runner: EagerRunner | BucketedRunner | ShardRunner
        if shard is not None:
            assert isinstance(self.x, Tensor)
            assert step_mode == "eager"
            self._runner = ShardRunner(step, source, self.x, shard, weights)
        elif step_mode == "eager":
            self._runner = EagerRunner(step, source, self.x, weights)
        else:
            num_steps = len(self._schedule.num_rows)
            self._runner = BucketedRunner(
                step, store, self.x, F, num_steps, config.batch_size, self._recorder, weights
            )
        self._metric: SelectionMetric = metric
        self._keep_scores = keep_scores
        self._evaluators = {name: self._make_evaluator(name) for name in ("validation", "test")}
        self._replays: dict[str, Callable[[], None]] = {}

    def run(self) -> Iterator[EpochEnd]:
        """Trains from the current epoch to the last one and yields an event per epoch."""
        while self.epoch < self.config.epochs:
            yield self.run_epoch()

    def run_epoch(self) -> EpochEnd:
        """One pass over the training set of every replica, then evaluation on validation and test sets."""
        began = time.perf_counter()
        self.model.train()
        self._metrics.clear()
        self.adam.set_rate(
            self.config.learning_rate_at(self.epoch)
            if self._numbers is None
            else self._numbers.rates(self.epoch)
        )
        schedule = self._schedule if self._schedule.epoch == self.epoch else self._draw_schedule(self.epoch)
        rows = len(self.replicas) * max(schedule.num_rows)
        with matmul_precision(self.config.precision, self._device), limit_threads(rows, self._device):
            if os.environ.get(_PRECOMPILE, "1") != "0":
                self._compile_kernels(schedule)
            if self.average is not None:
                self.average.begin()
            self._runner.run(schedule)
            if self.average is not None:
                self.average.end()
            for name, evaluator in self._evaluators.items():
                if evaluator is not None:
                    self._evaluate(name, evaluator)
        # Launches on a GPU are asynchronous: the host draws the next epoch while the device works.
        self._schedule = self._draw_schedule(self.epoch + 1)
        metrics = self._metrics.read(None if self._shard is None else self._shard.ranks.total)
        if not self._allow_divergence:
            self._check_finite(metrics["finite_steps"], len(schedule.num_rows))
        sums, correct = metrics["sums"], metrics["correct"]
        with_nodes = torch.tensor([replica.train.numel() for replica in self.replicas], dtype=torch.float64)
        if self.config.batches_per_epoch is not None:
            # Graphs are drawn more than once or not at all: means over the draws stand for those over the graphs.
            scale = with_nodes / (schedule.order >= 0).sum(-1)
            sums, correct = {name: scale * values for name, values in sums.items()}, scale * correct
        train_loss = (sums["total"] + self._constants[0]) / self._num_train
        train_accuracy = (correct + self._constants[1]) / self._num_train
        terms = {name: (values / with_nodes).tolist() for name, values in sums.items() if name != "total"}
        validation, test = (
            _Lists() if evaluator is None else _as_lists(evaluator.read())
            for evaluator in self._evaluators.values()
        )
        self.epoch += 1
        return EpochEnd(
            epoch=self.epoch,
            epochs=self.config.epochs,
            seconds=time.perf_counter() - began,
            train_loss=train_loss.tolist(),
            train_accuracy=train_accuracy.tolist(),
            validation_loss=validation.loss,
            validation_accuracy=validation.accuracy,
            test_accuracy=test.accuracy,
            validation_metric=validation.metric,
            loss_terms=terms,
        )

    def scores(self) -> list[Tensor]:
        """Class scores of the last epoch's evaluation, on the host.

        For each replica its validation graphs, then its test graphs, ``[n_f, O]``. Only with ``keep_scores``.
        """
        parts = [evaluator.read_scores() for evaluator in self._evaluators.values() if evaluator is not None]
        if not parts:
            return [torch.empty(0, self.store.num_classes) for _ in self.replicas]
        return [torch.cat(rows) for rows in zip(*parts, strict=True)]

    def capsule_use(self) -> list[CapsuleUse]:
        """Capsules in use of the lowest level with the present weights, one entry per replica.

        Over at most 200 validation graphs of a replica, or training graphs if it has no others, and fewer if they are
        large; by the means over at most 1,000 of its training graphs. Empty for a model without capsules.
        """
        size = (self.store.num_nodes + self.store.neighbours.numel()) // max(1, len(self.store))
        most = min(_GRAPHS_OF_USE, max(_LEAST_OF_USE, _SIZE_OF_USE // max(1, size)))
        validation = [with_nodes(replica.validation, self.store) for replica in self.replicas]
        graphs = [
            spread_sample(chosen if chosen.numel() else replica.train, most)
            for chosen, replica in zip(validation, self.replicas, strict=True)
        ]
        training = [spread_sample(replica.train, _GRAPHS_OF_MEANS) for replica in self.replicas]
        with matmul_precision(self.config.precision, self._device):
            return measure_capsule_use(self.model, self._batches(graphs), self._batches(training))

    def _batches(self, graphs: list[Tensor]) -> Iterator[GraphBatch]:
        """Batches of some graphs of each replica; with kernels, of the size of training steps, whose kernels exist."""
        source = batch_source(self.store, self._device)
        captured = self._recorder is not None
        size = self.config.batch_size if captured else self._evaluation_batch_size(graphs)
        for chunk in pad_indices(graphs).split(size, 1):
            if not captured:
                yield source.batch(self.x, chunk)
                continue
            rows = self._sizes[chunk.clamp_min(0)].masked_fill(chunk < 0, 0).sum(-1)
            yield collate_padded(self.store, self.x, chunk.to(self._device), max(1, int(rows.max())))

    def close(self) -> None:
        """Releases CUDA graphs and the model. No epoch can follow."""
        self._replays.clear()
        self._evaluators.clear()
        if isinstance(self._runner, BucketedRunner):
            self._runner.steps.clear()
        del self.model, self.adam, self.average, self._runner, self.x, self._kept

    @property
    def captured(self) -> bool:
        """Whether steps are captured as CUDA graphs."""
        return self._recorder is not None

    def weights(self) -> dict[str, Tensor]:
        """State of the model, with a leading axis F. Later epochs change the tensors in place."""
        return {name: value.detach() for name, value in self.model.state_dict().items()}

    def keep(self, replicas: Sequence[int]) -> None:
        """Copies the present weights of some replicas, in place of their weights that were kept before.

        The first call copies those of all replicas.
        """
        weights = self.weights()
        if self._kept:
            copy_replicas_(self._kept, weights, replicas)
        else:
            self._kept = {name: value.clone() for name, value in weights.items()}

    def kept(self) -> dict[str, Tensor]:
        """The kept weights, in the form of :meth:`weights`; empty if none are kept."""
        return dict(self._kept)

    def state(self) -> dict[str, Tensor]:
        """All tensors that a resumed training needs, kept weights included. Later epochs change them in place."""
        state = {f"model.{name}": value for name, value in self.weights().items()}
        state |= {f"adam.{name}": value for name, value in self.adam.state().items()}
        if self.average is not None:
            state |= {f"last.{name}": value for name, value in self.average.state().items()}
        state |= {f"kept.{name}": value for name, value in self._kept.items()}
        state["epoch"] = torch.tensor(self.epoch)
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continues from a result of :meth:`state`."""
        self.epoch = int(state["epoch"])
        self.model.load_state_dict(strip_prefix("model.", state))
        self.adam.load_state(strip_prefix("adam.", state))
        if self.average is not None:
            self.average.load_state(strip_prefix("last.", state), self.epoch)
        kept = strip_prefix("kept.", state)
        self._kept = {name: value.to(self._device, copy=True) for name, value in kept.items()}

    def _draw_schedule(self, epoch: int) -> EpochSchedule:
        config = self.config
        return schedule_epoch(self.replicas, epoch, config.batch_size, self._sizes, config.batches_per_epoch)

    def _make_evaluator(self, part: str) -> Evaluator | None:
        """The evaluator of one part of the split, or ``None`` where no replica has graphs in it."""
        graphs = [getattr(replica, part) for replica in self.replicas]
        if not any(each.numel() for each in graphs):
            return None
        weights = None if self._sample_weight is None else normalise_weights(self._sample_weight, graphs)
        shard = self._shard
        if shard is not None:
            graphs = [shard.local(each) for each in graphs]
            weights = None if weights is None else weights[:, shard.owned]
        batch_size = self._evaluation_batch_size(graphs)
        return Evaluator(
            *(self.model, self.store, self.x, graphs, batch_size, self._loss_options, self._priors, weights),
            metric=self._metric if part == "validation" else "loss",
            keep_scores=self._keep_scores,
            ranks=None if shard is None else shard.ranks,
        )

    def _evaluation_batch_size(self, graphs: list[Tensor]) -> int:
        """Graphs per replica and batch of an evaluation of these graphs of each replica."""
        if self._recorder is None:
            return max(self.config.batch_size, 128)
        # Large batches keep a GPU busy, whatever the training batch size is.
        rows = sum(int(self._sizes[each].sum()) for each in graphs)
        num_graphs = sum(each.numel() for each in graphs)
        return max(1, EVALUATION_ROWS * num_graphs // (max(rows, 1) * len(graphs)))

    def _compile_kernels(self, schedule: EpochSchedule) -> None:
        """Compiles the kernels of the first captures on all cores; what fails is compiled during the captures."""
        runner = self._runner
        if self._recorder is None or not isinstance(runner, BucketedRunner) or runner.steps:
            return
        # Triton is an optional dependency.
        from graphcaps.ops._triton.precompilation import compile_kernels, compiled_marker

        shapes = [f"{name} {tuple(value.shape)} {value.dtype}" for name, value in self.state().items()]
        weighted = self.store.edge_weight is not None
        marker = compiled_marker(f"{library_versions()} {self.model} {self.config} {shapes} {weighted}")
        if marker.exists():
            return
        evaluations = [each.capturable() for each in self._evaluators.values() if each is not None]

        def compute() -> None:
            runner.run_largest(schedule)
            for evaluate in evaluations:
                evaluate()

        state = {name: value.clone() for name, value in self.state().items()}
        compile_kernels(compute, available_cores(), marker=marker)
        self.load_state(state)
        self.adam.zero_grad()
        self._metrics.clear()
        self.model.train()
        torch.cuda.empty_cache()  # captures have a stream and a memory pool of their own

    def _evaluate(self, name: str, evaluator: Evaluator) -> None:
        if self._recorder is not None and name not in self._replays:
            self._replays[name] = self._recorder.record(evaluator.capturable())
        self._replays.get(name, evaluator.run)()

    def _check_finite(self, finite_steps: dict[str, float], num_steps: int) -> None:
        # Reports the term that failed first: one step later its gradient has made every weight NaN.
        terms = {name: count for name, count in finite_steps.items() if name != "total"} or finite_steps
        worst = min(terms, key=lambda name: terms[name])
        if terms[worst] < num_steps:
            raise TrainingError(
                f"Training stopped in epoch {self.epoch + 1}: the {worst} loss is not a number. "
                "Lower the learning rate, or check the data for extreme values."
            )


@dataclass(frozen=True)
class _Lists:
    """The metrics of one part of the split as lists; empty without one."""

    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    metric: list[float] = field(default_factory=list)


def _as_lists(metrics: EvaluationMetrics) -> _Lists:
    metric = [] if metrics.metric is None else metrics.metric.tolist()
    return _Lists(metrics.loss.tolist(), metrics.accuracy.tolist(), metric)
