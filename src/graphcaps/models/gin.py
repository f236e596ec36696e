"""Graph Isomorphism Network."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphcaps.errors import check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.gin_conv import ReplicaGINConv
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.pooling import sum_pool
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.nn.replica_mlp import ReplicaMLP
from graphcaps.registry import MODELS, Choices, Interval
from graphcaps.types import GraphBatch, ModelOutput

__all__ = ["GIN"]


@MODELS.register("gin")
class GIN(LogitModel):
    r"""Classifies graphs with sums over neighbours, and sums over nodes after every layer.

    Graph Isomorphism Network (ICLR 2019, https://arxiv.org/abs/1810.00826). With input features :math:`h^{(0)}` and
    L layers,

    .. math::
        h^{(l)}_i &= \mathrm{ReLU}\Big(\mathrm{BN}\big(\mathrm{MLP}_l\big((1 + \epsilon_l)\, h^{(l-1)}_i
        + \textstyle\sum_{j \in N(i)} h^{(l-1)}_j\big)\big)\Big) \\
        z &= \sum_{l=0}^{L} \mathrm{dropout}\Big(\sum_i h^{(l)}_i W_l + e_l\Big)

    with logits :math:`z`. An MLP is a linear map, BatchNorm, ReLU and a linear map. Its maps have no bias: the
    BatchNorm after each of them cancels it, and Adam would turn the rounding of its zero gradient into steps. As in the
    published program, dropout acts on the logits of each layer. The default :math:`\epsilon_l = 0` is the published
    GIN-0. Trained with cross-entropy. Edge weights, if there are any, multiply the messages. Edge labels are not read
    in the messages, only as counts in the features.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 64)
        num_layers (int): Number of layers L. (default: 4, which the publication counts as five with the input)
        dropout (float): Dropout probability of the logits of each layer. (default: 0.5)
        train_epsilon (bool): Whether :math:`\epsilon_l` is trained, from 0 on. (default: False)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If a size is below 1, or the dropout probability is not in [0, 1).
    """

    reference: ClassVar[str] = (
        "How Powerful are Graph Neural Networks?, ICLR 2019, https://arxiv.org/abs/1810.00826"
    )
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden",)
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((16, 32, 64)),
        "num_layers": Interval(2, 5),
        "dropout": Interval(0.0, 0.7),
    }
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 64,
        num_layers: int = 4,
        dropout: float = 0.5,
        train_epsilon: bool = False,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least("GIN", 1, hidden=hidden, num_layers=num_layers)
        widths = [in_channels] + [hidden] * num_layers
        self.convs = nn.ModuleList(
            ReplicaGINConv(ReplicaMLP([a, b, b], bias=False, lead=lead), train_epsilon=train_epsilon)
            for a, b in pairwise(widths)
        )
        self.norms = nn.ModuleList(RaggedBatchNorm(hidden, lead=lead) for _ in range(num_layers))
        self.readouts = nn.ModuleList(ReplicaLinear(width, num_classes, lead=lead) for width in widths)
        self.dropout = ReplicaDropout(dropout, lead=lead)

    def reset_parameters(self) -> None:
        for part in (*self.convs, *self.norms, *self.readouts, self.dropout):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        edges, segments = batch.edges, batch.segments
        features = [self.node_features(batch)]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            features.append(norm(conv(features[-1], edges, segments), segments.row_mask).relu())
        # One sum over nodes for all layers.
        sums = sum_pool(torch.cat(features, -1), segments).split([x.size(-1) for x in features], -1)
        # The logits of all layers side by side: one dropout for all of them.
        logits = torch.cat([readout(g) for readout, g in zip(self.readouts, sums, strict=True)], -1)
        logits = self.dropout(logits, segments.graph_mask)
        return ModelOutput(logits.unflatten(-1, (len(sums), self.num_classes)).sum(-2))
