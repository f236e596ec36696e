"""Settings that may differ between the replicas of one training, as one number per replica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.errors import ArgumentError
from graphcaps.models.builder import ModelBuilder

__all__ = ["REPLICA_SETTINGS", "ReplicaNumbers", "ReplicaSettings"]

REPLICA_SETTINGS = ("learning_rate", "halve_every", "weight_decay", "reconstruction_weight")
"""Settings of the training that may differ between replicas. Those of the model are its ``replica_options``."""


@dataclass(frozen=True)
class ReplicaSettings:
    """Model and training of some replicas, among others of the same shapes.

    Args:
        builder (ModelBuilder): Draws the initial weights; differs from the others in options of
            :attr:`graphcaps.nn.graph_model.GraphModel.replica_options` only.
        training (TrainConfig): Differs from the others in :data:`REPLICA_SETTINGS` only.
    """

    builder: ModelBuilder
    training: TrainConfig


class ReplicaNumbers:
    """Learning rates, weight decays and reconstruction weights of F replicas, as tensors.

    Args:
        shared (TrainConfig): The training of all replicas.
        configs (sequence): The training of each replica.

    Attributes:
        weight_decay (Tensor): float64, ``[F]``.
        reconstruction_weight (float or Tensor): ``[F]`` where they differ. A replica of weight 0 among others computes
            the loss in vain; alone it would not.

    Raises:
        ArgumentError: If a replica differs from ``shared`` in more than :data:`REPLICA_SETTINGS`.
    """

    def __init__(self, shared: TrainConfig, configs: Sequence[TrainConfig]) -> None:
        for config in configs:
            for entry in fields(TrainConfig):
                value = getattr(config, entry.name)
                if entry.name not in REPLICA_SETTINGS and value != getattr(shared, entry.name):
                    expected = f"be the same for all replicas, {getattr(shared, entry.name)}"
                    raise ArgumentError("training", entry.name, expected, value)
        self._configs = tuple(configs)
        self.weight_decay = _column([config.weight_decay for config in configs])
        weights = [config.reconstruction_weight for config in configs]
        self.reconstruction_weight: float | Tensor = (
            weights[0] if len(set(weights)) == 1 else _column(weights)
        )

    def rates(self, epoch: int) -> Tensor:
        """Learning rates of an epoch, counted from 0, float64, ``[F]``."""
        return _column([config.learning_rate_at(epoch) for config in self._configs])


def _column(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
