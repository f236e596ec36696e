"""Capsule Graph Neural Network (CapsGNN)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphcaps.errors import check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.histogram_decoder import HistogramDecoder
from graphcaps.nn.initialise import glorot_
from graphcaps.nn.losses import margin_loss
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.lengths.lengths import lengths
from graphcaps.ops.propagation.propagation import propagate
from graphcaps.ops.ragged.segment_softmax import segment_softmax
from graphcaps.ops.ragged.tiles import segment_broadcast
from graphcaps.ops.routing.channels import route_channels
from graphcaps.registry import MODELS, Choices, Interval, ScoreKind
from graphcaps.types import EdgeTable, GraphBatch, LossOptions, LossTerms, ModelOutput, Segments

__all__ = ["CapsGNN", "CapsGNNOutput"]

_INPUT_CHANNELS = 3
"""Channels of the embedding: the publication has one each for labels, degrees and a constant."""
_ATTENTION = 16
"""Width of the hidden layer of the attention."""


@dataclass(frozen=True, repr=False, eq=False)
class CapsGNNOutput(ModelOutput):
    """Output of :class:`CapsGNN` for a batch.

    Args:
        class_scores (Tensor): Lengths of the class capsules, ``[*lead, B, O]``.
        class_capsules (Tensor): Class capsules, ``[*lead, B, O, d]``.
        graph_capsules (Tensor): Graph capsules, ``[*lead, B, J, d]``.
        reconstruction_loss (Tensor, optional): One number per replica, ``[*lead]``.
    """

    class_capsules: Tensor
    graph_capsules: Tensor
    reconstruction_loss: Tensor | None = None


@MODELS.register("capsgnn")
class CapsGNN(GraphModel):
    r"""Classifies graphs with capsules of nodes, which vote for capsules of the graph and of its class.

    Capsule Graph Neural Network (ICLR 2019, https://openreview.net/forum?id=Byl8BnRcYm). The features of a node have
    two channels of length d = 8, and those of all L layers are its :math:`C = 2 L` capsules :math:`u_{ik}`:

    .. math::
        H^{(l+1)} &= \tanh\big(\hat A (H^{(l)} W_l + e_l)\big), \quad
        u_{ik} = n \, \alpha_{ik} \, [H^{(1)} \,\|\, \dots \,\|\, H^{(L)}]_{ik}, \\
        \alpha_{ik} &= \mathrm{softmax}_i(\tanh(H_i V + a) V' + a')_k

    with an attention :math:`\alpha` over the n nodes of a graph for each channel k. They are routed to graph capsules,
    and these to class capsules, with votes :math:`v_{j|ik} = W_{kj}^\top u_{ik}`
    (:mod:`graphcaps.ops.routing.channels`); a graph capsule is a channel of its own at the second routing. Class scores
    are the lengths of the class capsules. The loss is the margin loss, plus 0.1 times that of a reconstruction of
    the histograms of the input columns (:class:`graphcaps.nn.histogram_decoder.HistogramDecoder`).

    Differs from the publication: it embeds labels, degrees and a constant in a channel each. Here one linear map of all
    input columns, after a BatchNorm, gives three channels, so that attributes of any scale are read too. A channel of a
    node is dropped with the given probability. Completed here: the hidden layer of the attention has 16 features; only
    the last iteration of a routing carries a gradient, as in the released program of HGCN; weights of J output capsules
    and C channels are drawn by Glorot's rule times :math:`J / \sqrt C`, so that capsules have lengths of order 1.

    Edge weights, if there are any, enter :math:`\hat A`. Edge labels are not read in the messages, only as counts in
    the features.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        capsule_dim (int): Length of all capsules d. (default: 8)
        channels (int): Number of channels of a layer. (default: 2)
        num_layers (int): Number of graph convolutions L. (default: 5)
        num_capsules (int): Number of graph capsules J. (default: 16)
        routing_iterations (int): Iterations of each routing, at least 1. (default: 3)
        dropout (float): Probability of a channel of the embedding to be dropped. (default: 0.3)
        reconstruction (bool): Whether there is a decoder. (default: True)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If an option is out of range.
    """

    scores: ClassVar[ScoreKind] = "lengths"
    reference: ClassVar[str] = (
        "Capsule Graph Neural Network, ICLR 2019, https://openreview.net/forum?id=Byl8BnRcYm"
    )
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    memory_options: ClassVar[tuple[str, ...]] = ("capsule_dim", "channels", "num_layers", "num_capsules")
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "capsule_dim": Choices((8, 16)),
        "num_layers": Interval(2, 5),
        "num_capsules": Choices((8, 16)),
        "dropout": Interval(0.0, 0.5),
    }
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        capsule_dim: int = 8,
        channels: int = 2,
        num_layers: int = 5,
        num_capsules: int = 16,
        routing_iterations: int = 3,
        dropout: float = 0.3,
        reconstruction: bool = True,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least(
            "CapsGNN", 1, capsule_dim=capsule_dim, channels=channels, num_layers=num_layers,
            num_capsules=num_capsules, routing_iterations=routing_iterations,
        )  # fmt: skip
        self.capsule_dim, self.routing_iterations = capsule_dim, routing_iterations
        d, width, joined = capsule_dim, channels * capsule_dim, num_layers * channels
        self.input_norm = RaggedBatchNorm(in_channels, lead=lead)
        self.embedding = ReplicaLinear(in_channels, _INPUT_CHANNELS * d, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)
        widths = [_INPUT_CHANNELS * d] + [width] * (num_layers - 1)
        self.layers = nn.ModuleList(ReplicaLinear(each, width, lead=lead) for each in widths)
        self.attention = ReplicaLinear(joined * d, _ATTENTION, lead=lead)
        self.attention_scores = ReplicaLinear(_ATTENTION, joined, lead=lead)
        self.graph_votes = nn.Parameter(torch.empty(*lead, num_capsules, joined, d, d))
        self.class_votes = nn.Parameter(torch.empty(*lead, num_classes, num_capsules, d, d))
        self.decoder = HistogramDecoder(num_classes, d, in_channels, lead=lead) if reconstruction else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for part in (self.input_norm, self.dropout, self.attention, self.attention_scores, self.decoder):
            if part is not None:
                part.reset_parameters()
        for linear in (self.embedding, *self.layers):
            linear.reset_parameters()
            glorot_(linear.weight, linear.in_channels, linear.out_channels)
            nn.init.zeros_(linear.bias)
        for votes in (self.graph_votes, self.class_votes):
            glorot_(votes, self.capsule_dim, self.capsule_dim)
            # In the first iteration each vote enters one of J sums over C channels with the weight 1 / J. Squash
            # has hardly a gradient at the lengths that would result.
            J, C = votes.shape[-4:-2]
            with torch.no_grad():
                votes.mul_(J / math.sqrt(C))

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> CapsGNNOutput:
        """Class scores of the graphs of a batch; with ``y`` the reconstruction loss too."""
        x, segments = self.node_features(batch), batch.segments
        u = self._node_capsules(x, batch.edges, segments)
        graph_capsules = route_channels(u, self.graph_votes, segments, self.routing_iterations)
        class_capsules = route_channels(graph_capsules, self.class_votes, None, self.routing_iterations)
        reconstruction = None
        if self.decoder is not None and y is not None:
            reconstruction = self.decoder(x, segments, class_capsules=class_capsules, y=y)
        return CapsGNNOutput(lengths(class_capsules), class_capsules, graph_capsules, reconstruction)

    def _node_capsules(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """The capsules of all nodes, weighed by the attention, ``[*lead, V, C, d]``."""
        d, mask = self.capsule_dim, segments.row_mask
        h = self.embedding(self.input_norm(x, mask))
        if self.training:
            kept = self.dropout(h.new_ones(*h.shape[:-1], _INPUT_CHANNELS), mask)
            h = (h.unflatten(-1, (_INPUT_CHANNELS, d)) * kept.unsqueeze(-1)).flatten(-2)
        outputs: list[Tensor] = []
        for layer in self.layers:
            h = propagate(layer(h), edges).tanh()
            outputs.append(h)
        joined = torch.cat(outputs, -1)
        scores = self.attention_scores(self.attention(joined).tanh())
        sizes = segment_broadcast(segments.sizes.to(x.dtype).unsqueeze(-1), segments)
        weights = segment_softmax(scores, segments) * sizes
        return joined.unflatten(-1, (-1, d)) * weights.unsqueeze(-1)

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        """Margin loss plus the weighted reconstruction loss, if the output has one."""
        margin = margin_loss(
            output.class_scores, y, class_weight=options.class_weight, graph_weight=options.graph_weight
        )
        loss = LossTerms(margin, {"margin": margin})
        if isinstance(output, CapsGNNOutput):
            loss = loss.plus("reconstruction", output.reconstruction_loss, options.reconstruction_weight)
        return loss
