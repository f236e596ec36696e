"""Training of the final model: on all graphs but a validation set, with checkpoints that it can resume from."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.probabilities import CalibrationMethod
from graphcaps.metrics import SelectionMetric, check_selection_metric
from graphcaps.models.classical import ClassicalModel
from graphcaps.models.lookup import is_classical
from graphcaps.nn.graph_model import GraphModel, ModelFactory
from graphcaps.nn.initialise import forked_generator
from graphcaps.training.auto_config import check_network_options, check_run_types
from graphcaps.training.checkpoint import check_state, load_checkpoint, write_checkpoint
from graphcaps.training.checkpoint_writer import CheckpointWriter
from graphcaps.training.classical_training import ClassicalTraining
from graphcaps.training.companion_training import OutOfFold
from graphcaps.training.device import on_device
from graphcaps.training.early_stopping import (
    BestWeights,
    EarlyStopping,
    check_metric,
    check_patience,
    epoch_scale,
)
from graphcaps.training.graph_shards import check_layers, divide_graphs
from graphcaps.training.loop import (
    Callback,
    CallbackError,
    RunInfo,
    TrainingLoop,
    hyperparameters,
    notify_result,
)
from graphcaps.training.memory import explain_out_of_memory
from graphcaps.training.multiprocess import TrainerFactory, make_trainer
from graphcaps.training.ranks import Ranks
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import replica_model
from graphcaps.training.restarts import Restarts
from graphcaps.training.single_training import FinalResult, SingleTraining
from graphcaps.training.trainer import Trainer, TrainingError
from graphcaps.training.training_inputs import prepare_inputs

__all__ = ["FinalTraining", "make_training", "train_final"]


class FinalTraining(SingleTraining):
    """One training that yields events, keeps the best weights, and can be saved between epochs.

    The same store, configuration, seed and validation fraction give the same bits on a CPU, also for a run that was
    interrupted and resumed.

    Args:
        store (GraphStore): Graphs with labels.
        config (RunConfig): Model, features and training.
        seed (int): Seed of the validation split, the initial weights, the order of graphs and dropout. (default: 0)
        validation (float or Tensor): Fraction of each class in the validation set, which selects the epoch; with 0 the
            last epoch is kept. Or the indices of the validation graphs. (default: 0.1)
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        patience (int, optional): Stop after this many epochs without a decrease of the validation loss, or an increase
            of ``metric``, by 0.0005; epochs of fewer than ten steps count in part. (default: never)
        metric (str): Metric of the validation set that selects the epoch: ``"loss"``, ``"accuracy"``,
            ``"balanced-accuracy"``, ``"roc-auc"``, ``"pr-auc"`` or ``"mcc"``. (default: "loss")
        class_weight (Tensor, optional): Weight of each class in the losses, ``[O]``. (default: 1 each)
        sample_weight (array, optional): Weight of each graph of ``store`` in the losses, ``[G]``. Only ratios matter:
            weights are scaled to a mean of 1 over the training set and over the validation set. (default: 1 each)
        calibrate (str, optional): ``"temperature"`` or ``"isotonic"``: calibration of probabilities on the validation
            set; ``None`` leaves them as they are. (default: "temperature")
        start (FittedModel, optional): Model to fine-tune: its weights and feature encoding are used, and the moments
            of Adam start at zero.
        split (Split, optional): Training, validation and test graphs. Training does not use the test graphs; their
            metrics are added to ``training`` of the model. Without validation graphs, a fraction of the others is
            drawn. (default: no test set)
        callbacks (list): :class:`graphcaps.training.Callback` objects of the user. (default: none)
        left_out (GraphStore, optional): Molecules that were left out of ``store`` because of contradicting labels:
            ``used_in`` of the model marks them. (default: none)
        members (int, optional): Number of members of a committee: models that are trained together with the seeds
            ``seed``, ``seed + 1``, … on the same training and validation graphs. Each keeps the epoch that its own
            validation loss selects, and stops by itself; 1 is a single model. (default: that of ``config``)
        companion (str, optional): Name of a classical model that is fitted to the same training graphs and mixed with
            the network (docs/companion.md), or several with commas between them. With few validation graphs, inner
            trainings on parts of the training graphs run as further replicas, to choose its weight. ``"none"`` for
            none. (default: that of ``config``)
        ranks (Ranks, optional): Processes that train together (docs/howto/several-gpus.md). Each is called with the
            same arguments, computes its share of every batch, and has the same weights and events; :meth:`result` and
            files are for the first. (default: one process)
        restarts (int): Number of models that are trained together with the seeds ``seed``, ``seed + 1``, … as the
            members of a committee are, and of which one is kept: with ``parts="blocks"`` that with the lowest block
            loss on the validation graphs (docs/parts.md), else that with the best criterion of its kept epoch.
            (default: 1)

    Raises:
        ArgumentError: If the graphs are of fewer than two classes, or cannot be split, or ``members`` is below 1 or
            differs from the number of members of ``start``, or ``restarts`` is below 1, or above 1 for a committee,
            for fine-tuning or without validation graphs.
        UsageError: If the graphs have no labels.
    """

    has_epochs = True

    def __init__(
        self,
        store: GraphStore,
        config: RunConfig,
        *,
        seed: int = 0,
        validation: float | Tensor = 0.1,
        device: str = "auto",
        patience: int | None = None,
        metric: SelectionMetric = "loss",
        class_weight: Tensor | None = None,
        sample_weight: Sequence[float] | np.ndarray | Tensor | None = None,
        calibrate: CalibrationMethod | None = "temperature",
        start: FittedModel | None = None,
        split: Split | None = None,
        callbacks: Sequence[Callback] = (),
        left_out: GraphStore | None = None,
        members: int | None = None,
        companion: str | None = None,
        ranks: Ranks | None = None,
        restarts: int = 1,
    ) -> None:
        super().__init__(
            store,
            config,
            seed=seed,
            validation=validation,
            device=device,
            calibrate=calibrate,
            split=split,
            sample_weight=sample_weight,
            start=start,
            left_out=left_out,
            options={
                "patience": patience,
                "metric": None if metric == "loss" else metric,
                "class_weight": None if class_weight is None else class_weight.tolist(),
            },
            members=members,
            companion=companion,
            ranks=ranks,
            restarts=restarts,
        )
        check_patience("train", patience)
        self.patience, members = patience, len(self.replicas)
        store, config = self.source, self.config
        assert store.y is not None
        self.metric = check_metric("train", metric, store.y, [self.holdout.validation])
        explain = partial(explain_out_of_memory, config, self.device)
        with explain():
            recipe = None if start is None else start.recipe
            self.shard = None
            if ranks is not None:
                parts = [self.holdout.train, self.holdout.validation]
                self.shard = divide_graphs(store, parts, ranks, config.features.max_nodes)
            owned = None if self.shard is None else self.shard.owned
            inputs = prepare_inputs(store, config, self.device, owner="train", recipe=recipe, graphs=owned)
            self.recipe, self._factory = inputs.recipe, inputs.factory
            initial = None
            if start is not None:
                names = [f"member {number}" if members > 1 else "" for number in range(1, members + 1)]
                models = _initial_models(start, members, inputs.factory, store.class_names)
                initial = dict(zip(names, models, strict=True))
                self.replicas = [
                    replace(replica, variant=name) for replica, name in zip(self.replicas, names, strict=True)
                ]
            # Inner trainings are evaluated after the last epoch, as members are.
            inner = [replace(replica, test=replica.test[:0]) for replica in self.stacking]
            replicas = [*self.replicas, *inner]
            build = TrainerFactory(
                *(inputs.factory, inputs.store, inputs.x, config.training, self.device),
                variants=initial,
                class_weight=class_weight,
                sample_weight=self.sample_weight,
                metric=self.metric,
                shard=self.shard,
            )
            self.trainer = make_trainer(build, replicas)
            if isinstance(self.trainer, Trainer) and ranks is not None:
                check_layers(self.trainer.model)
        has_validation = self.holdout.validation.numel() > 0
        scale = epoch_scale(replicas, config.training)
        self.best = BestWeights(has_validation, config.training.epochs, scale, metric=self.metric)
        self._stopping = None if patience is None else EarlyStopping(patience, scale)
        self._selection: list[Callback] = [] if self._stopping is None else [self._stopping]
        self._selection.append(self.best)
        self._writer: CheckpointWriter | None = None
        options = {"seed": seed, "patience": patience, "train_graphs": self.holdout.train.numel()}
        kind = "member" if restarts == 1 else "restart"
        options |= {f"{kind}s": members} if members > 1 else {}
        named = tuple(f"{kind}{number}" for number in range(1, members + 1)) if len(replicas) > 1 else ("",)
        named += tuple(f"out-of-fold{number}" for number in range(1, len(inner) + 1))
        info = RunInfo(
            f"{store.name}-{config.model}", self.run_digest, hyperparameters(config, **options), named
        )
        self.loop = TrainingLoop(self.trainer, self._selection, explain, callbacks, info)
        self._notes: tuple[str, ...] = ()
        self._callback_error: CallbackError | None = None
        self._restarts: Restarts | None = None

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return self.loop.epoch

    @property
    def history(self) -> list[EpochEnd]:
        """An event per completed epoch, with lists of one number per member, or per restart."""
        return [event.first(len(self.replicas)) for event in self.loop.history]

    @property
    def ended(self) -> bool:
        """Whether all epochs are completed, or the patience is exhausted."""
        return self.loop.ended

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on checkpoints, one sentence each."""
        return self._notes + (() if self._writer is None else self._writer.notes)

    def run(
        self, checkpoint: str | Path | None = None, every: int | None = None
    ) -> Generator[EpochEnd, None, None]:
        """Trains to the last epoch and yields an event per epoch.

        Args:
            checkpoint (str or Path, optional): File to write checkpoints to.
            every (int, optional): Number of epochs between checkpoints. (default: the first epoch, then one
                every 20 s)

        Raises:
            CallbackError: If a callback raises before the last epoch is trained. A later error is raised by
                :meth:`notify_callbacks`, since the model is complete.
        """
        if checkpoint is not None:
            self._writer = CheckpointWriter(checkpoint, self.fingerprint, every=every)
        self.loop.callbacks = self._selection + ([] if self._writer is None else [self._writer])
        try:
            for event in self.loop.run():
                yield event.first(len(self.replicas))
        except BaseException as error:  # also if the caller ends the iteration
            self.loop.interrupt()
            if not (isinstance(error, CallbackError) and self.ended):
                raise
            self._callback_error = error.after_training()

    def save(self, path: str | Path) -> int:
        """Writes a checkpoint of the last completed epoch.

        If a later epoch was interrupted, this is the last copy that :meth:`run` made for its checkpoint file, at most
        about a second older. Nothing is written if the first epoch was interrupted: there is nothing to resume.

        Returns:
            int: Number of completed epochs in the checkpoint; 0 if none was written.

        Raises:
            TrainingError: If an epoch was interrupted and :meth:`run` had no checkpoint file.
        """
        if self._writer is not None:
            checkpoint = self._writer.last_complete(self.loop)
        elif self.loop.complete:
            checkpoint = self.loop.checkpoint()
        else:
            raise TrainingError(
                "An epoch was interrupted; name a checkpoint file in run() to save such a training."
            )
        if checkpoint is None:
            return 0
        write_checkpoint(path, checkpoint, self.fingerprint)
        return checkpoint.epoch

    def resume(self, path: str | Path) -> None:
        """Resumes from a checkpoint of the same run, which may have another number of epochs.

        Raises:
            DataError: If the file is damaged, no checkpoint, of another run, or has more epochs than this run.
        """
        checkpoint = load_checkpoint(path, self.fingerprint, self.device, self.config.training.epochs)
        check_state(path, checkpoint.state, self.loop.trainer.state())
        self.loop.resume(checkpoint)
        self._notes = checkpoint.notes

    def result(self) -> FinalResult:
        """The model of the best epoch, of the best restart, or the members of a committee. Call after :meth:`run`.

        Raises:
            TrainingError: If an epoch was interrupted, or no epoch has a finite validation loss.
        """
        weights = self.best.weights(self.loop)
        count = len(self.replicas)
        models = [
            replica_model(weights, self._factory, replica).cpu().eval()
            for replica in range(count + len(self.stacking))
        ]
        if self.restarts > 1:
            self._restarts = self._compare_restarts(models[:count])
            self._kept = [self._restarts.kept]
        members = [models[index] for index in self._kept]
        return self._finish(members, self.recipe, self._out_of_fold(models[count:]))

    def _compare_restarts(self, models: Sequence[GraphModel]) -> Restarts:
        """The criterion of each restart, by which one is kept."""
        seeds, epochs = tuple(replica.seed for replica in self.replicas), tuple(self._best_epochs)
        first, *others = models
        every = FittedModel(first, self.config, self.recipe, self.source.class_names, others=tuple(others))
        with on_device(every, self.device):
            losses = every.scorer.block_losses(self.source[self.holdout.validation].with_nodes())
        if losses:
            return Restarts.by_block_loss(seeds, epochs, tuple(losses))
        criteria = tuple(float(value) for value in self.best.criteria[: len(models)])
        return Restarts.by_metric(seeds, epochs, criteria, self.metric, self.config.training.epochs)

    def _out_of_fold(self, models: Sequence[GraphModel]) -> OutOfFold | None:
        """The predictions of the inner trainings, on the device of the training; ``None`` without any."""
        if not models:
            return None
        rows = []
        for model, replica in zip(models, self.stacking, strict=True):
            inner = FittedModel(model, self.config, self.recipe, self.source.class_names)
            checked = inner.check(self.source[replica.test]).without_warnings()
            with on_device(inner, self.device):
                rows.append(inner.predict_proba(checked))
        return OutOfFold(self.stacking, np.concatenate(rows))

    def close(self) -> None:
        self.trainer.close()

    def notify_callbacks(self, result: FinalResult) -> None:
        """Passes the final metrics to all callbacks of the user. Call once the result is kept.

        Raises:
            CallbackError: If a callback raises, or raised after the last epoch; its ``result`` is the given one.
        """
        try:
            notify_result(self.loop.observers, _final_metrics(result.training))
        except CallbackError as error:
            self._callback_error = self._callback_error or error
        if self._callback_error is not None:
            self._callback_error.result = result
            raise self._callback_error

    def describe(self) -> dict[str, Any]:
        """Provenance of the model, JSON-safe, with the metric that selected its epoch."""
        if not self.holdout.validation.numel():
            return super().describe()
        described = super().describe() | {"metric": self.metric}
        if self._restarts is not None:
            described |= {"restarts": self._restarts.describe()}
        kept = [(member, self._best_epochs[member]) for member in self._kept]
        values = [
            metric[member] for member, epoch in kept if (metric := self.history[epoch - 1].validation_metric)
        ]
        return described | ({"validation_metric": sum(values) / len(values)} if values else {})

    @property
    def _best_epochs(self) -> list[int]:
        return [int(epoch) for epoch in self.best.best_epochs[: len(self.replicas)]]

    @property
    def _kept_history(self) -> Sequence[EpochEnd]:
        if self._restarts is None:
            return self.history
        # Other restarts may have been trained for longer: the model is that of a training of its seed alone.
        kept = self._restarts.kept
        return [event.pick([kept]) for event in self.history[: int(self.loop.epochs_run[kept])]]

    @property
    def _rule(self) -> str:
        if self._stopping is None or len(self._kept_history) >= self.config.training.epochs:
            return self.best.rule
        return f"{self.best.rule}; stopped: {self._stopping.rule}"


