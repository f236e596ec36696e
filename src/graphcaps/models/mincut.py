"""MinCut pooling (MinCutPool)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphcaps.errors import check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.nn.replica_mlp import ReplicaMLP
from graphcaps.ops.graph_mean import mean_over_graphs
from graphcaps.ops.propagation.propagation import degrees, neighbour_sum
from graphcaps.ops.soft_pooling import cut_loss, normalise_coarse, orthogonality_loss, soft_pool
from graphcaps.registry import MODELS, Choices, DataOption, DatasetSize, Interval
from graphcaps.types import EdgeTable, GraphBatch, LossOptions, LossTerms, ModelOutput

__all__ = ["MinCut", "MinCutOutput"]

_ASSIGNING = 16
"""Width of the hidden layer that computes an assignment."""


def _default_clusters(size: DatasetSize) -> tuple[int, int]:
    """A half and a quarter of the mean number of nodes."""
    mean = math.ceil(size.mean_nodes)
    return max(mean // 2, 1), max(mean // 4, 1)


@dataclass(frozen=True, repr=False, eq=False)
class MinCutOutput(ModelOutput):
    """Output of :class:`MinCut` for a batch.

    Args:
        class_scores (Tensor): Logits, ``[*lead, B, O]``.
        assignments (tuple): Assignment of each level: ``[*lead, V, k]`` over nodes, ``[*lead, B, k_below, k]`` above.
        cut_loss (Tensor): Sum over levels of :func:`graphcaps.ops.soft_pooling.cut_loss`, ``[*lead, B]``.
        orthogonality_loss (Tensor): The same of :func:`graphcaps.ops.soft_pooling.orthogonality_loss`.
    """

    assignments: tuple[Tensor, ...]
    cut_loss: Tensor
    orthogonality_loss: Tensor


class _Convolution(nn.Module):
    """ReLU(ÃXW + XW' + e), from X and ÃX."""

    def __init__(self, in_channels: int, hidden: int, lead: tuple[int, ...]) -> None:
        super().__init__()
        self.neighbours = ReplicaLinear(in_channels, hidden, lead=lead)
        self.root = ReplicaLinear(in_channels, hidden, bias=False, lead=lead)

    def reset_parameters(self) -> None:
        self.neighbours.reset_parameters()
        self.root.reset_parameters()

    def forward(self, x: Tensor, summed: Tensor) -> Tensor:
        total: Tensor = self.neighbours(summed) + self.root(x)
        return total.relu()


@MODELS.register("mincut")
class MinCut(LogitModel):
    r"""Classifies graphs with clusters that cut few edges.

    MinCutPool (ICML 2020, https://arxiv.org/abs/1907.00481). At each level, from :math:`\tilde A = D^{-1/2} A D^{-1/2}`
    of the nodes on:

    .. math::
        H &= \mathrm{ReLU}(\tilde A X W + X W' + e), \quad S = \mathrm{softmax}(\mathrm{MLP}(H)), \\
        X' &= S^\top H, \quad A' = S^\top \tilde A S \text{ with zeros on the diagonal}, \quad
        \tilde A' = D'^{-1/2} A' D'^{-1/2}

    A last convolution on the clusters of the last level, a mean over them and a linear layer give the logits. The loss
    is the cross-entropy plus, for each level and as means over graphs,

    .. math:: - \frac{\mathrm{tr}(S^\top \tilde A S)}{\mathrm{tr}(S^\top \tilde D S)}
        + \left\| \frac{S^\top S}{\|S^\top S\|_F} - \frac{I}{\sqrt k} \right\|_F

    Graphs are not padded to the size of the largest: the first level is ragged and its A sparse. Edge weights enter A.
    Edge labels are not read in the messages, only as counts in the features.

    Differs from the published program: a BatchNorm scales the input columns, which the program scales beforehand, and a
    graph without edges has the cut loss 0, where the program divides 0 by 0.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of features of each convolution. (default: 32)
        num_clusters (tuple): Number of clusters of each level; from the data, a half and a quarter of the mean number
            of nodes. (default: (12, 6))
        cut_weight (float): Weight of the cut loss. (default: 1.0)
        orthogonality_weight (float): Weight of the orthogonality loss. (default: 1.0)
        dropout (float): Dropout probability before the last linear layer. (default: 0.0)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    reference: ClassVar[str] = (
        "Spectral Clustering with Graph Neural Networks for Graph Pooling, ICML 2020, https://arxiv.org/abs/1907.00481"
    )
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden", "num_clusters")
    data_options: ClassVar[Mapping[str, DataOption]] = {
        "num_clusters": DataOption(_default_clusters, kept=True, by_default=True),
    }
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 64, 128)),
        "num_clusters": Choices(((12,), (12, 6))),
        "dropout": Interval(0.0, 0.7),
    }
    loss_weights: ClassVar[tuple[str, ...]] = ("cut_weight", "orthogonality_weight")
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 32,
        num_clusters: tuple[int, ...] = (12, 6),
        cut_weight: float = 1.0,
        orthogonality_weight: float = 1.0,
        dropout: float = 0.0,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least("MinCut", 1, hidden=hidden, num_clusters=num_clusters)
        check_at_least("MinCut", 0, cut_weight=cut_weight, orthogonality_weight=orthogonality_weight)
        self.num_clusters = tuple(num_clusters)
        self.cut_weight, self.orthogonality_weight = cut_weight, orthogonality_weight
        widths = [in_channels] + [hidden] * len(num_clusters)
        self.input_norm = RaggedBatchNorm(in_channels, lead=lead)
        self.convolutions = nn.ModuleList(_Convolution(width, hidden, lead) for width in widths)
        self.assigning = nn.ModuleList(
            ReplicaMLP([hidden, _ASSIGNING, k], norm=False, lead=lead) for k in num_clusters
        )
        self.dropout = ReplicaDropout(dropout, lead=lead)
        self.head = ReplicaLinear(hidden, num_classes, lead=lead)

    def reset_parameters(self) -> None:
        for part in (self.input_norm, *self.convolutions, *self.assigning, self.dropout, self.head):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> MinCutOutput:
        """Logits of the graphs of a batch and the losses of the assignments; ``y`` is ignored."""
        edges, segments = batch.edges, batch.segments
        x = self.input_norm(self.node_features(batch), segments.row_mask)
        scale = _degree_scale(edges, x.dtype)

        h = self.convolutions[0](x, scale * neighbour_sum(scale * x, edges))
        s = self.assigning[0](h).softmax(-1)
        # The degrees of Ã are one more column of the product.
        summed = scale * neighbour_sum(torch.cat([scale * s, scale], -1), edges)
        pooled = soft_pool(h, s, summed[..., :-1], segments)
        cut = cut_loss(pooled, s, summed[..., -1], segments)
        orthogonality = orthogonality_loss(pooled.overlap)
        assignments = [s]
        for level in range(1, len(self.num_clusters)):
            adjacency = normalise_coarse(pooled.adjacency)
            h = self._convolve(level, pooled.x, adjacency)
            s = self._by_rows(self.assigning[level], h).softmax(-1)
            pooled = soft_pool(h, s, adjacency @ s)
            cut = cut + cut_loss(pooled, s, adjacency.sum(-1))
            orthogonality = orthogonality + orthogonality_loss(pooled.overlap)
            assignments.append(s)
        g = self._convolve(-1, pooled.x, normalise_coarse(pooled.adjacency)).mean(-2)
        scores = self.head(self.dropout(g, segments.graph_mask))
        return MinCutOutput(scores, tuple(assignments), cut, orthogonality)

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        """Cross-entropy, and the losses of the assignments unless ``output`` has scores alone."""
        loss = super().loss(output, y, options)
        if not isinstance(output, MinCutOutput):
            return loss
        cut = mean_over_graphs(output.cut_loss, y)
        orthogonality = mean_over_graphs(output.orthogonality_loss, y)
        total = loss.total + self.cut_weight * cut + self.orthogonality_weight * orthogonality
        return LossTerms(total, {**loss.terms, "cut": cut, "orthogonality": orthogonality})

    def _convolve(self, level: int, x: Tensor, adjacency: Tensor) -> Tensor:
        """A convolution on coarse graphs, ``x [*lead, B, k, d]``."""
        summed = (adjacency @ x).flatten(-3, -2)
        h: Tensor = self.convolutions[level](x.flatten(-3, -2), summed)
        return h.unflatten(-2, (-1, x.size(-2)))

    @staticmethod
    def _by_rows(module: nn.Module, x: Tensor) -> Tensor:
        """A module of rows on coarse graphs, ``[*lead, B, k, d]``."""
        rows: Tensor = module(x.flatten(-3, -2))
        return rows.unflatten(-2, (-1, x.size(-2)))


def _degree_scale(edges: EdgeTable, dtype: torch.dtype) -> Tensor:
    """1 / √degree of each row, 0 without edges, ``[*lead, V, 1]``."""
    degree = degrees(edges).to(dtype).unsqueeze(-1)
    some = degree > 0
    return degree.masked_fill(~some, 1).rsqrt().masked_fill(~some, 0)
