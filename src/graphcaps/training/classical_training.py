"""The training of a classical model to keep: one fit, as a training of one epoch without checkpoints."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.inference.probabilities import CalibrationMethod
from graphcaps.models.builder import build_classical
from graphcaps.models.lookup import find_classical_model, is_classical
from graphcaps.training.classical_fit import ClassicalFit, describe_fit, fit_replica
from graphcaps.training.companion_training import OutOfFold
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.single_training import FinalResult, SingleTraining
from graphcaps.training.trainer import TrainingError

__all__ = ["ClassicalTraining", "check_members"]


class ClassicalTraining(SingleTraining):
    """The fit of a classical model to keep: all graphs but a validation set, which calibrates its probabilities.

    It is used as a :class:`graphcaps.training.final_training.FinalTraining` of one epoch that has no checkpoints. The
    same store, configuration, seed and validation fraction give the same bits.

    Args:
        store (GraphStore): Graphs with labels.
        config (RunConfig): Names the model and its arguments.
        seed (int): Seed of the validation split and of the model. (default: 0)
        validation (float or Tensor): Fraction of each class in the validation set, 0 for none; or the indices of the
            validation graphs. (default: 0.1)
        device (str): ``"cpu"`` or ``"auto"``. (default: "auto")
        calibrate (str, optional): ``"temperature"`` or ``"isotonic"``: calibration of probabilities on the validation
            set; ``None`` leaves them as they are. (default: "temperature")
        split (Split, optional): Training, validation and test graphs, as in
            :class:`graphcaps.training.final_training.FinalTraining`. (default: no test set)
        sample_weight (array, optional): Weight of each graph in the fit, ``[G]``. (default: 1 each)
        left_out (GraphStore, optional): As in :class:`graphcaps.training.final_training.FinalTraining`.
        members (int): Number of members of a committee, which are fitted one after another with the seeds ``seed``,
            ``seed + 1``, … (default: 1, a single model)
        companion (str, optional): As in :class:`graphcaps.training.final_training.FinalTraining`. (default: none)

    Raises:
        ArgumentError: If the graphs are of fewer than two classes, or cannot be split, or an argument is unknown, or
            a committee is asked of a model whose fit does not depend on the seed.
        UsageError: If the graphs have no labels, or the device is a GPU.
    """

    has_epochs = False

    def __init__(
        self,
        store: GraphStore,
        config: RunConfig,
        *,
        seed: int = 0,
        validation: float | Tensor = 0.1,
        device: str = "auto",
        calibrate: CalibrationMethod | None = "temperature",
        split: Split | None = None,
        sample_weight: Sequence[float] | np.ndarray | Tensor | None = None,
        left_out: GraphStore | None = None,
        members: int | None = None,
        companion: str | None = None,
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
            left_out=left_out,
            members=members,
            companion=companion,
        )
        build_classical(self.config, self.source.num_classes)  # raises on unknown arguments
        check_members(self.config, len(self.replicas), "train")
        self._fits: list[ClassicalFit] = []

    @property
    def history(self) -> tuple[EpochEnd, ...]:
        """The metrics of the fit; empty before it."""
        return (EpochEnd.join([fit.event for fit in self._fits]),) if self._is_complete else ()

    @property
    def _is_complete(self) -> bool:
        return len(self._fits) == len(self.replicas)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on checkpoints: none."""
        return ()

    def run(
        self, checkpoint: str | Path | None = None, every: int | None = None
    ) -> Generator[EpochEnd, None, None]:
        """Fits the model and yields its metrics as those of the only epoch; no checkpoint is written."""
        self._fits = [
            fit_replica(self.source, self.config, replica, sample_weight=self.sample_weight)
            for replica in self.replicas
        ]
        yield self.history[0]

    def save(self, path: str | Path) -> int:
        """Writes nothing: an interrupted fit starts again.

        Returns:
            int: 0, the number of epochs that were saved.
        """
        return 0

    def resume(self, path: str | Path) -> None:
        """Refuses a checkpoint, which must be of another training.

        Raises:
            DataError: Always.
        """
        expected = f"no checkpoint, since the model '{self.config.model}' is fitted without epochs"
        raise DataError(path, expected, "one of another training", fix="Start again with --overwrite.")

    def result(self) -> FinalResult:
        """The calibrated model, evaluated on the test graphs if there are any. Call after :meth:`run`.

        Raises:
            TrainingError: If the model was not fitted.
        """
        if not self._is_complete:
            raise TrainingError("The model is not fitted; call run() before result().")
        recipe = FeatureRecipe.from_config(self.config.features).fit(self.source)
        return self._finish([fit.model for fit in self._fits], recipe, self._out_of_fold())

    def _out_of_fold(self) -> OutOfFold | None:
        """Predictions of fits to parts of the training graphs; ``None`` if they choose no weights."""
        if not self.stacking:
            return None
        fits = [
            fit_replica(self.source, self.config, replica, sample_weight=self.sample_weight)
            for replica in self.stacking
        ]
        rows = [
            fit.probabilities[replica.validation.numel() :]
            for fit, replica in zip(fits, self.stacking, strict=True)
        ]
        return OutOfFold(self.stacking, np.concatenate(rows))

    def notify_callbacks(self, result: FinalResult) -> None:
        """Does nothing: a fit without epochs has no callbacks."""

    @property
    def _best_epochs(self) -> list[int]:
        return [1] * len(self.replicas)

    @property
    def _rule(self) -> str:
        return describe_fit(self._fits[0].model, has_validation=self.holdout.validation.numel() > 0)


def check_members(config: RunConfig, members: int, owner: str, name: str = "members") -> None:
    """Refuses a committee of a classical model whose fit does not depend on the seed: its members would be equal.

    Args:
        config (RunConfig): Names the model; networks always depend on the seed.
        members (int): Number of members.
        owner, name (str): Owner and argument that messages name. (default of ``name``: "members")

    Raises:
        ArgumentError: If the members would be equal.
    """
    if members > 1 and is_classical(config.model) and not find_classical_model(config.model).uses_seed:
        expected = (
            f"be 1 for '{config.model}', whose fit does not depend on the seed: all members would be equal"
        )
        raise ArgumentError(owner, name, expected, members)
