"""The training loop: it yields events and prints nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphcaps.config import TrainConfig
from graphcaps.data.features.encoding import compact_features
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.training.batch_schedule import SCORED_ROWS, EpochPlan, plan_epoch
from graphcaps.training.cuda_graphs import BucketSteps, Recorder, can_capture
from graphcaps.training.device import multiply_in, threads_for
from graphcaps.training.epoch_metrics import Tally
from graphcaps.training.evaluator import PartScorer, PartScores
from graphcaps.training.optimizer import ReplicaAdam
from graphcaps.training.replicas import Replica
from graphcaps.training.step import EagerSteps, TrainingError, Update
from graphcaps.training.streaming import open_store
from graphcaps.training.weight_averaging import WeightAverage
from graphcaps.types import FeatureTable

__all__ = ["EpochEnd", "Steps", "Trainer", "TrainingError", "below"]

Steps = Literal["auto", "eager", "bucketed", "captured"]


@dataclass(frozen=True)
class EpochEnd:
    """What one epoch gave, one number per replica, on the host.

    Args:
        epoch (int): Counted from 1.
        epochs (int): How many there will be.
        seconds (float): What the epoch took, evaluation included.
        train_loss, train_accuracy (list): Over the training part, while learning (dropout and all, and of the last
            weights where these are averaged for all that follows).
        validation_loss, validation_accuracy (list): Over the validation part; empty where there is none.
        test_accuracy (list): Over the test part; empty where there is none.
    """

    epoch: int
    epochs: int
    seconds: float
    train_loss: list[float]
    train_accuracy: list[float]
    validation_loss: list[float]
    validation_accuracy: list[float]
    test_accuracy: list[float]


class Trainer:
    """F replicas trained as one model over one store.

    Each replica has its own graphs, order, weights, moments, running statistics and dropout stream, so
    replica f of F learns what it would learn alone, up to rounding. The library is silent: iterate over
    :meth:`run` and show what you like.

    On a GPU with kernels steps and scoring are captured and replayed: an epoch asks the host nothing, and its
    figures are read once, at its end.

    Args:
        model (Module): Leading axis F; see :func:`stack_replicas`.
        store (GraphStore): All graphs, with classes, on the model's device, or on the host to be streamed.
        x (Tensor or FeatureTable): Features of all nodes, beside the store, ``[N, in]``.
        replicas (list): What each replica sees.
        config (TrainConfig): How it is trained.
        steps (str): ``"eager"`` runs one operation after another; ``"bucketed"`` gives steps few shapes;
            ``"captured"`` captures each shape on a GPU; ``"auto"`` captures where that is possible.
            (default: "auto")
        class_weight (Tensor, optional): What a graph of each class counts in the losses, ``[O]``.
    """

    def __init__(
        self,
        model: nn.Module,
        store: GraphStore,
        x: Tensor | FeatureTable,
        replicas: list[Replica],
        config: TrainConfig,
        *,
        steps: Steps = "auto",
        class_weight: Tensor | None = None,
    ) -> None:
        if store.y is None:
            raise ArgumentError(
                "Trainer", "store", "have classes", f"'{store.name}' without", "Give it labels."
            )
        if not replicas or any(replica.train.numel() == 0 for replica in replicas):
            raise ArgumentError("Trainer", "replicas", "each have a graph to learn from", "none")
        self.model, self.store = model, store
        F, device = len(replicas), next(model.parameters()).device
        source = open_store(store, device)
        # Looked through once, unless graphs are streamed: their features come with them.
        self.x = compact_features(x, store) if source is store and isinstance(x, Tensor) else x
        self.replicas, self.config = replicas, config
        self._device = device
        self._class_weight = None if class_weight is None else class_weight.to(device)
        self.adam = ReplicaAdam(model, F, weight_decay=config.weight_decay)
        self.average = WeightAverage(model, config.average_epochs) if config.average_epochs > 1 else None
        self.epoch = 0
        if steps == "auto":
            steps = (
                "captured"
                if can_capture(model, store, x.x if isinstance(x, FeatureTable) else x)
                else "eager"
            )
        self._recorder = Recorder() if steps == "captured" else None
        self._sizes = store.host_node_ptr.diff()
        self._tally = Tally(F, device)
        update = Update(model, self.adam, self._tally, self._weights)
        self._plan = self._draw(0)
        self._steps: EagerSteps | BucketSteps
        if steps == "eager":
            self._steps = EagerSteps(update, source, self.x)
        else:
            count = len(self._plan.slots)
            self._steps = BucketSteps(update, store, self.x, F, count, config.batch_size, self._recorder)
        self._scorers = {name: self._scorer(name) for name in ("validation", "test")}
        self._score: dict[str, Callable[[], None]] = {}

    def run(self) -> Iterator[EpochEnd]:
        """Trains from where it stands to the last epoch, an event per epoch."""
        while self.epoch < self.config.epochs:
            yield self.run_epoch()

    def run_epoch(self) -> EpochEnd:
        """One pass over every replica's training part, then its validation and test parts."""
        began = time.perf_counter()
        self.model.train()
        self._tally.clear()
        self.adam.set_rate(self.config.rate(self.epoch))
        plan = self._plan if self._plan.epoch == self.epoch else self._draw(self.epoch)
        rows = len(self.replicas) * max(plan.slots)
        with multiply_in(self.config.precision, self._device), threads_for(rows, self._device):
            if self.average is not None:
                self.average.begin()
            self._steps.run(plan)
            if self.average is not None:
                self.average.end()
            for name, scorer in self._scorers.items():
                if scorer is not None:
                    self._launch(name, scorer)
        # While a GPU is busy with all that, the host draws the next epoch.
        self._plan = self._draw(self.epoch + 1)
        learned = self._tally.read()
        self._refuse_nan(learned["sound"], len(plan.slots))
        count = torch.tensor([replica.train.numel() for replica in self.replicas], dtype=torch.float64)
        held, test = (
            ([], []) if scorer is None else _lists(scorer.read()) for scorer in self._scorers.values()
        )
        self.epoch += 1
        return EpochEnd(
            epoch=self.epoch,
            epochs=self.config.epochs,
            seconds=time.perf_counter() - began,
            train_loss=(learned["sums"]["total"] / count).tolist(),
            train_accuracy=(learned["right"] / count).tolist(),
            validation_loss=held[0],
            validation_accuracy=held[1],
            test_accuracy=test[1],
        )

    def close(self) -> None:
        """Lets go of what was captured, and of the model; no epoch can follow."""
        self._score.clear()
        self._scorers.clear()
        if isinstance(self._steps, BucketSteps):
            self._steps.steps.clear()
        del self.model, self.adam, self.average, self._steps, self.x

    def _draw(self, epoch: int) -> EpochPlan:
        return plan_epoch(self.replicas, epoch, self.config.batch_size, self._sizes)

    @property
    def captured(self) -> bool:
        """Whether steps are captured and replayed."""
        return self._recorder is not None

    @property
    def _weights(self) -> dict[str, Any]:
        if getattr(self.model, "decoder", None) is None:
            return self._by_class
        return self._by_class | {"reconstruction_weight": self.config.reconstruction_weight}

    @property
    def _by_class(self) -> dict[str, Any]:
        return {} if self._class_weight is None else {"class_weight": self._class_weight}

    def _scorer(self, part: str) -> PartScorer | None:
        """For one part, or ``None`` where no replica has it."""
        parts = [getattr(replica, part) for replica in self.replicas]
        graphs = sum(each.numel() for each in parts)
        if not graphs:
            return None
        batch_size = max(self.config.batch_size, 128)
        if self._recorder is not None:  # as many as keep a GPU busy, whatever the batches of training are
            rows = sum(int(self._sizes[each].sum()) for each in parts)
            batch_size = max(1, SCORED_ROWS * graphs // (rows * len(parts)))
        return PartScorer(self.model, self.store, self.x, parts, batch_size, self._by_class)

    def _launch(self, name: str, scorer: PartScorer) -> None:
        if self._recorder is not None and name not in self._score:
            self._score[name] = self._recorder.record(scorer.body())
        self._score.get(name, scorer.launch)()

    def _refuse_nan(self, sound: dict[str, float], steps: int) -> None:
        # The term that broke first: one step later its gradient has spoilt every weight.
        terms = {name: count for name, count in sound.items() if name != "total"} or sound
        worst = min(terms, key=lambda name: terms[name])
        if terms[worst] < steps:
            raise TrainingError(
                f"Training stopped in epoch {self.epoch + 1}: the {worst} loss is not a number. "
                "Lower the learning rate, or check the data for extreme values."
            )

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs, as tensors."""
        state = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        state |= {f"adam.{name}": value for name, value in self.adam.state().items()}
        if self.average is not None:
            state |= {f"last.{name}": value for name, value in self.average.state().items()}
        state["epoch"] = torch.tensor(self.epoch)
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Goes on where :meth:`state` was taken."""
        self.epoch = int(state["epoch"])
        self.model.load_state_dict(below("model.", state))
        self.adam.load_state(below("adam.", state))
        if self.average is not None:
            self.average.load_state(below("last.", state), self.epoch)


def below(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The entries under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _lists(scores: PartScores) -> tuple[list[float], list[float]]:
    return scores.loss.tolist(), scores.accuracy.tolist()
