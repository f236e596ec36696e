"""Adaptive Structure Aware Pooling."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from graphcaps.errors import check_at_least, check_fraction, check_probability
from graphcaps.nn.asap_pooling import ASAPooling, convolve
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.gcn_conv import ReplicaGCNConv
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.neighbourhoods import DenseNeighbourhoods, Neighbourhoods, RaggedNeighbourhoods
from graphcaps.registry import MODELS, Choices, Interval
from graphcaps.types import GraphBatch, ModelOutput

__all__ = ["ASAP"]


@MODELS.register("asap")
class ASAP(LogitModel):
    r"""Classifies graphs with graph convolutions and pooling of the neighbourhoods of nodes.

    Adaptive Structure Aware Pooling (AAAI 2020, https://arxiv.org/abs/1911.07979). Each stage is a graph convolution
    with ReLU and the pooling of :class:`graphcaps.nn.asap_pooling.ASAPooling`. The mean and the maximum over the
    clusters of each stage are joined, added over stages, and classified by two linear layers:

    .. math:: r = \sum_s \big[\mathrm{mean}_i X^{(s)}_i \,\|\, \max_i X^{(s)}_i\big], \quad
        z = \mathrm{dropout}(\mathrm{ReLU}(r W_1 + e_1)) W_2 + e_2

    Trained with cross-entropy. The first stage works on the sparse edges of the batch. A stage connects clusters whose
    members are adjacent, which fills the graph in; from the second stage on, the graphs of a batch are dense matrices
    of K × K numbers, where K is the largest number of clusters, ⌈ratio · n⌉ after the first stage. Memory is of order
    E d + B K², for E edges, B graphs and width d. Nothing is stored for K × K pairs and d features at a time.

    Among equal fitness values the earlier cluster is kept. Edge weights, if there are any, multiply the messages and
    enter the weights of the coarse edges. Edge labels are not read in the messages, only as counts in the features.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 128)
        num_layers (int): Number of stages. (default: 3)
        ratio (float): Fraction of the clusters that a stage keeps. (default: 0.5)
        attention_dropout (float): Dropout probability of the attention. (default: 0.0)
        dropout (float): Dropout probability before the last linear layer. (default: 0.0)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If an option is out of range.
    """

    export_formats: ClassVar[tuple[str, ...]] = ()  # sizes that depend on values
    reference: ClassVar[str] = (
        "ASAP: Adaptive Structure Aware Pooling for Learning Hierarchical Graph Representations, AAAI 2020, "
        "https://arxiv.org/abs/1911.07979"
    )
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden", "ratio")
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((16, 64, 128)),
        "num_layers": Interval(2, 4),
        "ratio": Interval(0.25, 0.8),
        "attention_dropout": Interval(0.0, 0.3),
    }
    capturable: bool = True  # entries of edges and places of clusters have fixed bounds
    pads_to_largest: ClassVar[bool] = True  # from the second stage on, graphs are dense matrices of one size

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 128,
        num_layers: int = 3,
        ratio: float = 0.5,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least("ASAP", 1, hidden=hidden, num_layers=num_layers)
        check_fraction("ASAP", ratio=ratio)
        check_probability("ASAP", attention_dropout=attention_dropout)
        widths = [in_channels] + [hidden] * num_layers
        self.convs = nn.ModuleList(ReplicaGCNConv(a, b, lead=lead) for a, b in pairwise(widths))
        self.pools = nn.ModuleList(
            ASAPooling(hidden, ratio, dropout=attention_dropout, lead=lead) for _ in range(num_layers)
        )
        self.inner = ReplicaLinear(2 * hidden, hidden, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)
        self.outer = ReplicaLinear(hidden, num_classes, lead=lead)

    def reset_parameters(self) -> None:
        for part in (*self.convs, *self.pools, self.inner, self.dropout, self.outer):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        segments = batch.segments
        x, mask = self.node_features(batch), segments.row_mask
        graphs: Neighbourhoods = RaggedNeighbourhoods.of(batch.edges, segments)
        readouts: list[Tensor] = []
        for number, (conv, pool) in enumerate(zip(self.convs, self.pools, strict=True)):
            x = convolve(cast(ReplicaGCNConv, conv), x, graphs).relu()
            pooled: DenseNeighbourhoods = pool(x, graphs, mask, with_edges=number + 1 < len(self.convs))
            readouts.append(_read_out(pooled))
            x, mask, graphs = pooled.x, pooled.used.flatten(-2), pooled
        hidden = self.inner(torch.stack(readouts).sum(0)).relu()
        return ModelOutput(self.outer(self.dropout(hidden, segments.graph_mask)))


def _read_out(graphs: DenseNeighbourhoods) -> Tensor:
    """Mean and maximum over the nodes of each graph, ``[*lead, B, 2 d]``; 0 for a graph without nodes."""
    x, empty = graphs.per_graph(graphs.x), (graphs.size == 0).unsqueeze(-1)  # unused places are 0
    mean = x.sum(-2) / graphs.size.to(x.dtype).clamp_min(1).unsqueeze(-1)
    maximum = x.masked_fill(~graphs.used.unsqueeze(-1), -torch.inf).amax(-2).masked_fill(empty, 0)
    return torch.cat([mean, maximum], -1)
