"""The rule C of the paper for committees: one epoch for all folds, by the mean accuracy on the test folds.

It is an upper bound, since test graphs choose the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcaps.evaluation.epoch_selection import best_common_epoch
from graphcaps.inference.probabilities import probabilities
from graphcaps.registry import ScoreKind
from graphcaps.training.loop import Callback, TrainingLoop
from graphcaps.training.replica_trainer import EpochEnd


class TestProbabilities(Callback):
    """Keeps the uncalibrated probabilities of the test graphs after every epoch.

    Args:
        score_kind (str): Kind of the model's scores.

    Attributes:
        graphs (dict): Indices of the test graphs of each fold.
        of_members (dict): For each fold and seed an array ``[n, O]`` per epoch.
    """

    __test__ = False  # not a test of pytest

    def __init__(self, score_kind: ScoreKind) -> None:
        self.score_kind = score_kind
        self.graphs: dict[int, np.ndarray] = {}
        self.of_members: dict[int, dict[int, list[np.ndarray]]] = {}

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        for replica, scores in zip(loop.trainer.replicas, loop.trainer.scores(), strict=True):
            self.graphs.setdefault(replica.fold, replica.test.cpu().numpy())
            rows = probabilities(scores[replica.validation.numel() :], self.score_kind)
            members = self.of_members.setdefault(replica.fold, {})
            members.setdefault(replica.seed, []).append(rows.astype(np.float32))

    def committee(self, fold: int) -> np.ndarray:
        """Mean over the members of a fold, ``[E, n, O]``, for the epochs that all trainings have."""
        epochs = min(len(each) for members in self.of_members.values() for each in members.values())
        mean: np.ndarray = np.mean([each[:epochs] for each in self.of_members[fold].values()], axis=0)
        return mean


def best_epoch(correct: Sequence[np.ndarray]) -> dict[str, Any]:
    """Accuracy of each fold in percent at the epoch that rule C chooses, and that epoch.

    Args:
        correct (sequence): Share of correct predictions of each fold after every epoch, ``[E]`` each.
    """
    choice = best_common_epoch(np.array(correct))
    return {"accuracy": percent(choice.accuracies), "epoch": int(choice.epochs[0])}


def percent(accuracies: Sequence[float] | np.ndarray) -> list[float]:
    """Accuracies in percent, as they are stored."""
    return [round(100 * float(each), 4) for each in accuracies]
