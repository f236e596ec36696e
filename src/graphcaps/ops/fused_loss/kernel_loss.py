"""The loss of an HGCN in kernels of its own where these serve, and the parameters of all replicas as they read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.activation.hashed_dropout import HashedDropout
from graphcaps.ops.fused_loss.fused_loss import Norm
from graphcaps.types import FeatureRows, GraphBatch, LossOptions, TrainingLoss

__all__ = ["DropoutOfStep", "KernelLevel", "KernelNetwork", "kernel_loss"]

DropoutOfStep = Callable[[Tensor | None], HashedDropout | None]
"""Takes a mask of the real rows, ``[*lead, V]``, and draws the dropout of a step."""


@dataclass(frozen=True)
class KernelLevel:
    """One level of capsules of F replicas.

    Args:
        norm (Norm): Normalises the input capsules; tensors are ``[F, d]``.
        weight (Tensor): W, ``[F, J, d, d]``.
        bias (Tensor): e, ``[F, J, d]``.
        iterations (int): Routing iterations R.
        residual (bool): Whether the mean input capsule is added before the last squash.
        divisor (int, optional): Divides the sum of the input capsules in that mean. (default: their number)
    """

    norm: Norm
    weight: Tensor
    bias: Tensor
    iterations: int
    residual: bool
    divisor: int | None = None


@dataclass(frozen=True)
class KernelNetwork:
    """F replicas of an HGCN with one hidden level. Tensors have no gradient and share the memory of the parameters.

    Args:
        norm (Norm): Normalises the features; tensors are ``[F, C]``.
        weight, bias (Tensor): Projection of the features, ``[F, C, d]`` and ``[F, d]``.
        nodes, classes (KernelLevel): The level over nodes, and the class level.
        decoder (tuple, optional): Weight ``[F, O·d, d]`` and bias ``[F, d]`` of the adjacency decoder.
        upper, lower (float or Tensor): As in :func:`graphcaps.ops.margin_loss.margin_loss.margin_loss`; one per
            replica, ``[F]``, as tensors.
        absent_weight (float): As there.
        parameters (tuple): The parameters themselves, ``[*lead, …]``: weight and bias of the norm, and weight and bias
            of the projection; the same of each level; weight and bias of the decoder.
        lead (Size): Leading axes of the parameters, of F replicas.
    """

    norm: Norm
    weight: Tensor
    bias: Tensor
    nodes: KernelLevel
    classes: KernelLevel
    decoder: tuple[Tensor, Tensor] | None
    upper: float | Tensor
    lower: float | Tensor
    absent_weight: float
    parameters: tuple[Tensor, ...]
    lead: torch.Size

    @property
    def num_replicas(self) -> int:
        return self.weight.size(0)


def kernel_loss(
    network: KernelNetwork, batch: GraphBatch, options: LossOptions, dropout: DropoutOfStep
) -> TrainingLoss | None:
    """The loss of a training batch, and its class scores; ``None`` where the layers have to compute it.

    Its tensors have no gradient: only :meth:`TrainingLoss.backward` computes the gradients of the parameters.

    Args:
        network (KernelNetwork): The model; running averages are updated.
        batch (GraphBatch): Graphs with classes.
        options (LossOptions): Weight of the reconstruction loss; kernels have no weights of classes and graphs.
        dropout (callable): Draws the dropout of this step; not called if the result is ``None``.
    """
    rows, edges, segments = batch.features, batch.edges, batch.segments
    weighted = options.class_weight is not None or options.graph_weight is not None
    if weighted or not isinstance(rows, FeatureRows):
        return None
    if rows.node.shape[:-1] != network.lead or rows.table.x.size(-1) != network.weight.size(1):
        return None
    form = select(
        "kernel_loss", _by_layers,
        rows.table.x, rows.node.reshape(network.num_replicas, -1), network.weight, network.nodes.weight, edges.weight,
        max_size=segments.max_size, num_graphs=segments.num_graphs, classes=network.classes.weight.size(1),
        iterations=network.nodes.iterations,
    )  # fmt: skip
    return form(network, batch, options, dropout)


def _by_layers(
    network: KernelNetwork, batch: GraphBatch, options: LossOptions, dropout: DropoutOfStep
) -> TrainingLoss | None:
    """Nothing: the layers are the torch form."""
    return None
