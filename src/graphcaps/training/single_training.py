"""What all trainings of a model to keep have in common: held-out graphs, fingerprint, description and result.

The model is a single one, the best of several restarts, or a committee. Restarts, and members of a committee, are
replicas with consecutive seeds on the same split.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphcaps._io.provenance import describe_hardware
from graphcaps.config import MAX_MEMBERS, RunConfig
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.quality.graph_hashes import graph_hashes
from graphcaps.data.quality.summary import describe_empty_graphs
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, warn_user
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.fitted_model import FittedModel, training_summary
from graphcaps.inference.probabilities import CalibrationMethod
from graphcaps.inference.split_hashes import SplitHashes
from graphcaps.models.classical import ClassicalModel
from graphcaps.nn.capsule_use import CapsuleCollapseWarning, CapsuleUse
from graphcaps.nn.graph_model import GraphModel
from graphcaps.training.auto_config import check_run_types, resolve_config
from graphcaps.training.calibration import calibrate_model
from graphcaps.training.companion_training import OutOfFold, add_companions
from graphcaps.training.companion_weights import companion_configs, describe_companion, stacking_folds
from graphcaps.training.data_notes import describe_reading
from graphcaps.training.device import choose_device, on_device
from graphcaps.training.fingerprint import data_digest, run_fingerprint, weights_digest
from graphcaps.training.holdout import check_labels, evaluate_test_set, split_holdout
from graphcaps.training.ranks import Ranks
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica, spread_sample
from graphcaps.training.restarts import check_restarts
from graphcaps.training.sample_weight import check_sample_weight
from graphcaps.training.shared_store import check_same_data, check_same_run, share_store

__all__ = ["FinalResult", "SingleTraining"]

_BLOCK = 4096  # training graphs that are copied at a time to measure the accuracy of the kept model
# At most: further graphs hardly change a mean or what is in use, and a pass takes as long as an epoch.
_GRAPHS_OF_MEANS, _GRAPHS_OF_USE = 10_000, 1000
_MEMBER_METRICS = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy")


@dataclass(frozen=True)
class FinalResult:
    """A trained model and its provenance.

    Args:
        model (FittedModel): Model to predict with and to save.
        history (tuple): An :class:`EpochEnd` per epoch of the model, with lists of one number per member.
        epoch (int): Epoch whose weights were kept, counted from 1; of a committee the latest of its members' epochs.
        training (dict): Provenance of the model, JSON-safe; also in the model file.
    """

    model: FittedModel
    history: tuple[EpochEnd, ...]
    epoch: int
    training: dict[str, Any]

    @property
    def capsule_use(self) -> CapsuleUse | None:
        """Capsules in use of the lowest level over the validation graphs; ``None`` for a model without capsules."""
        use = self.training.get("capsule_use")
        return None if use is None else CapsuleUse(**use)

    def warn(self) -> None:
        """Gives a :class:`CapsuleCollapseWarning` if one capsule holds almost all nodes."""
        if self.capsule_use is not None and self.capsule_use.collapsed:
            warn_user(self.capsule_use.warning, CapsuleCollapseWarning)


class SingleTraining(ABC):
    """Base class of trainings of one model on all graphs but a validation set, and a test set if there is a split.

    With ``members`` above 1 it trains a committee. Member m, counted from 0, is what a training of its own with seed
    ``seed + m`` on the same training and validation graphs gives, up to rounding. With ``restarts`` above 1 the models
    of as many seeds are trained likewise, and one of them is kept.

    A subclass trains in :meth:`run` and passes its model to :meth:`_finish` in :meth:`result`.

    Args:
        store (GraphStore): Graphs with labels.
        config (RunConfig): Model, features and training.
        seed (int): Seed of the validation split and of the model, or of the first member or restart.
        members (int, optional): Number of members. (default: that of ``config``)
        validation (float or Tensor): Fraction of each class in the validation set, 0 for none; or the indices of the
            validation graphs.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``.
        calibrate (str, optional): ``"temperature"`` or ``"isotonic"``: calibration of probabilities on the validation
            set; ``None`` leaves them as they are.
        split (Split, optional): Training, validation and test graphs. Training does not use the test graphs; their
            metrics are added to ``training`` of the model. Without validation graphs, a fraction of the others is
            drawn.
        sample_weight (array, optional): Weight of each graph of ``store``. (default: 1 each)
        start (FittedModel, optional): Model that is fine-tuned. (default: none is)
        left_out (GraphStore, optional): Molecules that were left out of ``store`` because of contradicting labels, for
            the record of the model. (default: none)
        options (dict, optional): Further values that determine the model; they are part of the fingerprint.
        companion (str, optional): Name of a classical model that is fitted to the same training graphs and mixed with
            the model (docs/companion.md), or several with commas between them; ``"none"`` for none. (default: that
            of ``config``)
        ranks (Ranks, optional): Processes that train together, each with the same arguments. (default: one process)
        restarts (int): Number of trainings of which one is kept. (default: 1)

    Attributes:
        has_epochs (bool): Whether the training has epochs, of which one is selected, and checkpoints.
        reading_notes (tuple): What it does not read of the graphs, one sentence each.
        stacking (list): Inner trainings whose out-of-fold predictions choose the weights of the companions, with the
            graphs that they predict as ``test``; empty if the validation graphs choose them.

    Raises:
        ArgumentError: If the graphs are of fewer than two classes, cannot be split, or have no nodes, if a companion
            cannot be fitted to them, or if there are restarts of a committee, of a model to fine-tune or without
            validation graphs.
        UsageError: If the graphs have no labels, the device cannot be used, or ranks have different graphs or options.
    """

    has_epochs: ClassVar[bool]

    def __init__(
        self,
        store: GraphStore,
        config: RunConfig,
        *,
        seed: int,
        validation: float | Tensor,
        device: str,
        calibrate: CalibrationMethod | None,
        split: Split | None,
        sample_weight: Sequence[float] | np.ndarray | Tensor | None = None,
        start: FittedModel | None = None,
        left_out: GraphStore | None = None,
        options: Mapping[str, Any] | None = None,
        members: int | None = None,
        companion: str | None = None,
        ranks: Ranks | None = None,
        restarts: int = 1,
    ) -> None:
        check_run_types(store, config, "train")
        if members is not None and (type(members) is not int or not 1 <= members <= MAX_MEMBERS):
            raise ArgumentError("train", "members", f"be a whole number from 1 to {MAX_MEMBERS:,}", members)
        committee = config.with_committee(members=members, companion=companion).committee
        check_restarts(restarts, committee.members)
        if restarts > 1 and start is not None:
            expected = "be 1 for fine-tuning, where all trainings start from the same weights"
            raise ArgumentError("train", "restarts", expected, restarts)
        self.restarts = restarts
        if ranks is not None and committee.companion is not None:
            expected = "be left out with several processes, of which none has all graphs"
            fix = "'none' leaves out that of a preset."
            raise ArgumentError("train", "companion", expected, f"'{committee.companion}'", fix)
        self.ranks = ranks
        digest = None if ranks is None else data_digest(store)
        if ranks is not None and digest is not None:
            check_same_data(ranks, digest)
        self.holdout = split_holdout(
            store, check_labels(store, seed), split, validation, seed, self._select_graphs
        )
        if restarts > 1 and not self.holdout.validation.numel():
            expected = "be 1 without validation graphs, which choose the model to keep"
            raise ArgumentError("train", "restarts", expected, restarts, "Set a validation share above 0.")
        weights = check_sample_weight("train", sample_weight, len(store))
        kept = self.holdout.kept
        self.sample_weight = weights if weights is None or kept is None else weights[kept]
        self.source, self.seed, self.calibrate = self.holdout.store, seed, calibrate
        like = None if start is None else start.config
        self.config = resolve_config(config.of_one_model(), self.source, like)
        self.companions = companion_configs(committee.companion, self.config.model, self.source, "train")
        if self.companions and not self.holdout.validation.numel():
            expected = "come with validation graphs, which choose its weight"
            fix = "Set a validation share above 0, or leave it out: --companion none, companion='none' in Python."
            raise ArgumentError("train", "companion", expected, f"'{committee.companion}' without any", fix)
        self.reading_notes = (
            *describe_reading(store, self.config),
            *(describe_companion(each, self.source) for each in self.companions),
        )
        self._empty_note = describe_empty_graphs(store)
        self._start_hashes = None if start is None else start.split_hashes
        self._left_out = left_out
        self.device = choose_device(device, "train", self.config.model)
        self.data_digest = digest if digest is not None and self.source is store else data_digest(self.source)
        no_test = torch.empty(0, dtype=torch.long)
        self.replicas = [
            Replica(self.holdout.train, self.holdout.validation, no_test, seed=seed + member)
            for member in range(committee.members * restarts)  # one of them is 1
        ]
        self._kept = [*range(len(self.replicas))]
        self.stacking: list[Replica] = []
        if self.companions and start is None:  # a model to fine-tune may have been trained on any graph
            assert self.source.y is not None
            folds = stacking_folds(self.source.y, self.holdout.train, self.holdout.validation, seed)
            self.stacking = [
                Replica(train, self.holdout.validation, test, seed=seed, fold=number)
                for number, (train, test) in enumerate(folds, 1)
            ]
        test_store = self.holdout.test_store
        self.fingerprint = run_fingerprint(
            self.config,
            self.data_digest,
            [*self.replicas, *self.stacking],
            **(options or {}),
            restarts=restarts if restarts > 1 else None,
            companion=", ".join(each.model for each in self.companions) or None,
            sample_weight=None if weights is None else weights_digest(weights),
            test_graphs=None if test_store is None else data_digest(test_store)[:16],
        )
        if ranks is not None:
            check_same_run(ranks, self.fingerprint | {"epochs": self.config.training.epochs})

    def _select_graphs(self, store: GraphStore, graphs: Tensor) -> GraphStore:
        """A store of some graphs; of several ranks, one that all of them read from the same files."""
        return store[graphs] if self.ranks is None else share_store(self.ranks, lambda: store[graphs])

    @property
    def run_digest(self) -> str:
        """SHA-256 of the fingerprint, stored in the model file."""
        return hashlib.sha256(json.dumps(self.fingerprint, sort_keys=True).encode()).hexdigest()

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return len(self.history)

    @property
    @abstractmethod
    def history(self) -> Sequence[EpochEnd]:
        """An event per completed epoch, with lists of one number per member, or per restart."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Remarks on checkpoints, one sentence each."""

    @abstractmethod
    def run(
        self, checkpoint: str | Path | None = None, every: int | None = None
    ) -> Generator[EpochEnd, None, None]:
        """Trains to the last epoch and yields an event per epoch.

        Args:
            checkpoint (str or Path, optional): File to write checkpoints to.
            every (int, optional): Number of epochs between checkpoints.
        """

    @abstractmethod
    def save(self, path: str | Path) -> int:
        """Writes a checkpoint and returns its number of completed epochs; 0 if none was written."""

    @abstractmethod
    def resume(self, path: str | Path) -> None:
        """Resumes from a checkpoint of the same run.

        Raises:
            DataError: If the file is not such a checkpoint.
        """

    @abstractmethod
    def result(self) -> FinalResult:
        """The calibrated model, evaluated on the test graphs if there are any. Call after :meth:`run`.

        Raises:
            TrainingError: If the training is not complete.
        """

    def close(self) -> None:  # noqa: B027  # a fit without epochs holds nothing
        """Ends the processes that train, and frees their memory. No epoch can follow, and no :meth:`result`."""

    @abstractmethod
    def notify_callbacks(self, result: FinalResult) -> None:
        """Passes the final metrics to the callbacks of the user. Call once the result is kept.

        Raises:
            CallbackError: If a callback raises, or raised after the last epoch.
        """

    @property
    @abstractmethod
    def _best_epochs(self) -> list[int]:
        """The epoch of each member, or of each restart, that is kept, counted from 1."""

    @property
    @abstractmethod
    def _rule(self) -> str:
        """How these epochs were selected."""

    @property
    def is_committee(self) -> bool:
        """Whether there are several members."""
        return len(self.replicas) > 1 and self.restarts == 1

    @property
    def _kept_history(self) -> Sequence[EpochEnd]:
        """The events of the replicas that :attr:`_kept` names: all of a committee, one of several restarts."""
        return self.history

    def describe(self) -> dict[str, Any]:
        """Provenance of the model, JSON-safe; losses and accuracies are those of the kept epoch.

        Losses and accuracies of a committee are means over its members, each at its own epoch; ``members`` lists those
        of each. With restarts they are those of the kept model; ``seed`` is that of the split and of the first restart.
        """
        members = [self._describe_member(member) for member in self._kept]
        means = {name: _mean([member[name] for member in members]) for name in _MEMBER_METRICS}
        return training_summary(
            self.source,
            digest=self.data_digest,
            run=self.run_digest,
            **self.holdout.describe(),
            seed=self.seed,
            epochs=self.config.training.epochs,
            epochs_run=len(self._kept_history),
            epoch=self._kept_epoch,
            rule=f"{self._rule}, for each member by itself" if self.is_committee else self._rule,
            **means,
            class_weight=self._class_weight,
            seconds=round(math.fsum(event.seconds for event in self.history), 3),
            hardware=describe_hardware(self.device),
            notes=[*filter(None, [self._empty_note]), *self.reading_notes, *self.notes],
            **({"members": members} if self.is_committee else {}),
        )

    @property
    def _kept_epoch(self) -> int:
        """The epoch of the model; the latest one of a committee."""
        return max(self._best_epochs[member] for member in self._kept)

    def _describe_member(self, member: int) -> dict[str, Any]:
        """Seed, kept epoch and metrics of one member."""
        epoch = self._best_epochs[member]
        kept, has_validation = self.history[epoch - 1], self.holdout.validation.numel() > 0
        return {
            "seed": self.replicas[member].seed,
            "epoch": epoch,
            "train_loss": kept.train_loss[member],
            "train_accuracy": kept.train_accuracy[member],
            "validation_loss": kept.validation_loss[member] if has_validation else None,
            "validation_accuracy": kept.validation_accuracy[member] if has_validation else None,
        }

    @property
    def _class_weight(self) -> dict[str, float] | None:
        """Weight of each class in the losses, by its name; ``None`` if all are 1."""
        weights = self.fingerprint.get("class_weight")
        return None if weights is None else dict(zip(self.source.class_names, weights, strict=True))

    def _finish(
        self,
        members: Sequence[GraphModel] | Sequence[ClassicalModel],
        recipe: FeatureRecipe,
        out_of_fold: OutOfFold | None = None,
    ) -> FinalResult:
        """Calibrates the model on the validation graphs, counts its capsules in use, and evaluates it on test graphs.

        Args:
            members (sequence): The trained model, or the members of a committee, on the CPU.
            recipe (FeatureRecipe): Encoding of the features, fitted to :attr:`source`.
            out_of_fold (OutOfFold, optional): Predictions by the trainings of :attr:`stacking`, if there are any.
        """
        model, *others = members
        fitted = FittedModel(
            model, self.config, recipe, self.source.class_names, self.describe(), others=tuple(others)
        )
        fitted = replace(fitted, profile=TrainingProfile.from_store(self.source))
        fitted = replace(fitted, split_hashes=self._split_hashes(recipe))
        self._fit_mean_coefficients(fitted)
        fitted = replace(fitted, training=fitted.training | self._capsule_use(fitted))
        if self.holdout.validation.numel():
            fitted = calibrate_model(fitted, self.source, self.holdout.validation, self.calibrate)
            metrics = fitted.training.get("validation_metrics")
            if self.is_committee and metrics is not None:  # of the committee, in place of the members' mean
                accuracy = {"validation_accuracy": metrics["accuracy"]}
                fitted = replace(fitted, training=fitted.training | accuracy)
        if self.companions:
            fitted = add_companions(
                fitted,
                self.source,
                self.companions,
                self.replicas[self._kept[0]],
                self.calibrate,
                out_of_fold=out_of_fold,
                sample_weight=self.sample_weight,
            )
        if self.holdout.test_store is not None:
            fitted = evaluate_test_set(fitted, self.holdout.test_store)
        if self.has_epochs:  # a fit without epochs has measured its training graphs
            fitted = replace(
                fitted, training=fitted.training | {"train_accuracy": self._train_accuracy(fitted)}
            )
        return FinalResult(fitted, tuple(self._kept_history), self._kept_epoch, fitted.training)

    def _train_accuracy(self, fitted: FittedModel) -> float:
        """Accuracy of the kept model on its training graphs, in evaluation mode and on the device of the training.

        It is that of the network: a companion may memorise its training graphs.

        That of the epoch (:class:`EpochEnd`) is measured with dropout while weights change, and may be much lower.
        """
        correct = 0
        with on_device(fitted, self.device):
            for block in self.holdout.train.split(_BLOCK):
                graphs = self.source[block]
                assert graphs.y is not None
                scores = fitted.member_scores(fitted.check(graphs).without_warnings())
                p = fitted.to_probabilities(scores, graphs.empty_graphs)
                correct += int(((p.argmax(-1) == graphs.y.cpu().numpy()) & np.isfinite(p).all(-1)).sum())
        return correct / self.holdout.train.numel()

    def _fit_mean_coefficients(self, fitted: FittedModel) -> None:
        """Sets the mean routing coefficients of each member, of a forward pass over at most 10,000 training graphs."""
        some = spread_sample(self.holdout.train, _GRAPHS_OF_MEANS)
        blocks = (self.source[block].with_nodes() for block in some.split(_BLOCK))
        with on_device(fitted, self.device):
            means = fitted.scorer.mean_coefficients(blocks)
        for member, found in zip(fitted.members, means, strict=False):  # a model without capsules has none
            if isinstance(member, GraphModel):
                member.mean_coefficients = found

    def _capsule_use(self, fitted: FittedModel) -> dict[str, Any]:
        """Capsules in use over at most 1,000 validation graphs, or training graphs without those; {} if it has none."""
        graphs = self.holdout.validation if self.holdout.validation.numel() else self.holdout.train
        graphs = spread_sample(graphs, _GRAPHS_OF_USE)
        with on_device(fitted, self.device):
            use = fitted.scorer.capsule_use(self.source[graphs].with_nodes())
        return {} if use is None else {"capsule_use": asdict(use)}

    def _split_hashes(self, recipe: FeatureRecipe) -> SplitHashes:
        """Hashes of the graphs of each part, and of the training graphs of the model that was fine-tuned."""
        test_store, hashes = self.holdout.test_store, graph_hashes(self.source, recipe)
        return SplitHashes.from_parts(
            hashes[self.holdout.train.cpu().numpy()],
            hashes[self.holdout.validation.cpu().numpy()],
            hashes[:0] if test_store is None else graph_hashes(test_store, recipe),
            self._start_hashes,
            hashes[:0] if self._left_out is None else graph_hashes(self._left_out, recipe),
        )


def _mean(values: Sequence[float | None]) -> float | None:
    """Mean of numbers; ``None`` if they were not measured."""
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None
