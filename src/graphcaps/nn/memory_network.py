"""The part that memory-based graph networks have in common: memory layers over queries of the nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from graphcaps.errors import check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.memory_pooling import KeyGradient, MemoryPooling
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.graph_mean import mean_over_graphs
from graphcaps.registry import Choices, Interval
from graphcaps.types import GraphBatch, LossOptions, LossTerms, ModelOutput

__all__ = ["SLOPE", "MemoryNetwork", "MemoryOutput"]

SLOPE = 0.2
"""Slope of every LeakyReLU below 0, that of the published program."""


@dataclass(frozen=True, repr=False, eq=False)
class MemoryOutput(ModelOutput):
    """Output of a :class:`MemoryNetwork` for a batch.

    Args:
        class_scores (Tensor): Logits, ``[*lead, B, O]``.
        assignments (tuple): Assignment to the keys of each layer: ``[*lead, V, K]`` over nodes,
            ``[*lead, B, K_below, K]`` above.
        divergence (Tensor): Sum over layers of the divergence of the assignment, ``[*lead, B]``.
    """

    assignments: tuple[Tensor, ...]
    divergence: Tensor


class MemoryNetwork(LogitModel):
    r"""Memory layers over queries Q of the nodes, which a subclass computes.

    .. math::
        Q \leftarrow \mathrm{LeakyReLU}\big(\mathrm{dropout}(C^\top Q W)\big), \quad
        z = \frac{1}{K} \sum_k Q_k W' + e

    with the assignment :math:`C` of :class:`graphcaps.nn.MemoryPooling` in every layer, and logits :math:`z`. The loss
    is the cross-entropy plus the weighted divergence of the assignments, as a mean over graphs; see
    :func:`graphcaps.ops.key_assignment.assignment_divergence`.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        query_channels (int): Number of columns of Q.
        num_keys (tuple): Number of keys K of each layer.
        heads (int): Number of heads of each layer.
        divergence_weight (float): Weight of the divergence in the loss.
        key_gradient (str): Which losses move the keys: ``"divergence"`` or ``"all"``.
        dropout (float): Dropout probability in every layer.
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Example:
        >>> from graphcaps.models.memgnn import MemGNN
        >>> path = torch.tensor([[0, 1], [1, 2]])
        >>> MemGNN(4, 2, hidden=8, num_keys=(3,))(torch.rand(3, 4), path)
        MemoryOutput(class_scores=[1, 2], assignments=([3, 3]), divergence=[1])
    """

    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden", "num_keys", "heads")
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 64, 128)),
        "num_keys": Choices(((10,), (32, 8))),
        "dropout": Interval(0.0, 0.5),
    }
    loss_weights: ClassVar[tuple[str, ...]] = ("divergence_weight",)
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        query_channels: int,
        num_keys: tuple[int, ...],
        heads: int,
        divergence_weight: float,
        key_gradient: KeyGradient,
        dropout: float,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        owner = type(self).__name__
        check_at_least(owner, 1, num_keys=num_keys, heads=heads)
        check_at_least(owner, 0, divergence_weight=divergence_weight)
        self.divergence_weight = divergence_weight
        self.memories = nn.ModuleList(
            MemoryPooling(
                query_channels, query_channels, count, heads=heads, key_gradient=key_gradient, lead=lead
            )
            for count in num_keys
        )
        self.dropouts = nn.ModuleList(ReplicaDropout(dropout, lead=lead) for _ in num_keys)
        self.head = ReplicaLinear(query_channels, num_classes, lead=lead)

    @abstractmethod
    def queries(self, batch: GraphBatch) -> Tensor:
        """Queries Q of the nodes of a batch, ``[*lead, V, query_channels]``, without NaN at padding."""

    def reset_parameters(self) -> None:
        for part in (*self.memories, *self.dropouts, self.head):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> MemoryOutput:
        """Logits of the graphs of a batch and the divergence of the assignments; ``y`` is ignored."""
        segments, mask = batch.segments, batch.segments.graph_mask
        assignments, divergences = [], []
        q = self.queries(batch)
        for number, (memory, dropout) in enumerate(zip(self.memories, self.dropouts, strict=True)):
            pooled = memory(q, segments if number == 0 else None)
            assignments.append(pooled.assignment)
            divergences.append(pooled.divergence)
            # One row per graph: the keys of a graph are columns.
            rows = leaky_relu(dropout(pooled.x.flatten(-2), mask), SLOPE)
            q = rows.unflatten(-1, pooled.x.shape[-2:])
        total = sum(divergences[1:], divergences[0])
        return MemoryOutput(self.head(q.mean(-2)), tuple(assignments), total)

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        """Cross-entropy, and the divergence of the assignments unless ``output`` has scores alone."""
        loss = super().loss(output, y, options)
        if not isinstance(output, MemoryOutput):
            return loss
        divergence = mean_over_graphs(output.divergence, y)
        return LossTerms(
            loss.total + self.divergence_weight * divergence, {**loss.terms, "divergence": divergence}
        )
