"""The batches of an epoch: which graphs each replica sees in each step, and how many rows a step needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphcaps.training.replicas import Replica

__all__ = ["EVALUATION_ROWS", "EpochSchedule", "bucket_size", "pad_indices", "schedule_epoch"]

EVALUATION_ROWS = 1 << 17
"""Number of nodes, over all replicas, that are evaluated at a time on a GPU."""


@dataclass(frozen=True)
class EpochSchedule:
    """The order of the graphs in one epoch, drawn on the host.

    Args:
        order (Tensor): Graphs of each replica in the order of the epoch, −1 after the last, ``[F, S·B]``.
        num_rows (tuple): For each of the S steps, the largest number of nodes in a replica's batch.
        max_sizes (tuple): For each step, the number of nodes of its largest graph.
        batch_size (int): Graphs per step B.
        epoch (int): Number of the epoch, counted from 0.
    """

    order: Tensor
    num_rows: tuple[int, ...]
    max_sizes: tuple[int, ...]
    batch_size: int
    epoch: int

    def graphs(self, step: int) -> Tensor:
        """Graphs of one step, ``[F, ≤ B]``, without columns that no replica uses."""
        start = step * self.batch_size
        graphs = self.order[:, start : start + self.batch_size]
        used = int((graphs.numpy() >= 0).sum(-1).max())
        return graphs[:, :used]


def schedule_epoch(
    replicas: list[Replica],
    epoch: int,
    batch_size: int,
    sizes: Tensor,
    num_batches: int | None = None,
) -> EpochSchedule:
    """Draws the batches of every replica's training graphs.

    Args:
        replicas (list): F replicas.
        epoch (int): Number of the epoch, counted from 0.
        batch_size (int): Graphs per step B.
        sizes (Tensor): Number of nodes of each graph, on the host, ``[G]``.
        num_batches (int, optional): Number of steps S, each on a new draw from all training graphs. (default: every
            graph once, in a random order; the last, smaller batch is kept)
    """
    # In numpy: torch would start threads for these few numbers, and the GPU would wait for them.
    if num_batches is None:
        orders = [replica.order(epoch).numpy() for replica in replicas]
        steps = -(-max(map(len, orders)) // batch_size)
        order = np.full((len(orders), steps * batch_size), -1)
        for f, graphs in enumerate(orders):
            order[f, : len(graphs)] = graphs
    else:
        steps = num_batches
        order = np.full((len(replicas), steps, batch_size), -1)
        for f, replica in enumerate(replicas):
            drawn = replica.draws(epoch, steps, batch_size).numpy()
            order[f, :, : drawn.shape[1]] = drawn
        order = order.reshape(len(replicas), steps * batch_size)
    rows = np.where(order >= 0, sizes.numpy()[order], 0).reshape(len(replicas), steps, batch_size)
    num_rows, max_sizes = rows.sum(-1).max(0), rows.max((0, 2))
    return EpochSchedule(
        torch.from_numpy(order), tuple(num_rows.tolist()), tuple(max_sizes.tolist()), batch_size, epoch
    )


def pad_indices(indices: list[Tensor]) -> Tensor:
    """Index vectors of different lengths as one matrix, padded with −1."""
    return torch.nn.utils.rnn.pad_sequence(indices, batch_first=True, padding_value=-1)


def bucket_size(num_rows: int) -> int:
    """The number of rows of a captured step: ``num_rows`` rounded up to a multiple of a power of two.

    The largest graph of a step is rounded alike, for models that pad graphs to it. Few distinct sizes mean few
    captures. From 512 rows on, at most a sixteenth of the rows is padding.
    """
    step = 1 << max(5, num_rows.bit_length() - 5)
    return -(-max(num_rows, 1) // step) * step