def make_training(
    store: GraphStore,
    config: RunConfig,
    *,
    seed: int = 0,
    validation: float | Tensor = 0.1,
    device: str = "auto",
    patience: int | None = None,
    metric: SelectionMetric = "loss",
    class_weight: Tensor | None = None,
    sample_weight: Sequence[float] | np.ndarray | Tensor | None = None,
    calibrate: CalibrationMethod | None = "temperature",
    start: FittedModel | None = None,
    split: Split | None = None,
    callbacks: Sequence[Callback] = (),
    left_out: GraphStore | None = None,
    members: int | None = None,
    companion: str | None = None,
    ranks: Ranks | None = None,
    restarts: int = 1,
) -> SingleTraining:
    """The training of a configuration: a :class:`FinalTraining`, or a :class:`ClassicalTraining` without epochs.

    Arguments are those of :class:`FinalTraining`; a classical model takes no ``patience``, ``metric``,
    ``class_weight``, ``start``, ``callbacks``, ``ranks`` and ``restarts``.

    Raises:
        ArgumentError: If an argument does not apply to the model, and as :class:`FinalTraining` does.
        UsageError: As :class:`FinalTraining` does.
    """
    check_run_types(store, config, "train")
    if is_classical(config.model):
        selection = None if check_selection_metric("train", metric) == "loss" else metric
        options = {
            "patience": patience,
            "metric": selection,
            "class_weight": class_weight,
            "start": start,
            "callbacks": ", ".join(type(callback).__name__ for callback in callbacks) or None,
            "restarts": None if restarts == 1 else restarts,
        }
        if ranks is not None:
            expected = "be a network with several processes"
            got = f"'{config.model}', which is fitted without epochs"
            raise ArgumentError("train", "model", expected, got, "Start it without torchrun.")
        check_network_options(config, {name: _shown(value) for name, value in options.items()}, "train")
        return ClassicalTraining(
            store,
            config,
            seed=seed,
            validation=validation,
            device=device,
            calibrate=calibrate,
            split=split,
            sample_weight=sample_weight,
            left_out=left_out,
            members=members,
            companion=companion,
        )
    return FinalTraining(
        store,
        config,
        seed=seed,
        validation=validation,
        device=device,
        patience=patience,
        metric=metric,
        class_weight=class_weight,
        sample_weight=sample_weight,
        calibrate=calibrate,
        start=start,
        split=split,
        callbacks=callbacks,
        left_out=left_out,
        members=members,
        companion=companion,
        ranks=ranks,
        restarts=restarts,
    )


