"""The loss of an HGCN in kernels of its own where these serve, and the parameters of all replicas as they read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.activation.hashed_dropout import HashedDropout
from graphcaps.ops.fused_loss.fused_loss import Norm
from graphcaps.ops.propagation.normalised_hop import Hop
from graphcaps.ops.reconstruction.pair_loss_sampled import PAIRS_PER_NODE
from graphcaps.types import FeatureRows, GraphBatch, LossOptions, TrainingLoss

__all__ = [
    "DropoutOfStep",
    "KernelDecoder",
    "KernelLevel",
    "KernelNetwork",
    "KernelPrimary",
    "PropagatedRows",
    "Sampling",
    "kernel_loss",
    "loss_of_rows",
]

DropoutOfStep = Callable[[Tensor | None], HashedDropout | None]
"""Takes a mask of the real rows, ``[*lead, V]``, and draws the dropout of a step."""
PropagatedRows = Callable[[], Hop]
"""Computes the rows that the votes over nodes read, and what they are made of, by layers."""


@dataclass(frozen=True)
class KernelPrimary:
    """Primary capsules of F replicas.

    Args:
        norm (Norm): Normalises the features; tensors are ``[F, C]``.
        weight, bias (Tensor): Projection of the features, ``[F, C, d]`` and ``[F, d]``.
        nodes (Norm): Normalises the primary capsules; tensors are ``[F, d]``.
    """

    norm: Norm
    weight: Tensor
    bias: Tensor
    nodes: Norm


@dataclass(frozen=True)
class KernelLevel:
    """One level of capsules of F replicas.

    Args:
        weight (Tensor): W, ``[F, J, d, d]``.
        bias (Tensor): e, ``[F, J, d]``.
        iterations (int): Routing iterations R.
        residual (bool): Whether the mean input capsule is added before the last squash.
        divisor (int, optional): Divides the sum of the input capsules in that mean. (default: their number)
    """

    weight: Tensor
    bias: Tensor
    iterations: int
    residual: bool
    divisor: int | None = None


@dataclass(frozen=True)
class Sampling:
    """Pairs of large graphs in the reconstruction loss.

    Args:
        up_to (int): Largest number of nodes of a graph whose pairs all count.
        keys (callable): Takes a mask of the real rows, and draws the keys of the sample of a step.
        pairs (int): Sampled partners of a node.
    """

    up_to: int
    keys: Callable[[Tensor | None], Tensor]
    pairs: int = PAIRS_PER_NODE


@dataclass(frozen=True)
class KernelDecoder:
    """The adjacency decoder of F replicas.

    Args:
        weight, bias (Tensor): ``[F, O·d, d]`` and ``[F, d]``.
        sampling (Sampling, optional): How pairs of large graphs are sampled. (default: all pairs count)
    """

    weight: Tensor
    bias: Tensor
    sampling: Sampling | None = None


@dataclass(frozen=True)
class KernelNetwork:
    """F replicas of an HGCN with one hidden level. Tensors have no gradient and share the memory of the parameters.

    Args:
        nodes, classes (KernelLevel): The level over nodes, and the class level.
        norm (Norm): Normalises the input capsules of the class level; tensors are ``[F, d]``.
        decoder (KernelDecoder, optional): The decoder.
        upper, lower (float or Tensor): As in :func:`graphcaps.ops.margin_loss.margin_loss.margin_loss`; one per
            replica, ``[F]``, as tensors.
        absent_weight (float): As there.
        parameters (tuple): The parameters themselves, ``[*lead, …]``: those of ``primary``, weight and bias of its
            norm, of the projection and of the norm of the nodes; weight and bias of the nodes, of the norm of the class
            level, of the class level and of the decoder.
        lead (Size): Leading axes of the parameters, of F replicas.
        primary (KernelPrimary, optional): Primary capsules. (default: layers compute them, and what the votes read)
    """

    nodes: KernelLevel
    classes: KernelLevel
    norm: Norm
    decoder: KernelDecoder | None
    upper: float | Tensor
    lower: float | Tensor
    absent_weight: float
    parameters: tuple[Tensor, ...]
    lead: torch.Size
    primary: KernelPrimary | None = None

    @property
    def num_replicas(self) -> int:
        return self.nodes.weight.size(0)

    @property
    def sampled_pairs(self) -> int:
        """Sampled partners of a node of a large graph, 0 without sampling."""
        sampling = None if self.decoder is None else self.decoder.sampling
        return 0 if sampling is None else sampling.pairs


def kernel_loss(
    network: KernelNetwork, batch: GraphBatch, options: LossOptions, dropout: DropoutOfStep
) -> TrainingLoss | None:
    """The loss of a training batch, and its class scores; ``None`` where the layers have to compute it.

    Its tensors have no gradient: only :meth:`TrainingLoss.backward` computes the gradients of the parameters.

    Args:
        network (KernelNetwork): The model, with its primary capsules; running averages are updated.
        batch (GraphBatch): Graphs with classes.
        options (LossOptions): Weight of the reconstruction loss; kernels have no weights of classes and graphs.
        dropout (callable): Draws the dropout of this step; not called if the result is ``None``.
    """
    rows, primary = batch.features, network.primary
    if primary is None or _is_weighted(options) or not isinstance(rows, FeatureRows):
        return None
    if rows.node.shape[:-1] != network.lead or rows.table.x.size(-1) != primary.weight.size(1):
        return None
    form = select(
        "kernel_loss", _kernel_loss,
        rows.table.x, rows.node.reshape(network.num_replicas, -1), primary.weight, network.nodes.weight,
        batch.edges.weight, max_size=batch.segments.max_size, num_graphs=batch.num_graphs,
        classes=network.classes.weight.size(1), iterations=network.nodes.iterations, pairs=network.sampled_pairs,
    )  # fmt: skip
    return form(network, batch, options, dropout)


def loss_of_rows(
    network: KernelNetwork, batch: GraphBatch, options: LossOptions, rows: PropagatedRows
) -> TrainingLoss | None:
    """The same from rows that layers compute: the kernels begin with the votes.

    :meth:`TrainingLoss.backward` computes the gradients of the parameters, and has autograd compute those of the layers
    below. Without gradients, as in ``torch.no_grad``, the layers have to compute the loss.

    Args:
        network (KernelNetwork): The model; its primary capsules are not read.
        batch, options: As in :func:`kernel_loss`.
        rows (callable): Computes the rows that the votes read; not called if the result is ``None``.
    """
    if (
        _is_weighted(options)
        or batch.segments.index.shape[:-1] != network.lead
        or not torch.is_grad_enabled()
    ):
        return None
    form = select(
        "loss_of_rows", _loss_of_rows,
        batch.segments.index, network.nodes.weight, batch.edges.weight,
        max_size=batch.segments.max_size, num_graphs=batch.num_graphs,
        classes=network.classes.weight.size(1), iterations=network.nodes.iterations, pairs=network.sampled_pairs,
    )  # fmt: skip
    return form(network, batch, options, rows)


def _is_weighted(options: LossOptions) -> bool:
    return options.class_weight is not None or options.graph_weight is not None


def _kernel_loss(
    network: KernelNetwork, batch: GraphBatch, options: LossOptions, dropout: DropoutOfStep
) -> TrainingLoss | None:
    """Nothing: the layers are the torch form."""
    return None


def _loss_of_rows(
    network: KernelNetwork, batch: GraphBatch, options: LossOptions, rows: PropagatedRows
) -> TrainingLoss | None:
    """As above."""
    return None
