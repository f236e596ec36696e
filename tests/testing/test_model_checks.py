"""Every check of the contract fails on a model that breaks this point of it, and passes on one that does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError
from graphcaps.nn import cross_entropy
from graphcaps.nn.graph_model import GraphModel
from graphcaps.ops.ragged.tiles import segment_sum
from graphcaps.registry import MODELS, Choices, Interval, RegisteredModel, ScoreKind
from graphcaps.testing import ContractError, check_model, model_checks
from graphcaps.types import GraphBatch, LossOptions, LossTerms, ModelOutput


class Good(GraphModel):
    """A linear map of the sum over nodes."""

    scores: ClassVar[ScoreKind] = "logits"
    reference: ClassVar[str] = "none, a model of the tests"
    searched: ClassVar[Mapping[str, Choices | Interval]] = {"scale": Interval(0.5, 2.0)}
    capturable: bool = True

    def __init__(
        self, in_channels: int, num_classes: int, *, scale: float = 1.0, lead: tuple[int, ...] = ()
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        if scale <= 0:
            raise ArgumentError("Good", "scale", "be positive", scale)
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(*lead, in_channels, num_classes))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)

    def rows(self, batch: GraphBatch) -> Tensor:
        mask = batch.segments.row_mask
        return batch.x if mask is None else batch.x.masked_fill(~mask.unsqueeze(-1), 0)

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        return ModelOutput(self.scale * segment_sum(self.rows(batch), batch.segments) @ self.weight)

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        loss = cross_entropy(output.class_scores, y, options.class_weight, options.graph_weight)
        return LossTerms(loss, {"cross-entropy": loss})


class NoSentence(Good):
    """a model"""


class BadRange(Good):
    """Searches values that it refuses."""

    searched: ClassVar[Mapping[str, Choices | Interval]] = {"scale": Choices((1.0, -1.0))}


class TakesAnything(Good):
    """Accepts options that it does not have."""

    def __init__(self, in_channels: int, num_classes: int, *, lead: tuple[int, ...] = (), **options: Any):
        super().__init__(in_channels, num_classes, lead=lead)


class ForgetsLead(Good):
    """Does not know its own leading axes."""

    def __init__(self, in_channels: int, num_classes: int, *, lead: tuple[int, ...] = ()) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        self.lead = ()


class SinglePrecision(Good):
    """Computes in float32."""

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        return ModelOutput(super().forward_batch(batch, y).class_scores.float())


class NotProbabilities(Good):
    """Calls its logits probabilities."""

    scores: ClassVar[ScoreKind] = "probabilities"


class OtherCall(Good):
    """Classifies differently when it is called."""

    def forward(self, *arguments: Any, **keywords: Any) -> ModelOutput:
        return ModelOutput(super().forward(*arguments, **keywords).class_scores + 1)


class UnusedParameter(Good):
    """Has a parameter without a gradient."""

    def __init__(self, in_channels: int, num_classes: int, *, lead: tuple[int, ...] = ()) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        self.unused = nn.Parameter(torch.zeros(*lead, 1))


class IgnoresClassWeight(Good):
    """Ignores the weights of classes."""

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        return super().loss(output, y)


class IgnoresGraphWeight(Good):
    """Ignores the weights of graphs."""

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        return super().loss(output, y, LossOptions(class_weight=options.class_weight))


class NoReset(Good):
    """Keeps its weights when they are reset."""

    def reset_parameters(self) -> None:
        if not bool(self.weight.eq(7.0).any() | self.weight.eq(8.0).any()):
            super().reset_parameters()


class NormalisesBatch(Good):
    """Subtracts the mean score of the batch."""

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        scores = super().forward_batch(batch, y).class_scores
        return ModelOutput(scores - scores.mean(-2, keepdim=True))


class NodeOrder(Good):
    """Weights nodes by their position."""

    def rows(self, batch: GraphBatch) -> Tensor:
        x = super().rows(batch)
        position = torch.arange(x.size(-2), device=x.device)
        return x * (position - batch.segments.ptr[..., :-1].max() / 2).unsqueeze(-1).cos().to(x.dtype)


class AddsEdgeWeights(Good):
    """Adds the mean edge weight to the scores."""

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        scores = super().forward_batch(batch, y).class_scores
        return ModelOutput(scores if batch.edges.weight is None else scores + batch.edges.weight.mean())


class ReadsPadding(Good):
    """Sums over all rows."""

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        scores = super().forward_batch(batch, y).class_scores
        return ModelOutput(scores + 0 * batch.x.sum())


class MixesReplicas(Good):
    """Uses the weights of the first replica for all of them."""

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        weight = self.weight[:1] if self.lead else self.weight
        return ModelOutput(
            segment_sum(self.rows(batch), batch.segments) @ weight
            + 0 * self.weight.sum((-1, -2), keepdim=True)
        )


class Ascends(Good):
    """Minimises the negative loss."""

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        terms = super().loss(output, y, options)
        flipped = 2 * terms.total.detach() - terms.total  # the same value, the opposite gradient
        return LossTerms(flipped, terms.terms)


class CountsRows(Good):
    """Depends on the number of rows, which padding changes, and claims to be capturable."""

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        scores = super().forward_batch(batch, y).class_scores
        bucketed = self.training and batch.segments.padded and batch.x.size(-2) % 8 == 0
        return ModelOutput(scores * 2 if bucketed else scores)


class ForgetsWeights(Good):
    """Does not save all that it needs."""

    def __init__(self, in_channels: int, num_classes: int, *, lead: tuple[int, ...] = ()) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        self.shift = torch.randn(num_classes, dtype=torch.float64)

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        scores = super().forward_batch(batch, y).class_scores
        return ModelOutput(scores + self.shift.to(scores))


class AveragesNumbers(Good):
    """Takes one number per replica, and uses their mean."""

    replica_options: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(
        self, in_channels: int, num_classes: int, *, scale: float | Tensor = 1.0, lead: tuple[int, ...] = ()
    ) -> None:
        mean = float(torch.as_tensor(scale).mean())
        super().__init__(in_channels, num_classes, scale=mean, lead=lead)


BROKEN: dict[str, tuple[type[RegisteredModel], str]] = {
    "description": (NoSentence, "must be a sentence"),
    "unknown-options": (TakesAnything, "must be refused"),
    "pickling": (ForgetsLead, "lead"),
    "scores": (SinglePrecision, "must give float64"),
    "call": (OtherCall, "the scores of a call"),
    "gradients": (UnusedParameter, "'unused' must have a gradient"),
    "loss": (IgnoresClassWeight, "class with weight 0"),
    "sample-weight": (IgnoresGraphWeight, "graphs of weight 0 must have no gradient"),
    "reset": (NoReset, "after reset_parameters"),
    "batch": (NormalisesBatch, "alone and in a batch"),
    "node-order": (NodeOrder, "other node orders"),
    "edge-weights": (AddsEdgeWeights, "edge weights of 1"),
    "padding": (ReadsPadding, "beside padding"),
    "replicas": (MixesReplicas, "of replica"),
    "replica-options": (AveragesNumbers, "of a replica with the numbers"),
    "training": (MixesReplicas, "trained together and alone"),
    "learning": (Ascends, "must lower the loss"),
    "capture": (CountsRows, "trained with steps"),
    "file": (ForgetsWeights, "the probabilities of a loaded model must be equal"),
}


def register(monkeypatch: pytest.MonkeyPatch, model: type[RegisteredModel]) -> None:
    monkeypatch.setitem(MODELS._models, "tested", model)


def test_a_model_that_follows_the_contract_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Good)
    assert set(model_checks("tested")) == set(BROKEN)
    check_model("tested")
    check_model("tested", {"scale": 1.5})


@pytest.mark.parametrize("check", BROKEN)
def test_each_check_finds_what_it_looks_for(monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    model, problem = BROKEN[check]
    register(monkeypatch, model)
    with pytest.raises(ContractError, match=problem):
        model_checks("tested")[check]()


def test_a_range_of_refused_values_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, BadRange)
    with pytest.raises(ArgumentError, match="be positive, got -1"):
        model_checks("tested")["description"]()


def test_scores_must_be_what_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, NotProbabilities)
    with pytest.raises(
        ContractError, match=r"^model 'tested', check 'scores': probabilities must not be negative"
    ):
        check_model("tested")