def _shown(value: int | str | Tensor | FittedModel | None) -> object:
    """The value of an option in a message; ``None`` if it was not given."""
    if isinstance(value, FittedModel):
        return f"a model '{value.config.model}'"
    return value.tolist() if isinstance(value, Tensor) else value


def train_final(
    store: GraphStore,
    config: RunConfig,
    *,
    seed: int = 0,
    validation: float | Tensor = 0.1,
    device: str = "auto",
    on_epoch: Callable[[EpochEnd], object] | None = None,
    **options: Any,
) -> FinalResult:
    """Trains one model, or a committee, on all graphs but a validation set; arguments as in :func:`make_training`.

    Args:
        on_epoch (callable, optional): Called with every event, for a progress bar.
        options: ``patience``, ``metric``, ``class_weight``, ``sample_weight``, ``calibrate``, ``start``, ``split``,
            ``callbacks``, ``members``, ``companion`` and ``restarts`` of :class:`FinalTraining`.

    Raises:
        CallbackError: If a callback raises. If it does so after the last epoch, ``result`` of the error is what this
            function returns otherwise.

    Warns:
        CapsuleCollapseWarning: If one capsule holds almost all nodes (docs/parts.md).
    """
    training = make_training(store, config, seed=seed, validation=validation, device=device, **options)
    try:
        for event in training.run():
            if on_epoch is not None:
                on_epoch(event)
        result = training.result()
    finally:
        training.close()
    result.warn()
    training.notify_callbacks(result)
    return result


