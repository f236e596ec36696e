"""Simple Graph Convolution, a model for graphcaps in a package of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.models import MODELS, GraphModel, Interval, LossOptions, LossTerms, ModelOutput, ScoreKind
from graphcaps.nn import ReplicaLinear, cross_entropy, mean_pool
from graphcaps.ops import propagate
from graphcaps.types import GraphBatch

__all__ = ["SGC"]


@MODELS.register("sgc")
class SGC(GraphModel):
    r"""Classifies graphs with a linear map of features that were averaged over neighbourhoods.

    Simple Graph Convolution (ICML 2019, https://arxiv.org/abs/1902.07153), with a mean over the nodes of each graph:

    .. math:: \mathrm{logits} = \mathrm{mean}_i \big(\hat A^K x\big)_i W + e

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hops (int): Number of propagation steps K. (default: 2)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    scores: ClassVar[ScoreKind] = "logits"
    reference: ClassVar[str] = (
        "Simplifying Graph Convolutional Networks, ICML 2019, https://arxiv.org/abs/1902.07153"
    )
    searched: ClassVar[Mapping[str, Interval]] = {"hops": Interval(1, 4)}

    def __init__(
        self, in_channels: int, num_classes: int, *, hops: int = 2, lead: tuple[int, ...] = ()
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        if hops < 0:
            raise ArgumentError("SGC", "hops", "be at least 0", hops)
        self.hops = hops
        self.linear = ReplicaLinear(in_channels, num_classes, lead=lead)

    @property
    def capturable(self) -> bool:
        """True: no step synchronises with the host."""
        return True

    def reset_parameters(self) -> None:
        self.linear.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        x = self.node_features(batch)
        for _ in range(self.hops):
            x = propagate(x, batch.edges)
        return ModelOutput(self.linear(mean_pool(x, batch.segments)))

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        loss = cross_entropy(output.class_scores, y, options.class_weight, options.graph_weight)
        return LossTerms(loss, {"cross-entropy": loss})
