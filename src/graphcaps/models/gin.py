"""Graph Isomorphism Network."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.losses import cross_entropy
from graphcaps.nn.pooling import sum_pool
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.propagation.propagation import neighbour_sum
from graphcaps.registry import MODELS, Choices, Interval, ScoreKind
from graphcaps.types import GraphBatch, LossOptions, LossTerms, ModelOutput

__all__ = ["GIN"]


class _Layer(nn.Module):
    def __init__(self, in_channels: int, hidden: int, lead: tuple[int, ...]) -> None:
        super().__init__()
        self.inner = ReplicaLinear(in_channels, hidden, lead=lead)
        self.outer = ReplicaLinear(hidden, hidden, lead=lead)
        self.inner_norm = RaggedBatchNorm(hidden, lead=lead)
        self.outer_norm = RaggedBatchNorm(hidden, lead=lead)
        self.epsilon = nn.Parameter(torch.zeros(*lead, 1, 1))

    def reset_parameters(self) -> None:
        for part in (self.inner, self.outer, self.inner_norm, self.outer_norm):
            part.reset_parameters()
        nn.init.zeros_(self.epsilon)

    def forward(self, x: Tensor, batch: GraphBatch, mask: Tensor | None) -> Tensor:
        x = (1 + self.epsilon) * x + neighbour_sum(x, batch.edges)
        x = self.inner_norm(self.inner(x), mask).relu()
        return self.outer_norm(self.outer(x), mask).relu()


@MODELS.register("gin")
class GIN(GraphModel):
    r"""Classifies graphs with sum aggregation over neighbours and a sum over nodes.

    Graph Isomorphism Network (ICLR 2019, https://arxiv.org/abs/1810.00826):

    .. math:: x_i \leftarrow \mathrm{MLP}\Big((1 + \epsilon)\, x_i + \sum_{j \in N(i)} x_j\Big)

    followed by a sum over the nodes of each graph and two linear layers. Trained with cross-entropy. Edge weights, if
    there are any, multiply the messages. Edge labels are not read in the messages, only as counts in the features.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 128)
        num_layers (int): Number of layers. (default: 3)
        dropout (float): Dropout probability before the last linear layer. (default: 0.5)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    scores: ClassVar[ScoreKind] = "logits"
    reference: ClassVar[str] = (
        "How Powerful are Graph Neural Networks?, ICLR 2019, https://arxiv.org/abs/1810.00826"
    )
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden",)
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 64, 128)),
        "num_layers": Interval(2, 5),
        "dropout": Interval(0.0, 0.7),
    }

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 128,
        num_layers: int = 3,
        dropout: float = 0.5,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        for name, value in (("hidden", hidden), ("num_layers", num_layers)):
            if value < 1:
                raise ArgumentError("GIN", name, "be at least 1", value)
        widths = [in_channels] + [hidden] * num_layers
        self.layers = nn.ModuleList(_Layer(a, b, lead) for a, b in pairwise(widths))
        self.inner = ReplicaLinear(hidden, hidden, lead=lead)
        self.outer = ReplicaLinear(hidden, num_classes, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)

    @property
    def capturable(self) -> bool:
        """True: no step synchronises with the host."""
        return True

    def reset_parameters(self) -> None:
        for part in (*self.layers, self.inner, self.outer, self.dropout):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        x, segments = self.node_features(batch), batch.segments
        mask = segments.row_mask
        for layer in self.layers:
            x = layer(x, batch, mask)
        pooled = self.inner(sum_pool(x, segments)).relu()
        return ModelOutput(self.outer(self.dropout(pooled, segments.graph_mask)))

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        """Cross-entropy loss."""
        loss = cross_entropy(output.class_scores, y, options.class_weight, options.graph_weight)
        return LossTerms(loss, {"cross-entropy": loss})