def _final_metrics(training: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a training record that say how good the model is, by name."""
    names = (
        "epoch",
        "train_loss",
        "train_accuracy",
        "validation_loss",
        "validation_accuracy",
        "test_accuracy",
    )
    numbers = {name: training.get(name) for name in names}
    for part in ("validation", "test"):
        metrics = training.get(f"{part}_metrics") or {}
        numbers |= {f"{part}_{name}": value for name, value in metrics.items()}
    return {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}


def _initial_models(
    start: FittedModel, members: int, factory: ModelFactory, class_names: tuple[str, ...]
) -> list[ModelFactory]:
    """Factories of initial weights that are those of a fitted model, one per member.

    Raises:
        ArgumentError: If classes, sizes or the number of members differ.
    """
    if class_names != start.class_names:
        got = f"{', '.join(class_names)}, not {', '.join(start.class_names)}"
        raise ArgumentError("train", "start", "have the classes of the graphs", got)
    if len(start.members) != members:
        expected = f"have {members} member{'' if members == 1 else 's'}, as the training"
        raise ArgumentError("train", "start", expected, len(start.members))
    return [_initial_model(model, start.config.model, factory) for model in start.members]


def _initial_model(model: GraphModel | ClassicalModel, name: str, factory: ModelFactory) -> ModelFactory:
    """A factory that returns a fitted network of the given name, whose sizes must be those of ``factory``."""
    if not isinstance(model, GraphModel):
        raise ArgumentError("train", "start", "be a network", f"the model '{name}'")
    weights = model.state_dict()
    with forked_generator():
        expected = factory(()).state_dict()
    for entry, value in expected.items():
        if entry not in weights or weights[entry].shape != value.shape:
            raise ArgumentError("train", "start", "be a model of the same sizes", f"another '{entry}'")

    def fitted(lead: tuple[int, ...]) -> GraphModel:
        return model

    return fitted
