"""The base of networks whose class scores are logits."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.losses import cross_entropy
from graphcaps.registry import ScoreKind
from graphcaps.types import LossOptions, LossTerms, ModelOutput

__all__ = ["LogitModel"]


class LogitModel(GraphModel):
    """A graph model whose class scores are logits, trained with cross-entropy.

    A subclass with further loss terms adds them to the result of :meth:`loss`.
    """

    scores: ClassVar[ScoreKind] = "logits"

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        """Cross-entropy loss."""
        loss = cross_entropy(output.class_scores, y, options.class_weight, options.graph_weight)
        return LossTerms(loss, {"cross-entropy": loss})
