"""The graphs of a training divided among several processes: which rank computes which graph of each batch.

Every graph belongs to one rank, for the whole training, so that a rank holds its own graphs only. All ranks draw the
same batches, those of a training in one process, and each computes its graphs of them. A rank may have many graphs of
one batch and none of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.ops.batch_shard import BatchShard, use_shard
from graphcaps.profiling import STEP, profiled
from graphcaps.training.batch_schedule import EpochSchedule
from graphcaps.training.ranks import Ranks
from graphcaps.training.sample_weight import batch_weights
from graphcaps.training.step import TrainingStep
from graphcaps.training.streaming import StreamedStore
from graphcaps.types import LossTerms

__all__ = [
    "GradientSum",
    "GraphShard",
    "ShardRunner",
    "ShardedGraphs",
    "assign_graphs",
    "check_layers",
    "divide_graphs",
]


def assign_graphs(parts: Sequence[Tensor], num_graphs: int, num_ranks: int) -> Tensor:
    """The rank of each graph, ``[G]``; −1 for graphs that are in no part.

    The graphs of each part, such as training and validation graphs, are dealt out in turn.

    Args:
        parts (sequence): Indices of the graphs of each part; a graph in several parts counts in the first.
        num_graphs (int): Number of graphs G.
        num_ranks (int): Number of ranks.
    """
    owner, count = torch.full((num_graphs,), -1), 0
    for part in parts:
        graphs = part.unique()
        graphs = graphs[owner[graphs] < 0]
        owner[graphs] = torch.arange(count, count + graphs.numel()) % num_ranks
        count += graphs.numel()
    return owner


@dataclass(frozen=True, eq=False)
class GraphShard:
    """The graphs of one rank, and what it knows of those of the others.

    Args:
        ranks (Ranks): The processes of the training.
        owned (Tensor): Indices of the graphs of this rank among all graphs, ascending, ``[n]``. Graph k of the store of
            this rank is graph ``owned[k]``.
        y (Tensor): Class of each of all graphs, on the host, ``[G]``.
        sizes (Tensor): Number of nodes of each of all graphs, as the model reads them, on the host, ``[G]``.
        num_classes (int): Number of classes.
    """

    ranks: Ranks
    owned: Tensor
    y: Tensor
    sizes: Tensor
    num_classes: int

    @property
    def empty_graphs(self) -> Tensor:
        """Indices of all graphs without nodes, ascending."""
        return (self.sizes == 0).nonzero().squeeze(-1)

    def local(self, graphs: Tensor) -> Tensor:
        """Positions in the store of this rank of those of the graphs that it holds, in their order."""
        positions = torch.full((self.sizes.numel(),), -1)
        positions[self.owned] = torch.arange(self.owned.numel())
        found = positions[graphs]
        return found[found >= 0]


def divide_graphs(
    store: GraphStore, parts: Sequence[Tensor], ranks: Ranks, max_nodes: int | None = None
) -> GraphShard:
    """The graphs of this rank, of a store that all ranks can read.

    Args:
        store (GraphStore): All graphs, with labels, on the host.
        parts (sequence): Training graphs, then validation graphs, as in :func:`assign_graphs`.
        ranks (Ranks): The processes of the training.
        max_nodes (int, optional): Limit of the nodes of a graph. (default: none)

    Raises:
        ArgumentError: If there are fewer training graphs than ranks.
    """
    assert store.y is not None
    if parts[0].numel() < ranks.size:
        expected = f"hold a training graph for each of the {ranks.size} processes"
        raise ArgumentError("train", "source", expected, parts[0].numel(), "Start fewer processes.")
    owned = (assign_graphs(parts, len(store), ranks.size) == ranks.rank).nonzero().squeeze(-1)
    sizes = store.host_node_ptr.diff()
    sizes = sizes if max_nodes is None else sizes.clamp_max(max_nodes)
    return GraphShard(ranks, owned, store.y.cpu().clone(), sizes.clone(), store.num_classes)


def check_layers(model: nn.Module) -> None:
    """Rejects layers of torch whose results depend on the other graphs of a batch.

    Raises:
        UsageError: If the model has batch normalisation or dropout of torch, such as that of a trunk of the user.
    """
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm | nn.modules.dropout._DropoutNd):
            raise UsageError(
                f"The layer {type(module).__name__} of this model cannot be divided among several processes; use "
                "graphcaps.nn.RaggedBatchNorm or ReplicaDropout, or train in one process."
            )


@dataclass(frozen=True)
class ShardedGraphs:
    """The graphs of one rank in a batch of all ranks.

    Args:
        graphs (Tensor): Their positions in the store of the rank, −1 for padding, ``[F, b]``, b at least 1.
        rows (Tensor): Their positions in the batch, 0 at padding, ``[F, b]``.
    """

    graphs: Tensor
    rows: Tensor

    @classmethod
    def of(cls, batch: Tensor, positions: Tensor) -> ShardedGraphs:
        """The graphs of a rank.

        Args:
            batch (Tensor): Graphs of the batch of each replica, −1 for padding, ``[F, B]``.
            positions (Tensor): Position of each graph in the store of the rank, −1 for those of other ranks, ``[G]``.
        """
        local = positions[batch.clamp_min(0)].masked_fill(batch < 0, -1)
        # Own graphs first, in their order.
        rows = (local < 0).to(torch.int8).argsort(dim=-1, stable=True)
        width = max(int((local >= 0).sum(-1).max()), 1)
        rows = rows[:, :width]
        graphs = local.gather(-1, rows)
        return cls(graphs, rows.masked_fill(graphs < 0, 0))

    def padded(self) -> ShardedGraphs:
        """The same graphs with one more column of padding."""
        pad = torch.nn.functional.pad
        return ShardedGraphs(pad(self.graphs, (0, 1), value=-1), pad(self.rows, (0, 1)))


class ShardRunner:
    """Runs an epoch of one rank: of each batch of all ranks, the graphs of this rank.

    Args:
        step (TrainingStep): Applied to every batch; sums gradients over the ranks.
        store (GraphStore or StreamedStore): The graphs of this rank.
        x (Tensor): Features of their nodes.
        shard (GraphShard): The graphs of this rank among all graphs.
        weights (Tensor, optional): Weight of each of all graphs, on the device of the model, ``[F, G]``.
            (default: 1 each)
    """

    def __init__(
        self,
        step: TrainingStep,
        store: GraphStore | StreamedStore,
        x: Tensor,
        shard: GraphShard,
        weights: Tensor | None = None,
    ) -> None:
        self.step, self.store, self.x, self.shard, self.weights = step, store, x, shard, weights
        self._positions = torch.full((shard.sizes.numel(),), -1)
        self._positions[shard.owned] = torch.arange(shard.owned.numel())

    def run(self, schedule: EpochSchedule) -> None:
        """Runs all steps of an epoch."""
        for number in range(len(schedule.num_rows)):
            self._step(schedule.graphs(number))

    def _step(self, graphs: Tensor) -> None:
        """Trains on a batch of all ranks, ``[F, B]``."""
        device = self.store.device
        own = ShardedGraphs.of(graphs, self._positions)
        with profiled(STEP):
            with profiled("batch"):
                batch = self.store.batch(self.x, own.graphs)
                if batch.segments.num_rows == batch.segments.num_graphs:
                    own = own.padded()  # a tensor of graphs then differs in shape from one of nodes
                    batch = self.store.batch(self.x, own.graphs)
            present = (graphs >= 0).any(-1)
            active = None if bool(present.all()) else present.to(device)
            weights = None
            if self.weights is not None:
                in_batch = graphs.gather(-1, own.rows)
                weights = batch_weights(self.weights, in_batch)
            with use_shard(self._batch_shard(graphs, own, batch.segments.ptr, batch.segments.index)):
                self.step(batch, active, weights)

    def _batch_shard(self, graphs: Tensor, own: ShardedGraphs, ptr: Tensor, index: Tensor) -> BatchShard:
        """Rows of the whole batch, from the sizes of all its graphs."""
        real, device = graphs >= 0, index.device
        sizes = self.shard.sizes[graphs.clamp_min(0)].masked_fill(~real, 0)  # [F, B]
        first = sizes.cumsum(-1) - sizes
        starts = (
            first.gather(-1, own.rows).to(device) - ptr[..., :-1]
        )  # row of a graph − its row here, [F, b]
        of_row = torch.nn.functional.pad(starts, (0, 1)).gather(-1, index)
        node_rows = of_row + torch.arange(index.size(-1), device=device)
        return BatchShard(
            node_rows.masked_fill(index >= own.graphs.size(-1), 0),
            own.rows.to(device),
            real.sum(-1).to(device),
            sizes.double().square().sum(-1).to(device),
            self.shard.ranks.size,
            self.shard.ranks.total,
        )


class GradientSum:
    """Sums gradients and losses of one step over all ranks, in one message.

    The loss of a rank is its share of the mean over the whole batch, so that sums are what one process computes, and no
    rank needs to have as many graphs as another. All ranks get the same bits, and with them the same weights.

    Args:
        ranks (Ranks): The processes of the training.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def __call__(self, parameters: Sequence[Tensor], terms: LossTerms) -> LossTerms:
        """Replaces the gradients by their sums; a parameter without a gradient on any rank keeps none.

        Returns:
            LossTerms: The losses of the whole batch.
        """
        values = torch.stack([terms.total, *terms.terms.values()]).detach()  # [T, F]
        grads = [parameter.grad for parameter in parameters]
        present = values.new_tensor([float(grad is not None) for grad in grads])
        pieces = [
            torch.zeros_like(p) if grad is None else grad for p, grad in zip(parameters, grads, strict=True)
        ]
        joined = self.ranks.total(torch.cat([values.reshape(-1), present, *(g.reshape(-1) for g in pieces)]))
        losses, flags, rest = joined.split(
            [values.numel(), len(grads), joined.numel() - values.numel() - len(grads)]
        )
        summed = rest.split([p.numel() for p in parameters])
        for parameter, grad, flag in zip(parameters, summed, flags.tolist(), strict=True):
            parameter.grad = grad.view_as(parameter) if flag else None
        total, *others = losses.view_as(values)
        return LossTerms(total, dict(zip(terms.terms, others, strict=True)))
