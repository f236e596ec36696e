"""Self-Attention Graph Pooling."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError
from graphcaps.models.selection_network import SelectionNetwork, graph_convs, read_out
from graphcaps.nn.gcn_conv import ReplicaGCNConv
from graphcaps.ops.propagation.propagation import induced_scale
from graphcaps.ops.ragged.selection import Selection, select_top
from graphcaps.registry import MODELS
from graphcaps.types import GraphBatch, ModelOutput

__all__ = ["SAGPool", "SAGPoolVariant"]

SAGPoolVariant = Literal["hierarchical", "global"]


@MODELS.register("sagpool")
class SAGPool(SelectionNetwork):
    r"""Classifies graphs with graph convolutions that keep the nodes with the highest attention scores.

    SAGPool (ICML 2019, https://arxiv.org/abs/1904.08082). A stage of the hierarchical variant is

    .. math::
        H &= \mathrm{ReLU}(\hat A X W + e), \quad s = \hat A H w + b, \\
        I &= \mathrm{top}_{\lceil \rho n \rceil}(s), \quad
        X' = H_I \odot \tanh(s_I), \quad A' = A_{I,I}, \quad
        r = \big[\max_i X'_i \,\|\, \mathrm{mean}_i X'_i\big]

    with :math:`\hat A` of :class:`graphcaps.nn.ReplicaGCNConv` and the ratio :math:`\rho`. The readouts :math:`r` of
    all stages are added and classified by three linear layers (:class:`~.selection_network.SelectionNetwork`). The
    global variant applies all convolutions to the whole graph, joins their results and selects nodes once.

    Among equal scores the earlier node is kept, as in torch-geometric; nodes that no convolution distinguishes have
    equal scores. Dropped nodes are masked and not removed: the cost of every stage is that of the whole graph, and all
    shapes are fixed. Edge weights, if there are any, multiply the messages. Edge labels are not read in the messages,
    only as counts in the features.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features, at least 2. (default: 128)
        ratio (float): Fraction of the nodes that a stage keeps. (default: 0.5)
        num_layers (int): Number of stages, or of convolutions of the global variant. (default: 3)
        variant (str): ``"hierarchical"`` or ``"global"``. (default: "hierarchical")
        dropout (float): Dropout probability after the first linear layer. (default: 0.5)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If an option is out of range.
    """

    reference: ClassVar[str] = "Self-Attention Graph Pooling, ICML 2019, https://arxiv.org/abs/1904.08082"

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 128,
        ratio: float = 0.5,
        num_layers: int = 3,
        variant: SAGPoolVariant = "hierarchical",
        dropout: float = 0.5,
        lead: tuple[int, ...] = (),
    ) -> None:
        if variant not in get_args(SAGPoolVariant):
            raise ArgumentError("SAGPool", "variant", "be 'hierarchical' or 'global'", repr(variant))
        joined = num_layers * hidden if variant == "global" else hidden
        super().__init__(
            in_channels, num_classes, hidden=hidden, ratio=ratio, num_layers=num_layers, readout=2 * joined,
            dropout=dropout, lead=lead,
        )  # fmt: skip
        self.variant = variant
        scored = 1 if variant == "global" else num_layers
        self.attentions = nn.ModuleList(ReplicaGCNConv(joined, 1, lead=lead) for _ in range(scored))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for attention in graph_convs(self.attentions):
            attention.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        readout = self._global(batch) if self.variant == "global" else self._hierarchical(batch)
        return self.classify(readout, batch.segments)

    def _hierarchical(self, batch: GraphBatch) -> Tensor:
        x, edges, segments = self.node_features(batch), batch.edges, batch.segments
        readouts: list[Tensor] = []
        scale: Tensor | None = None  # of the subgraph that is left
        kept: Selection | None = None
        for conv, attention in zip(graph_convs(self.convs), graph_convs(self.attentions), strict=True):
            if kept is not None:
                scale = induced_scale(edges, kept.mask, x.dtype)
            x = conv.forward_ragged(x, edges, segments, scale).relu()
            score = attention.forward_ragged(x, edges, segments, scale)
            kept = select_top(score.squeeze(-1), segments, self.ratio, among=kept)
            x = x * score.tanh()
            readouts.append(read_out(x, segments, kept))
        return torch.stack(readouts).sum(0)

    def _global(self, batch: GraphBatch) -> Tensor:
        x, edges, segments = self.node_features(batch), batch.edges, batch.segments
        layers: list[Tensor] = []
        for conv in graph_convs(self.convs):
            x = conv.forward_ragged(x, edges, segments).relu()
            layers.append(x)
        joined = torch.cat(layers, -1)
        score = graph_convs(self.attentions)[0].forward_ragged(joined, edges, segments)
        kept = select_top(score.squeeze(-1), segments, self.ratio)
        return read_out(joined * score.tanh(), segments, kept)
