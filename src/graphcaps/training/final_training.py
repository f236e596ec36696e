"""The model to keep: one training on all graphs but a validation share, which can stop and go on."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphcaps._io.provenance import describe_hardware
from graphcaps.config import RunConfig
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.inference.fitted_model import FittedModel, training_summary
from graphcaps.inference.probabilities import CalibrationMethod
from graphcaps.models.builder import model_factory, recipe_arguments
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.calibration import finalise_model, load_initial_weights
from graphcaps.training.checkpoint import Checkpoint, load_checkpoint, take_checkpoint, write_checkpoint
from graphcaps.training.device import choose_device
from graphcaps.training.early_stopping import MIN_DELTA, BestWeights
from graphcaps.training.fingerprint import data_digest, run_fingerprint
from graphcaps.training.holdout import evaluate_test_set, split_holdout
from graphcaps.training.memory import explain_out_of_memory
from graphcaps.training.replicas import Replica, pick_replica, stack_replicas
from graphcaps.training.streaming import move_to_device
from graphcaps.training.trainer import EpochEnd, Trainer, TrainingError

__all__ = ["FinalResult", "FinalTraining", "train_final"]

CHECKPOINT_SECONDS = 20.0
"""Where no number of epochs is given, a checkpoint is written at the first epoch end after this long."""


@dataclass(frozen=True)
class FinalResult:
    """A trained model and how it came about.

    Args:
        model (FittedModel): Ready to predict and to save.
        history (tuple): An :class:`EpochEnd` per epoch; its lists hold one number.
        epoch (int): Epoch whose weights were kept, counted from 1.
        training (dict): Where the model comes from, JSON-safe; also in the model file.
    """

    model: FittedModel
    history: tuple[EpochEnd, ...]
    epoch: int
    training: dict[str, Any]


class FinalTraining:
    """One training that yields events, keeps the best weights, and can be written down between epochs.

    The same store, configuration, seed and share give the same bits on a CPU, also where a run was stopped
    and went on.

    Args:
        store (GraphStore): Graphs with classes.
        config (RunConfig): Model, input columns and training.
        seed (int): Of the validation draw, the starting weights, the order of graphs and dropout. (default: 0)
        validation (float): Share of every class that has_validation the epoch; 0 takes the last. (default: 0.1)
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        patience (int, optional): Stop when so many epochs have brought no loss lower by 0.0005; needs a
            validation part. (default: never)
        class_weight (Tensor, optional): What a graph of each class counts in the losses, ``[O]``.
            (default: 1 each)
        calibrate (str, optional): ``"temperature"`` or ``"isotonic"``: how probabilities are fitted to the
            validation graphs; ``None`` leaves them as they are. (default: "temperature")
        start (FittedModel, optional): Go on from its weights and input columns; Adam starts anew.
        split (Split, optional): Graphs to learn from, to choose by and to test on. The training knows nothing of
            the last; the model's figures on them stand in ``training``. Without a validation part a share of the
            others is drawn. (default: no graph tests)

    Raises:
        ArgumentError: If the graphs have no classes or one, or cannot be split.
    """

    def __init__(
        self,
        store: GraphStore,
        config: RunConfig,
        *,
        seed: int = 0,
        validation: float = 0.1,
        device: str = "auto",
        patience: int | None = None,
        class_weight: Tensor | None = None,
        calibrate: CalibrationMethod | None = "temperature",
        start: FittedModel | None = None,
        split: Split | None = None,
    ) -> None:
        self.holdout = split_holdout(store, _classes(store, seed), split, validation, seed)
        store = self.holdout.store
        config = resolve_config(config, store, None if start is None else start.config)
        if patience is not None and (type(patience) is not int or patience < 1):
            raise ArgumentError("train", "patience", "be a whole number from 1 on", patience)
        self.source, self.config, self.seed = store, config, seed
        self.patience, self.calibrate = patience, calibrate
        self.device = choose_device(device, "train")
        self.data_digest = data_digest(store)
        self.split = Split(self.holdout.train, self.holdout.validation, torch.empty(0, dtype=torch.long))
        replica = Replica(self.holdout.train, self.holdout.validation, self.split.test, seed=seed)
        self.fingerprint = run_fingerprint(config, self.data_digest, [replica])
        told = {
            "patience": patience,
            "class_weight": None if class_weight is None else class_weight.tolist(),
            "test_graphs": None
            if self.holdout.test_store is None
            else data_digest(self.holdout.test_store)[:16],
        }
        self.fingerprint |= {name: value for name, value in told.items() if value is not None}
        with explain_out_of_memory(config, self.device):
            fresh = FeatureRecipe(**recipe_arguments(config.features))  # type: ignore[arg-type]
            recipe = fresh if start is None else start.recipe
            ready = encode_graphs(store, recipe, max_nodes=config.features.max_nodes)
            self.recipe = ready.recipe
            self._make = model_factory(config, ready.x.size(-1), store.num_classes)
            model = stack_replicas(self._make, [replica]).to(self.device)
            if start is not None:
                load_initial_weights(model, start, store.class_names)
            graphs, x = move_to_device(ready.store, ready.x, self.device)
            self.trainer = Trainer(model, graphs, x, [replica], config.training, class_weight=class_weight)
        self.best = BestWeights(self.holdout.validation.numel() > 0, config.training.epochs)
        self.history: list[EpochEnd] = []
        self.notes: tuple[str, ...] = ()
        self._between = self._take()

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.trainer.epoch

    @property
    def ended(self) -> bool:
        """Whether all epochs are done, or patience has run out."""
        return self.epoch >= self.config.training.epochs or self.best.should_stop(self.history, self.patience)

    @property
    def run_digest(self) -> str:
        """The fingerprint as one word, kept in the model file."""
        return hashlib.sha256(json.dumps(self.fingerprint, sort_keys=True).encode()).hexdigest()

    def run(self, checkpoint: str | Path | None = None, every: int | None = None) -> Iterator[EpochEnd]:
        """Trains to the last epoch, an event per epoch.

        Args:
            checkpoint (str or Path, optional): File to keep up to date on the way.
            every (int, optional): Epochs between two writings. (default: at the first epoch end after 20 s)
        """
        written = time.monotonic()
        while not self.ended:
            with explain_out_of_memory(self.config, self.device):
                event = self.trainer.run_epoch()
                self.history.append(event)
                self.best.update(self.trainer.model, self.history)
                self._between = self._take()
            if checkpoint is not None:
                waited = time.monotonic() - written >= CHECKPOINT_SECONDS
                if self.epoch % every == 0 if every else waited:
                    self.save(checkpoint)
                    written = time.monotonic()
            yield event

    def _take(self) -> Checkpoint:
        return take_checkpoint(self.trainer, self.history, self.best.state())

    def save(self, path: str | Path) -> int:
        """Writes a checkpoint of the last whole epoch, also when one was broken off in the middle.

        Returns:
            int: Epochs that it holds.
        """
        between = self._between
        write_checkpoint(path, between, self.fingerprint)
        return between.epoch

    def resume(self, path: str | Path) -> None:
        """Goes on from a checkpoint of the same run; its number of epochs alone may differ.

        Raises:
            DataError: If it is damaged, foreign, of another run, or further on than this run is to go.
        """
        found = load_checkpoint(path, self.fingerprint, self.device)
        if found.epoch > self.config.training.epochs:
            raise DataError(
                path,
                f"a checkpoint of at most {self.config.training.epochs} epochs",
                f"one of {found.epoch}",
                fix="Ask for more epochs, or start again without resuming.",
            )
        self.trainer.load_state(found.state)
        self.history = list(found.history)
        self.best.load_state(found.extra, self.device)
        if self.history:
            self.best.update(self.trainer.model, self.history)  # an epoch that only now is the last
        self.notes = found.notes
        self._between = self._take()

    def result(self) -> FinalResult:
        """The model of the epoch that counts. Call after :meth:`run`.

        Raises:
            TrainingError: If no epoch had a validation loss that is a number.
        """
        if not self.best.epoch:
            raise TrainingError(
                "No epoch that counts gave a validation loss that is a number. "
                "Lower the learning rate, or check the data for extreme values."
            )
        # An epoch may have been broken off: without a choice, what stood after the last whole one is kept.
        self.trainer.model.load_state_dict(self.best.weights or self._between.weights)
        model = pick_replica(self.trainer.model, self._make, 0).cpu().eval()
        bare = FittedModel(model, self.config, self.recipe, self.source.class_names, self.describe())
        fitted = finalise_model(bare, self.source, self.holdout.validation, self.calibrate)
        if self.holdout.test_store is not None:
            fitted = evaluate_test_set(fitted, self.holdout.test_store)
        return FinalResult(fitted, tuple(self.history), self.best.epoch, fitted.training)

    @property
    def _rule(self) -> str:
        if self.epoch >= self.config.training.epochs:
            return self.best.rule
        return f"{self.best.rule}; stopped: no progress above {MIN_DELTA} in {self.patience} epochs"

    def describe(self) -> dict[str, Any]:
        """Where the weights come from, JSON-safe."""
        kept = self.history[self.best.epoch - 1]
        has_validation = self.best.has_validation
        return training_summary(
            self.source,
            digest=self.data_digest,
            run=self.run_digest,
            **self.holdout.describe(),
            seed=self.seed,
            epochs=self.config.training.epochs,
            epochs_run=self.epoch,
            epoch=self.best.epoch,
            rule=self._rule,
            train_loss=kept.train_loss[0],
            train_accuracy=kept.train_accuracy[0],
            validation_loss=kept.validation_loss[0] if has_validation else None,
            validation_accuracy=kept.validation_accuracy[0] if has_validation else None,
            seconds=round(math.fsum(event.seconds for event in self.history), 3),
            hardware=describe_hardware(self.device),
            notes=list(self.notes),
        )


def train_final(
    store: GraphStore,
    config: RunConfig,
    *,
    seed: int = 0,
    validation: float = 0.1,
    device: str = "auto",
    on_epoch: Callable[[EpochEnd], object] | None = None,
    **options: Any,
) -> FinalResult:
    """Trains one model on all graphs but a validation share; arguments as in :class:`FinalTraining`.

    Args:
        on_epoch (callable, optional): Is handed every event, for a progress bar.
        options: ``patience``, ``class_weight``, ``calibrate``, ``start`` and ``split`` of :class:`FinalTraining`.
    """
    training = FinalTraining(store, config, seed=seed, validation=validation, device=device, **options)
    for event in training.run():
        if on_epoch is not None:
            on_epoch(event)
    return training.result()


def _classes(store: GraphStore, seed: int) -> torch.Tensor:
    """The classes of a store that can be learned from."""
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ArgumentError("train", "seed", "be a whole number from 0 to 2³² − 1", seed)
    if store.y is None:
        raise ArgumentError(
            "train", "source", "have a class for every graph", f"'{store.name}' without", "Add graph labels."
        )
    present = store.y.unique()
    if present.numel() < 2:
        what = f"class '{store.class_names[int(present[0])]}' alone" if present.numel() else "no graphs"
        raise ArgumentError("train", "source", "hold graphs of at least two classes", what)
    return store.y
