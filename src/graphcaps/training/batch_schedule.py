"""Which graphs each replica sees in each step of an epoch, and how much room a step needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphcaps.training.replicas import Replica

__all__ = ["SCORED_ROWS", "EpochPlan", "bucket", "pad_rows", "plan_epoch"]

SCORED_ROWS = 1 << 17
"""Nodes of all replicas together that are scored at a time on a GPU."""


@dataclass(frozen=True)
class EpochPlan:
    """An epoch, drawn on the host.

    Args:
        order (Tensor): Graphs of each replica in the order of the epoch, −1 after the end, ``[F, S·B]``.
        slots (tuple): For each of the S steps, the most nodes that a replica's batch has.
        batch_size (int): B.
        epoch (int): Counted from 0.
    """

    order: Tensor
    slots: tuple[int, ...]
    batch_size: int
    epoch: int

    def graphs(self, step: int) -> Tensor:
        """Graphs of one step, ``[F, ≤ B]``, without columns that no replica uses."""
        start = step * self.batch_size
        graphs = self.order[:, start : start + self.batch_size]
        used = int((graphs >= 0).sum(-1).max())
        return graphs[:, :used]


def plan_epoch(replicas: list[Replica], epoch: int, batch_size: int, sizes: Tensor) -> EpochPlan:
    """Draws the order of every replica; the last, smaller batch of an epoch is used.

    Args:
        replicas (list): F replicas.
        epoch (int): Counted from 0.
        batch_size (int): B.
        sizes (Tensor): Nodes of each graph, on the host, ``[G]``.
    """
    # In numpy: torch would share these few numbers among threads, and a GPU waits while they find together.
    drawn = [replica.order(epoch).numpy() for replica in replicas]
    steps = -(-max(map(len, drawn)) // batch_size)
    order = np.full((len(drawn), steps * batch_size), -1)
    rows = np.zeros_like(order)
    nodes = sizes.numpy()
    for f, graphs in enumerate(drawn):
        order[f, : len(graphs)] = graphs
        rows[f, : len(graphs)] = nodes[graphs]
    slots = rows.reshape(len(drawn), steps, batch_size).sum(-1).max(0)
    return EpochPlan(torch.from_numpy(order), tuple(slots.tolist()), batch_size, epoch)


def pad_rows(rows: list[Tensor]) -> Tensor:
    """Index vectors of several lengths as one matrix, −1 after the end of each."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def bucket(slots: int) -> int:
    """The number of slots that a captured step is made for: at least ``slots``, and a multiple of a power of two.

    Few different numbers mean few captures; at most a sixteenth is wasted from 512 slots on.
    """
    step = 1 << max(5, slots.bit_length() - 5)
    return -(-max(slots, 1) // step) * step
