"""The network of Chen, Bian and Sun for whole graphs, with any layer in the middle."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from graphcaps.errors import check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.initialise import glorot_
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.pooling import sum_pool
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.registry import Choices, Interval
from graphcaps.types import EdgeTable, GraphBatch, ModelOutput, Segments

__all__ = ["ConvClassifier"]

_INITIAL_SHIFT = 1e-4
"""Initial :math:`\\beta` of every BatchNorm, as in the program of Chen et al."""


class ConvClassifier(LogitModel):
    r"""A classifier of graphs from layers of one kind, which a subclass names.

    The network of Chen, Bian and Sun (https://arxiv.org/abs/1905.04579), whose results with graph convolutions the HGCN
    paper quotes:

    .. math::
        H^{(0)} &= \mathrm{ReLU}(\mathrm{BN}(X) W_0), \quad
        H^{(l+1)} = \mathrm{ReLU}\big(\mathrm{layer}_l(\mathrm{BN}(H^{(l)}))\big), \quad
        g = \sum_i H^{(L)}_i, \\
        z &= \mathrm{BN}\big(\mathrm{ReLU}(\mathrm{BN}(g) W + e)\big) W' + e'

    with logits :math:`z`. The weight :math:`W_0` is drawn by Glorot's rule, and the shift of every BatchNorm starts at
    0.0001, as in their program. Trained with cross-entropy.

    A subclass implements :meth:`make_layer`, and :meth:`apply_layer` if its layers are not called with edges.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 128)
        num_layers (int): Number of layers L. (default: 3)
        dropout (float): Dropout probability before the last linear layer. (default: 0.0)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If a size is below 1, or the dropout probability is not in [0, 1).

    Example:
        >>> class Convolutions(ConvClassifier):
        ...     def make_layer(self, hidden, lead):
        ...         return ReplicaGCNConv(hidden, hidden, lead=lead)
        >>> path = torch.tensor([[0, 1], [1, 2]])
        >>> Convolutions(4, 2, hidden=8)(torch.rand(3, 4), path).class_scores.shape
        torch.Size([1, 2])
    """

    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden",)
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 64, 128)),
        "num_layers": Interval(2, 5),
        "dropout": Interval(0.0, 0.7),
    }
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 128,
        num_layers: int = 3,
        dropout: float = 0.0,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least(type(self).__name__, 1, hidden=hidden, num_layers=num_layers)
        self.input_norm = RaggedBatchNorm(in_channels, lead=lead)
        self.input = ReplicaLinear(in_channels, hidden, bias=False, lead=lead)
        self.norms = nn.ModuleList(RaggedBatchNorm(hidden, lead=lead) for _ in range(num_layers))
        self.convs = nn.ModuleList(self.make_layer(hidden, lead) for _ in range(num_layers))
        self.inner_norm = RaggedBatchNorm(hidden, lead=lead)
        self.inner = ReplicaLinear(hidden, hidden, lead=lead)
        self.outer_norm = RaggedBatchNorm(hidden, lead=lead)
        self.outer = ReplicaLinear(hidden, num_classes, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)
        self.reset_parameters()

    @abstractmethod
    def make_layer(self, hidden: int, lead: tuple[int, ...]) -> nn.Module:
        """A layer from ``hidden`` to ``hidden`` features, with ``reset_parameters``."""

    def apply_layer(self, layer: nn.Module, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """The result of a layer for the nodes of a batch, ``[*lead, V, hidden]``."""
        y: Tensor = layer(x, edges, segments)
        return y

    def reset_parameters(self) -> None:
        for part in (self.input, *self.convs, self.inner, self.outer, self.dropout):
            part.reset_parameters()
        glorot_(self.input.weight, self.input.in_channels, self.input.out_channels)
        for norm in (self.input_norm, *self.norms, self.inner_norm, self.outer_norm):
            norm.reset_parameters()
            nn.init.constant_(norm.bias, _INITIAL_SHIFT)

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        edges, segments = batch.edges, batch.segments
        x = self.input_norm(self.node_features(batch), segments.row_mask)
        x = self.input(x).relu()
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = self.apply_layer(conv, norm(x, segments.row_mask), edges, segments).relu()
        mask = segments.graph_mask
        g = self.inner(self.inner_norm(sum_pool(x, segments), mask)).relu()
        return ModelOutput(self.outer(self.dropout(self.outer_norm(g, mask), mask)))
