"""Graph Capsule Convolutional Neural Network (GCAPS-CNN)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphcaps.errors import check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.edges import repeat_edges
from graphcaps.ops.propagation.propagation import propagate
from graphcaps.ops.ragged.covariance import segment_covariance
from graphcaps.ops.ragged.reductions import segment_mean
from graphcaps.registry import MODELS, Choices, Interval
from graphcaps.types import EdgeTable, GraphBatch, ModelOutput

__all__ = ["GCAPSCNN"]

_DENSE = 128
"""Width of the hidden layer of the classifier."""


class _MomentLayer(nn.Module):
    r"""P powers of the features, each with a polynomial in :math:`\hat A` of its own."""

    def __init__(self, in_channels: int, hidden: int, powers: int, hops: int, lead: tuple[int, ...]) -> None:
        super().__init__()
        self.powers, self.hops = powers, hops
        # The powers are further replicas: one product computes all of them.
        self.linear = ReplicaLinear((hops + 1) * in_channels, hidden, lead=(*lead, powers))

    def reset_parameters(self) -> None:
        self.linear.reset_parameters()

    def forward(self, x: Tensor, edges: EdgeTable) -> Tensor:
        """``x [*lead, V, in]`` to ``[*lead, V, P · hidden]``; ``edges`` are those of P copies of each replica."""
        powers = [x]
        for _ in range(self.powers - 1):
            powers.append(powers[-1] * x)
        terms = [torch.stack(powers, -3)]  # [*lead, P, V, in]
        for _ in range(self.hops):
            terms.append(propagate(terms[-1], edges))
        y: Tensor = self.linear(torch.cat(terms, -1)).tanh()
        return y.movedim(-3, -2).flatten(-2)


@MODELS.register("gcaps-cnn")
class GCAPSCNN(LogitModel):
    r"""Classifies graphs with powers of node features, and their mean and covariance over nodes.

    Graph Capsule CNN (2018, https://arxiv.org/abs/1805.08090). A layer applies a polynomial filter to each power
    :math:`X^{\circ p}`, taken element by element, of the features, and joins the results:

    .. math::
        f_p(X) &= \tanh\Big(\sum_{k=0}^{K} \hat A^k X^{\circ p} W_{pk} + e_p\Big), \quad p = 1, \dots, P, \\
        g &= \Big[\mu, \; \frac{1}{n} \sum_i (f_i - \mu)(f_i - \mu)^\top\Big], \quad \mu = \frac{1}{n} \sum_i f_i

    with the joined features :math:`f_i` of node i after the last layer. A hidden layer classifies :math:`g`, after a
    BatchNorm. Trained with cross-entropy. :math:`\hat A` is that of :class:`graphcaps.nn.ReplicaGCNConv`; its
    polynomials are those of the Laplacian :math:`I - \hat A`. Edge weights enter :math:`\hat A`. Edge labels are not
    read in the messages, only as counts in the features.

    There is no published program. Completed here: powers need bounded numbers, so the input is
    :math:`\tanh(\mathrm{BN}(X) W + e)` and the activation of a layer is tanh; the numbers of layers, powers, hops and
    features are ours.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of features of each power; the covariance has its square times :math:`P^2` entries.
            (default: 32)
        num_layers (int): Number of layers. (default: 2)
        powers (int): Number of powers P. (default: 2)
        hops (int): Degree K of the polynomials. (default: 2)
        dropout (float): Dropout probability before the last linear layer. (default: 0.5)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    reference: ClassVar[str] = (
        "Graph Capsule Convolutional Neural Networks, 2018, https://arxiv.org/abs/1805.08090"
    )
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    memory_options: ClassVar[tuple[str, ...]] = ("hidden", "powers", "hops")
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((16, 32)),
        "powers": Interval(1, 3),
        "hops": Interval(1, 3),
        "dropout": Interval(0.0, 0.7),
    }
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 32,
        num_layers: int = 2,
        powers: int = 2,
        hops: int = 2,
        dropout: float = 0.5,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least("GCAPSCNN", 1, hidden=hidden, num_layers=num_layers, powers=powers)
        check_at_least("GCAPSCNN", 0, hops=hops)
        self.powers = powers
        joined = powers * hidden
        self.input_norm = RaggedBatchNorm(in_channels, lead=lead)
        self.input = ReplicaLinear(in_channels, hidden, lead=lead)
        widths = [hidden] + [joined] * (num_layers - 1)
        self.layers = nn.ModuleList(_MomentLayer(width, hidden, powers, hops, lead) for width in widths)
        self.graph_norm = RaggedBatchNorm(joined + joined**2, lead=lead)
        self.inner = ReplicaLinear(joined + joined**2, _DENSE, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)
        self.outer = ReplicaLinear(_DENSE, num_classes, lead=lead)

    def reset_parameters(self) -> None:
        parts = (self.input_norm, self.input, *self.layers, self.graph_norm, self.inner, self.dropout)
        for part in (*parts, self.outer):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        segments, edges = batch.segments, repeat_edges(batch.edges, self.powers)
        x = self.input(self.input_norm(self.node_features(batch), segments.row_mask)).tanh()
        for layer in self.layers:
            x = layer(x, edges)
        mean = segment_mean(x, segments)
        moments = torch.cat([mean, segment_covariance(x, mean, segments).flatten(-2)], -1)
        mask = segments.graph_mask
        g = self.inner(self.graph_norm(moments, mask)).relu()
        return ModelOutput(self.outer(self.dropout(g, mask)))
