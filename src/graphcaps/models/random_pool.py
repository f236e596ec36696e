"""Random pooling: the control for networks that learn which nodes to keep."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from graphcaps.models.selection_network import SelectionNetwork, graph_convs, read_out
from graphcaps.nn.initialise import draw_seeds_
from graphcaps.ops.node_hash import hash_nodes
from graphcaps.ops.propagation.propagation import induced_scale
from graphcaps.ops.ragged.selection import Selection, select_top
from graphcaps.registry import MODELS
from graphcaps.types import GraphBatch, ModelOutput

__all__ = ["RandomPool"]


@MODELS.register("random-pool")
class RandomPool(SelectionNetwork):
    r"""Classifies graphs with graph convolutions that keep random nodes: the control for learned pooling.

    The hierarchical network of :class:`~.sagpool.SAGPool` with random scores instead of attention, after Mesquita,
    Souza and Kaski (NeurIPS 2020, https://arxiv.org/abs/2010.11418):

    .. math:: H = \mathrm{ReLU}(\hat A X W + e), \quad I = \mathrm{top}_{\lceil \rho n \rceil}(s), \quad
        X' = H_I, \quad A' = A_{I,I}

    A node has one score :math:`s_i` for all stages and epochs. It is a hash of the model's seed and of the
    Weisfeiler-Lehman colour of the node after as many iterations as there are stages (:mod:`graphcaps.ops.node_hash`).
    So a prediction is reproducible and depends neither on other graphs nor on the order of nodes; nodes that colour
    refinement does not distinguish have equal scores, and the earlier one is kept. The kept rows are not multiplied
    by their scores, which say nothing about the nodes. Edge weights, if there are any, multiply the messages.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features, at least 2. (default: 128)
        ratio (float): Fraction of the nodes that a stage keeps. (default: 0.5)
        num_layers (int): Number of stages. (default: 3)
        dropout (float): Dropout probability after the first linear layer. (default: 0.5)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If an option is out of range.
    """

    reference: ClassVar[str] = (
        "Rethinking Pooling in Graph Neural Networks, NeurIPS 2020, https://arxiv.org/abs/2010.11418"
    )
    seed: Tensor

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 128,
        ratio: float = 0.5,
        num_layers: int = 3,
        dropout: float = 0.5,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(
            in_channels, num_classes, hidden=hidden, ratio=ratio, num_layers=num_layers, readout=2 * hidden,
            dropout=dropout, lead=lead,
        )  # fmt: skip
        self.register_buffer("seed", torch.zeros(lead, dtype=torch.int64))
        self._draw_seed()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._draw_seed()

    def _draw_seed(self) -> None:
        draw_seeds_(self.seed)

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        x, edges, segments = self.node_features(batch), batch.edges, batch.segments
        score = hash_nodes(x, edges, self.seed, len(self.convs))
        readouts: list[Tensor] = []
        scale: Tensor | None = None  # of the subgraph that is left
        kept: Selection | None = None
        for conv in graph_convs(self.convs):
            if kept is not None:
                scale = induced_scale(edges, kept.mask, x.dtype)
            x = conv.forward_ragged(x, edges, segments, scale).relu()
            kept = select_top(score, segments, self.ratio, among=kept)
            readouts.append(read_out(x, segments, kept))
        return self.classify(torch.stack(readouts).sum(0), segments)
