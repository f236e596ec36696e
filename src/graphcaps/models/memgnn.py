"""Memory-based graph neural network (MemGNN)."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, cast

from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from graphcaps.errors import check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.gat_conv import ReplicaGATConv
from graphcaps.nn.memory_network import SLOPE, MemoryNetwork
from graphcaps.nn.memory_pooling import KeyGradient
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.edge_kinds import check_edge_kinds
from graphcaps.registry import MODELS
from graphcaps.types import GraphBatch

__all__ = ["MemGNN"]


@MODELS.register("memgnn")
class MemGNN(MemoryNetwork):
    r"""Classifies graphs with memory layers over the result of graph attention layers.

    Memory-based graph neural network (ICLR 2020, https://arxiv.org/abs/2002.09518). The queries of the nodes are the
    result of L graph attention layers (:class:`graphcaps.nn.ReplicaGATConv`), whose attention depends on the labels of
    the edges:

    .. math:: Q \leftarrow \mathrm{LeakyReLU}\big(\mathrm{dropout}(\mathrm{GAT}(A, Q))\big)

    The memory layers and the loss are those of :class:`graphcaps.nn.MemoryNetwork`. Edge weights multiply the messages.

    No program was published for this network, which the authors' program has in the form of :class:`GMN` only. Not
    published are the number of attention layers and their heads: here two of one head. Sizes are those of GMN. A
    BatchNorm scales the input columns. The divergence is part of every step, and it alone moves the keys.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of features of a query. (default: 64)
        num_layers (int): Number of attention layers L. (default: 2)
        num_keys (tuple): Number of keys of each memory layer. (default: (10,))
        heads (int): Number of heads of each memory layer. (default: 5)
        divergence_weight (float): Weight of the divergence in the loss. (default: 0.01)
        key_gradient (str): Which losses move the keys: ``"divergence"`` or ``"all"``. (default: "divergence")
        dropout (float): Dropout probability before every LeakyReLU. (default: 0.1)
        edge_kinds (tuple): Number of values of each edge label column that the attention reads. (default: (), none)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If an option is out of range.
    """

    reference: ClassVar[str] = "Memory-Based Graph Networks, ICLR 2020, https://arxiv.org/abs/2002.09518"

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 64,
        num_layers: int = 2,
        num_keys: tuple[int, ...] = (10,),
        heads: int = 5,
        divergence_weight: float = 0.01,
        key_gradient: KeyGradient = "divergence",
        dropout: float = 0.1,
        edge_kinds: tuple[int, ...] = (),
        lead: tuple[int, ...] = (),
    ) -> None:
        check_at_least("MemGNN", 1, hidden=hidden, num_layers=num_layers)
        super().__init__(
            in_channels, num_classes, query_channels=hidden, num_keys=num_keys, heads=heads,
            divergence_weight=divergence_weight, key_gradient=key_gradient, dropout=dropout, lead=lead,
        )  # fmt: skip
        self.edge_kinds = check_edge_kinds("MemGNN", edge_kinds)
        self.input_norm = RaggedBatchNorm(in_channels, lead=lead)
        widths = [in_channels] + [hidden] * num_layers
        self.convs = nn.ModuleList(
            ReplicaGATConv(a, b, edge_kinds=self.edge_kinds, negative_slope=SLOPE, lead=lead)
            for a, b in pairwise(widths)
        )
        self.capturable = all(cast(ReplicaGATConv, conv).capturable for conv in self.convs)
        self.query_dropouts = nn.ModuleList(ReplicaDropout(dropout, lead=lead) for _ in self.convs)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for part in (self.input_norm, *self.convs, *self.query_dropouts):
            part.reset_parameters()

    def queries(self, batch: GraphBatch) -> Tensor:
        edges, segments, mask = batch.edges, batch.segments, batch.segments.row_mask
        q: Tensor = self.input_norm(self.node_features(batch), mask)
        for conv, dropout in zip(self.convs, self.query_dropouts, strict=True):
            q = leaky_relu(dropout(conv(q, edges, segments), mask), SLOPE)
        return q
