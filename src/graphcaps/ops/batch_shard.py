"""The part of a batch that one of several processes computes, and what operations need to know of the whole batch.

Several processes train one model: each computes some graphs of every batch (:mod:`graphcaps.training.graph_shards`).
Almost all operations treat each graph by itself. The others are means over the batch, statistics of batch
normalisation, and random numbers that depend on the position of a row in the batch. Inside :func:`use_shard` they refer
to the whole batch, so that the losses of all processes add up to the loss of one process.

Sums over processes are differentiable. With copies :math:`\\theta_r` of the weights and the losses :math:`L_r` of the
processes, process r computes the gradient of :math:`\\sum_q L_q` in :math:`\\theta_r`; the sum of these over r is the
gradient of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphcaps.errors import UsageError
from graphcaps.ops.compilation import is_traced
from graphcaps.types import ShapeRepr

__all__ = ["BatchShard", "current_shard", "share_of_rank", "sum_over_ranks", "use_shard"]


@dataclass(frozen=True, repr=False, eq=False)
class BatchShard(ShapeRepr):
    """Some graphs of a batch, and sizes of the whole batch.

    The number of rows V differs from the number of graphs B, so that tensors of nodes and of graphs can be told apart.

    Args:
        node_rows (Tensor): Row of the whole batch of each row, 0 at padding, ``[*lead, V]``.
        graph_rows (Tensor): Position in the whole batch of each graph, 0 at padding, ``[*lead, B]``.
        num_graphs (Tensor): Number of graphs of the whole batch, ``[*lead]``.
        num_pairs (Tensor): Sum of the squared numbers of nodes of these graphs, float64, ``[*lead]``.
        num_ranks (int): Number of processes.
        total (callable): Returns the sum of a tensor over all processes; all of them call it in the same order.
    """

    node_rows: Tensor
    graph_rows: Tensor
    num_graphs: Tensor
    num_pairs: Tensor
    num_ranks: int
    total: Callable[[Tensor], Tensor]

    def rows(self, count: int) -> Tensor:
        """Rows of the whole batch of the ``count`` rows of a tensor of nodes or graphs, ``[*lead, count]``.

        Raises:
            UsageError: If they are rows of something else, such as the nodes of coarser graphs.
        """
        for rows in (self.node_rows, self.graph_rows):
            if rows.size(-1) == count:
                return rows
        raise UsageError(
            "This model drops rows of coarser graphs, which several processes cannot do alike; set dropout to 0, or "
            "train in one process."
        )


_shard: ContextVar[BatchShard | None] = ContextVar("batch_shard", default=None)


@contextmanager
def use_shard(shard: BatchShard) -> Iterator[None]:
    """Inside the block, batches are parts of a larger one."""
    token = _shard.set(shard)
    try:
        yield
    finally:
        _shard.reset(token)


def current_shard() -> BatchShard | None:
    """The shard of the block that is running; ``None`` if batches are whole, as those of traced models are."""
    return None if is_traced() else _shard.get()


def sum_over_ranks(x: Tensor) -> Tensor:
    """The sum of ``x`` over all processes, with its gradient; ``x`` itself if the batch is whole."""
    shard = current_shard()
    if shard is None:
        return x
    total: Tensor = _SumOverRanks.apply(x, shard)
    return total


def share_of_rank(loss: Tensor) -> Tensor:
    """The share of this process in a loss that all processes compute alike, from sums over all of them."""
    shard = current_shard()
    return loss if shard is None else loss / shard.num_ranks


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shard: BatchShard) -> Tensor:
        ctx.shard = shard
        return shard.total(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return ctx.shard.total(grad), None
