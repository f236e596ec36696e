"""Differentiable pooling (DiffPool)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphcaps.errors import check_at_least
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.pooling import max_pool
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.nn.replica_mlp import ReplicaMLP
from graphcaps.ops.edges import repeat_edges
from graphcaps.ops.graph_mean import mean_over_graphs
from graphcaps.ops.propagation.propagation import neighbour_sum
from graphcaps.ops.soft_pooling import assignment_entropy, edge_norm, link_loss, soft_pool
from graphcaps.ops.unit_rows.unit_rows import unit_rows
from graphcaps.registry import MODELS, Choices, DataOption, Interval
from graphcaps.types import GraphBatch, LossOptions, LossTerms, ModelOutput

__all__ = ["DiffPool", "DiffPoolOutput"]

_CLUSTER_RATIO, _NODE_LIMIT = 0.1, 1000
"""Clusters per node of the largest graph, and the largest number of nodes, both of the published program."""
_HEAD = 50
"""Width of the hidden layer of the classifier."""


def _default_clusters(max_nodes: int) -> int:
    return max(int(_CLUSTER_RATIO * min(max_nodes, _NODE_LIMIT)), 1)


@dataclass(frozen=True, repr=False, eq=False)
class DiffPoolOutput(ModelOutput):
    """Output of :class:`DiffPool` for a batch.

    Args:
        class_scores (Tensor): Logits, ``[*lead, B, O]``.
        assignment (Tensor): Assignment S of the nodes to clusters, ``[*lead, V, k]``.
        adjacency (Tensor): Adjacency of the clusters, ``[*lead, B, k, k]``.
        link_loss (Tensor): :func:`graphcaps.ops.soft_pooling.link_loss` of each graph, ``[*lead, B]``.
        entropy (Tensor): :func:`graphcaps.ops.soft_pooling.assignment_entropy` of each graph, ``[*lead, B]``.
    """

    assignment: Tensor
    adjacency: Tensor
    link_loss: Tensor
    entropy: Tensor


class _Convolutions(nn.Module):
    """L layers (AX)W + e with rows of length 1, ReLU and BatchNorm between them, and all results joined."""

    def __init__(self, in_channels: int, hidden: int, num_layers: int, lead: tuple[int, ...]) -> None:
        super().__init__()
        widths = [in_channels] + [hidden] * (num_layers - 1)
        self.linears = nn.ModuleList(ReplicaLinear(width, hidden, lead=lead) for width in widths)
        self.norms = nn.ModuleList(RaggedBatchNorm(hidden, lead=lead) for _ in range(num_layers - 1))

    def reset_parameters(self) -> None:
        for part in (*self.linears, *self.norms):
            part.reset_parameters()

    def forward(self, summed: Tensor, hop: Callable[[Tensor], Tensor], mask: Tensor | None) -> Tensor:
        """Rows ``[*lead, R, L hidden]`` from the sums over neighbours AX, ``[*lead, R, in]``.

        Args:
            summed (Tensor): AX of the input.
            hop (callable): Multiplies rows by A.
            mask (Tensor, optional): True at real rows, ``[*lead, R]``.
        """
        results = []
        for number, linear in enumerate(self.linears):
            x = unit_rows(linear(summed))
            if number < len(self.norms):
                x = self.norms[number](x.relu(), mask)
                summed = hop(x)
            results.append(x)
        return torch.cat(results, -1)


@MODELS.register("diffpool")
class DiffPool(LogitModel):
    r"""Classifies graphs with a learned soft assignment of nodes to clusters.

    DiffPool (NeurIPS 2018, https://arxiv.org/abs/1806.08804):

    .. math::
        Z &= \mathrm{GNN}_e(A, X), \quad S = \mathrm{softmax}\big(\mathrm{GNN}_p(A, X) W + e\big), \\
        X' &= S^\top Z, \quad A' = S^\top A S, \quad Z' = \mathrm{GNN}_c(A', X'), \\
        z &= \mathrm{MLP}\big(\max_i Z_i \,\|\, \max_c Z'_c\big)

    with logits :math:`z`. A GNN has L layers :math:`(A X) W + e` whose rows are scaled to length 1, with ReLU and
    BatchNorm between them, and joins the results of all layers. The loss is the cross-entropy plus the distance
    :math:`\|A - S S^\top\|_F / n^2` of each graph and the mean entropy of the rows of S, both as means over graphs.

    Graphs are not padded to the size of the largest: A is sparse, the assignment has one row per node, and the
    distance is computed without an n × n matrix (:mod:`graphcaps.ops.soft_pooling`). Edge weights multiply the
    messages. Edge labels are not read in the messages, only as counts in the features.

    Differs from the published program: BatchNorm has learned parameters and running averages, and normalises features
    over nodes; the program makes a new one in each call, which normalises node positions and uses statistics of the
    batch at test time. The maximum is over nodes only, without padding rows. The program's default leaves out both
    losses of the assignment, which the paper has; ``link_weight=0`` and ``entropy_weight=0`` do so. Gradients are not
    clipped.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of features of each layer. (default: 64)
        num_layers (int): Number of layers L of each GNN. (default: 3)
        num_clusters (int): Number of clusters k; from the data, a tenth of the nodes of the largest graph, at
            most 100. (default: 10)
        link_weight (float): Weight of the distance from the edges in the loss. (default: 1.0)
        entropy_weight (float): Weight of the entropy in the loss. (default: 1.0)
        dropout (float): Dropout probability before the last linear layer. (default: 0.0)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    reference: ClassVar[str] = (
        "Hierarchical Graph Representation Learning with Differentiable Pooling, NeurIPS 2018, "
        "https://arxiv.org/abs/1806.08804"
    )
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden", "num_clusters")
    data_options: ClassVar[Mapping[str, DataOption]] = {
        "num_clusters": DataOption(
            lambda size: _default_clusters(size.max_nodes), kept=True, by_default=True
        ),
    }
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 64, 128)),
        "num_layers": Interval(2, 4),
        "dropout": Interval(0.0, 0.7),
    }
    loss_weights: ClassVar[tuple[str, ...]] = ("link_weight", "entropy_weight")
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 64,
        num_layers: int = 3,
        num_clusters: int = 10,
        link_weight: float = 1.0,
        entropy_weight: float = 1.0,
        dropout: float = 0.0,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least("DiffPool", 1, hidden=hidden, num_layers=num_layers, num_clusters=num_clusters)
        check_at_least("DiffPool", 0, link_weight=link_weight, entropy_weight=entropy_weight)
        self.num_clusters, self.link_weight, self.entropy_weight = num_clusters, link_weight, entropy_weight
        width = num_layers * hidden
        # GNN_e and GNN_p of a replica run side by side, as two more replicas: half as many operations.
        self.nodes = _Convolutions(in_channels, hidden, num_layers, (*lead, 2))
        self.clusters = ReplicaLinear(width, num_clusters, lead=lead)
        self.coarse = _Convolutions(width, hidden, num_layers, lead)
        self.head = ReplicaMLP([2 * width, _HEAD, num_classes], norm=False, dropout=dropout, lead=lead)

    def reset_parameters(self) -> None:
        for part in (self.nodes, self.clusters, self.coarse, self.head):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> DiffPoolOutput:
        """Logits of the graphs of a batch and the losses of the assignment; ``y`` is ignored."""
        edges, segments = batch.edges, batch.segments
        graphs, mask = segments.graph_mask, segments.row_mask
        both = repeat_edges(edges, 2)

        def hop(x: Tensor) -> Tensor:
            return neighbour_sum(x, both)

        summed = neighbour_sum(self.node_features(batch), edges).unsqueeze(-3)
        rows = None if mask is None else mask.unsqueeze(-2).expand(both.node.shape).contiguous()
        z, potentials = self.nodes(summed, hop, rows).unbind(-3)
        s = self.clusters(potentials).softmax(-1)
        pooled = soft_pool(z, s, neighbour_sum(s, edges), segments)
        adjacency = pooled.adjacency

        def coarse_hop(x: Tensor) -> Tensor:
            return (adjacency @ x.unflatten(-2, (-1, self.num_clusters))).flatten(-3, -2)

        clusters = None if graphs is None else graphs.repeat_interleave(self.num_clusters, -1)
        z_coarse = self.coarse((adjacency @ pooled.x).flatten(-3, -2), coarse_hop, clusters)
        highest = [max_pool(z, segments), z_coarse.unflatten(-2, (-1, self.num_clusters)).amax(-2)]
        scores = self.head(torch.cat(highest, -1), graphs)
        distance = link_loss(pooled, edge_norm(edges, segments, s.dtype), segments.sizes)
        return DiffPoolOutput(scores, s, adjacency, distance, assignment_entropy(s, segments))

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        """Cross-entropy, and the losses of the assignment unless ``output`` has scores alone."""
        loss = super().loss(output, y, options)
        if not isinstance(output, DiffPoolOutput):
            return loss
        link, entropy = mean_over_graphs(output.link_loss, y), mean_over_graphs(output.entropy, y)
        total = loss.total + self.link_weight * link + self.entropy_weight * entropy
        return LossTerms(total, {**loss.terms, "link": link, "entropy": entropy})
