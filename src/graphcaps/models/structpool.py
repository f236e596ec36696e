"""Structured pooling by a conditional random field (StructPool)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn

from graphcaps.errors import check_at_least
from graphcaps.nn.conv_head import ConvHead
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.mean_conv import ReplicaMeanConv
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.mean_field import mean_field
from graphcaps.ops.ragged.tiles import segment_product
from graphcaps.registry import MODELS, Choices, DataOption, Interval
from graphcaps.types import GraphBatch, ModelOutput

__all__ = ["StructPool", "StructPoolOutput"]

_FRACTION, _FEWEST = 0.6, 10
"""Fraction of graphs with at most as many nodes as there are clusters, and the smallest number of clusters."""


@dataclass(frozen=True, repr=False, eq=False)
class StructPoolOutput(ModelOutput):
    """Output of :class:`StructPool` for a batch.

    Args:
        class_scores (Tensor): Logits, ``[*lead, B, O]``.
        assignment (Tensor): Assignment S of the nodes to clusters, ``[*lead, V, k]``.
    """

    assignment: Tensor


@MODELS.register("structpool")
class StructPool(LogitModel):
    r"""Classifies graphs with clusters from a random field in which similar nodes attract each other.

    StructPool (ICLR 2020): three convolutions :math:`X \leftarrow \tanh(\tilde D^{-1}((A + I) X W + e))` give node
    features, and three more give unary potentials :math:`U`, one column per cluster. R rounds of mean-field inference
    give the assignment:

    .. math::
        Q \leftarrow U + \mathrm{rowsum}(W)^{-1} W \, \mathrm{softmax}(Q), \quad
        W = X X^\top - \mathrm{diag}(X X^\top), \quad S = \mathrm{softmax}(Q)

    The clusters :math:`S^\top X` are classified by the head of DGCNN (:class:`graphcaps.nn.ConvHead`), which does not
    read their adjacency :math:`S^\top A S`. Trained with cross-entropy. W is never stored
    (:mod:`graphcaps.ops.mean_field`). Edge weights enter A. Edge labels are not read in the messages, only as counts in
    the features.

    Differs from the published program: a BatchNorm scales the input columns, since tanh saturates; row sums near 0 are
    guarded, with which the program can divide by 0 (``row_sum_guard=0`` leaves the guard out); a node that no other
    attracts keeps its unary potential. The program's constant matrices I and −I of filter and compatibility cancel, and
    are left out. W is not masked by the distance of nodes, which is the program's default.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Width of the node features. The two convolutions before have a half and three quarters of it,
            those of the potentials three quarters. (default: 64)
        num_clusters (int): Number of clusters k, at least 10; from the data, the 60th percentile of the number of
            nodes. (default: 16)
        rounds (int): Number of mean-field rounds R. (default: 5)
        row_sum_guard (float): Guard of row sums near 0; messages are at most its inverse. (default: 0.1)
        dropout (float): Dropout probability before the last linear layer. (default: 0.5)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    export_formats: ClassVar[tuple[str, ...]] = ()  # sizes that depend on values
    reference: ClassVar[str] = (
        "StructPool: Structured Graph Pooling via Conditional Random Fields, ICLR 2020, "
        "https://openreview.net/forum?id=BJxg_hVtwH"
    )
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden", "num_clusters", "rounds")
    data_options: ClassVar[Mapping[str, DataOption]] = {
        "num_clusters": DataOption(
            lambda size: max(size.nodes_at(_FRACTION), _FEWEST), kept=True, by_default=True
        ),
    }
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 64, 128)),
        "rounds": Interval(1, 5),
        "dropout": Interval(0.0, 0.7),
    }
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 64,
        num_clusters: int = 16,
        rounds: int = 5,
        row_sum_guard: float = 0.1,
        dropout: float = 0.5,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least("StructPool", 1, hidden=hidden)
        check_at_least("StructPool", _FEWEST, num_clusters=num_clusters)
        check_at_least("StructPool", 0, rounds=rounds, row_sum_guard=row_sum_guard)
        self.num_clusters, self.rounds, self.row_sum_guard = num_clusters, rounds, row_sum_guard
        half, most = max(hidden // 2, 1), max(3 * hidden // 4, 1)
        self.input_norm = RaggedBatchNorm(in_channels, lead=lead)
        self.features = _convolutions((in_channels, half, most, hidden), lead)
        self.unary = _convolutions((hidden, most, most, num_clusters), lead)
        self.head = ConvHead(hidden, num_clusters, num_classes, dropout=dropout, lead=lead)

    def reset_parameters(self) -> None:
        for part in (self.input_norm, *self.features, *self.unary, self.head):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> StructPoolOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        edges, segments = batch.edges, batch.segments
        x = self.input_norm(self.node_features(batch), segments.row_mask)
        for conv in self.features:
            x = conv(x, edges, segments).tanh()
        u = x
        for conv in self.unary:
            u = conv(u, edges, segments).tanh()
        s = mean_field(u, x, segments, self.rounds, self.row_sum_guard)
        scores = self.head(segment_product(s, x, segments), segments.graph_mask)
        return StructPoolOutput(scores, s)


def _convolutions(widths: tuple[int, ...], lead: tuple[int, ...]) -> nn.ModuleList:
    return nn.ModuleList(ReplicaMeanConv(a, b, lead=lead) for a, b in pairwise(widths))
