"""The training loop: it yields events and prints nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphcaps.data.store import GraphStore
from graphcaps.engine.adam import ReplicaAdam
from graphcaps.engine.config import TrainConfig
from graphcaps.engine.parts import pad_rows, score_parts
from graphcaps.engine.replicas import Replica
from graphcaps.errors import ArgumentError, GraphcapsError

__all__ = ["EpochEnd", "Trainer", "TrainingError"]


class TrainingError(GraphcapsError):
    """A training that cannot go on."""


@dataclass(frozen=True)
class EpochEnd:
    """What one epoch gave, one number per replica, on the host.

    Args:
        epoch (int): Counted from 1.
        epochs (int): How many there will be.
        seconds (float): What the epoch took, evaluation included.
        train_loss, train_accuracy (list): Over the training part, while learning (dropout and all).
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


@dataclass(frozen=True)
class _Learned:
    """Sums over an epoch: loss terms, steps in which each was a number, right answers; and all steps."""

    sums: dict[str, Tensor]
    sound: dict[str, Tensor]
    right: Tensor
    steps: int


class Trainer:
    """F replicas trained as one model over one store.

    Each replica has its own graphs, order, weights, moments, running statistics and dropout stream, so
    replica f of F learns what it would learn alone, up to rounding. The library is silent: iterate over
    :meth:`run` and show what you like.

    Args:
        model (Module): Leading axis F; see :func:`stack_replicas`.
        store (GraphStore): All graphs, with classes.
        x (Tensor): Features of all nodes, ``[N, in]``.
        replicas (list): What each replica sees.
        config (TrainConfig): How it is trained.
    """

    def __init__(
        self, model: nn.Module, store: GraphStore, x: Tensor, replicas: list[Replica], config: TrainConfig
    ) -> None:
        if store.y is None:
            raise ArgumentError(
                "Trainer", "store", "have classes", f"'{store.name}' without", "Give it labels."
            )
        if not replicas or any(replica.train.numel() == 0 for replica in replicas):
            raise ArgumentError("Trainer", "replicas", "each have a graph to learn from", "none")
        self.model, self.store, self.x = model, store, x
        self.replicas, self.config = replicas, config
        self.adam = ReplicaAdam(model, len(replicas), weight_decay=config.weight_decay)
        self.epoch = 0

    def run(self) -> Iterator[EpochEnd]:
        """Trains from where it stands to the last epoch, an event per epoch."""
        while self.epoch < self.config.epochs:
            yield self.run_epoch()

    def run_epoch(self) -> EpochEnd:
        """One pass over every replica's training part, then its validation and test parts."""
        began = time.perf_counter()
        learned = self._learn()
        self._refuse_nan(learned)
        count = torch.tensor([replica.train.numel() for replica in self.replicas], dtype=torch.float64)
        train_loss = {name: (value.cpu() / count) for name, value in learned.sums.items()}
        held = self._score([replica.validation for replica in self.replicas])
        test = self._score([replica.test for replica in self.replicas])
        self.epoch += 1
        return EpochEnd(
            epoch=self.epoch,
            epochs=self.config.epochs,
            seconds=time.perf_counter() - began,
            train_loss=train_loss["total"].tolist(),
            train_accuracy=(learned.right.cpu() / count).tolist(),
            validation_loss=held[0],
            validation_accuracy=held[1],
            test_accuracy=test[1],
        )

    def _learn(self) -> _Learned:
        """One epoch of updates."""
        config, F = self.config, len(self.replicas)
        order = pad_rows([replica.order(self.epoch) for replica in self.replicas])
        rate = config.rate(self.epoch)
        sums: dict[str, Tensor] = {}
        sound: dict[str, Tensor] = {}
        right = torch.zeros(F, dtype=torch.float64, device=self.x.device)
        learner: Any = self.model
        learner.train()
        starts = range(0, order.size(1), config.batch_size)
        for start in starts:
            graphs = order[:, start : start + config.batch_size]
            batch = self.store.batch(self.x, graphs)
            assert batch.y is not None
            output = learner.forward_batch(batch, batch.y)
            terms = learner.loss(output, batch.y, **self._weights)
            self.adam.zero_grad()
            terms.total.sum().backward()
            active = (graphs >= 0).any(-1)
            self.adam.step(rate, None if bool(active.all()) else active.to(self.x.device))
            counts = (batch.y >= 0).sum(-1)
            with torch.no_grad():
                for name, value in ({"total": terms.total} | terms.terms).items():
                    sums[name] = sums.get(name, 0) + value.detach().double() * counts
                    sound[name] = sound.get(name, 0) + value.isfinite().all()
                right += ((output.class_scores.argmax(-1) == batch.y) & (batch.y >= 0)).sum(-1)
        return _Learned(sums, sound, right, len(starts))

    @property
    def _weights(self) -> dict[str, float]:
        if getattr(self.model, "decoder", None) is None:
            return {}
        return {"reconstruction_weight": self.config.reconstruction_weight}

    def _score(self, parts: list[Tensor]) -> tuple[list[float], list[float]]:
        if not any(part.numel() for part in parts):
            return [], []
        scores = score_parts(self.model, self.store, self.x, parts, max(self.config.batch_size, 128))
        return scores.loss.tolist(), scores.accuracy.tolist()

    def _refuse_nan(self, learned: _Learned) -> None:
        steps = {name: int(value) for name, value in learned.sound.items() if name != "total"}
        # The term that broke first: one step later its gradient has spoilt every weight.
        worst = min(steps, key=lambda name: steps[name])
        if steps[worst] < learned.steps:
            raise TrainingError(
                f"Training stopped in epoch {self.epoch + 1}: the {worst} loss is not a number. "
                "Lower the learning rate, or check the data for extreme values."
            )

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs, as tensors."""
        state = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        state |= {f"adam.{name}": value for name, value in self.adam.state().items()}
        state["epoch"] = torch.tensor(self.epoch)
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Goes on where :meth:`state` was taken."""
        own = {name: value for name, value in state.items() if name.startswith("model.")}
        self.model.load_state_dict({name.removeprefix("model."): value for name, value in own.items()})
        moments = {name: value for name, value in state.items() if name.startswith("adam.")}
        self.adam.load_state({name.removeprefix("adam."): value for name, value in moments.items()})
        self.epoch = int(state["epoch"])
