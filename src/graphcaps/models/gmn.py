"""Graph memory network (GMN)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from graphcaps.data.structures.restart_walks import RestartWalks
from graphcaps.errors import check_at_least, check_probability
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.memory_network import SLOPE, MemoryNetwork
from graphcaps.nn.memory_pooling import KeyGradient
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.registry import MODELS, DataOption
from graphcaps.types import GraphBatch

__all__ = ["GMN"]

_MOST_COLUMNS = 128
"""Largest number of walk columns that is derived from the data."""


@MODELS.register("gmn")
class GMN(MemoryNetwork):
    r"""Classifies graphs with memory layers over node features and random walks, without message passing.

    Graph memory network (ICLR 2020, https://arxiv.org/abs/2002.09518). The query of a node joins its features x with
    the largest entries r of its row of a random walk with restart, in descending order
    (:mod:`graphcaps.data.structures.restart_walks`):

    .. math:: q = \big[\phi(\phi(x W_1 + e_1) W_2 + e_2) \,\|\, \phi(r W_3 + e_3)\big], \quad
        \phi = \mathrm{LeakyReLU} \circ \mathrm{dropout}

    The memory layers and the loss are those of :class:`graphcaps.nn.MemoryNetwork`. The network reads edges through the
    walks only, which ignore edge weights. Edge labels are not read, only as counts in the features.

    Differs from the published program: a BatchNorm scales features and walk columns; the program standardises features
    beforehand. At most 128 entries of a row of the walk are kept; the program keeps as many as the largest graph has
    nodes and leaves out graphs of more than 1000. The divergence is part of every step, with a small weight; the
    program takes one step along it every five epochs. In both, it alone moves the keys. Gradients are not clipped. The
    last layer of the program, of one key, is the mean over the keys of the layer before.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Width of the first layer over features; the second one has half of it. (default: 64)
        position_channels (int): Number of columns of a query that come from the walk. (default: 16)
        walk_columns (int): Number of entries r of a row of the walk; from the data, the number of nodes of the largest
            graph, at most 128. (default: 32)
        step_probability (float): Probability of a walk to take one more step. (default: 0.1)
        num_keys (tuple): Number of keys of each memory layer. (default: (10,))
        heads (int): Number of heads of each memory layer. (default: 5)
        divergence_weight (float): Weight of the divergence in the loss. (default: 0.01)
        key_gradient (str): Which losses move the keys: ``"divergence"`` or ``"all"``. (default: "divergence")
        dropout (float): Dropout probability before every LeakyReLU. (default: 0.1)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If an option is out of range.
    """

    export_formats: ClassVar[tuple[str, ...]] = ()  # columns that are precomputed from the graph
    reference: ClassVar[str] = "Memory-Based Graph Networks, ICLR 2020, https://arxiv.org/abs/2002.09518"
    data_options: ClassVar[Mapping[str, DataOption]] = {
        "walk_columns": DataOption(
            lambda size: min(size.max_nodes, _MOST_COLUMNS), kept=True, by_default=True
        ),
    }

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 64,
        position_channels: int = 16,
        walk_columns: int = 32,
        step_probability: float = 0.1,
        num_keys: tuple[int, ...] = (10,),
        heads: int = 5,
        divergence_weight: float = 0.01,
        key_gradient: KeyGradient = "divergence",
        dropout: float = 0.1,
        lead: tuple[int, ...] = (),
    ) -> None:
        check_at_least("GMN", 2, hidden=hidden)
        check_at_least("GMN", 1, position_channels=position_channels, walk_columns=walk_columns)
        check_probability("GMN", step_probability=step_probability)
        half = hidden // 2
        super().__init__(
            in_channels, num_classes, query_channels=half + position_channels, num_keys=num_keys, heads=heads,
            divergence_weight=divergence_weight, key_gradient=key_gradient, dropout=dropout, lead=lead,
        )  # fmt: skip
        self.walk_columns, self.step_probability = walk_columns, step_probability
        self.input_norm = RaggedBatchNorm(in_channels + walk_columns, lead=lead)
        self.first = ReplicaLinear(in_channels, hidden, lead=lead)
        self.second = ReplicaLinear(hidden, half, lead=lead)
        self.position = ReplicaLinear(walk_columns, position_channels, lead=lead)
        self.inner_dropout = ReplicaDropout(dropout, lead=lead)
        self.query_dropout = ReplicaDropout(dropout, lead=lead)

    @property
    def precomputation(self) -> RestartWalks:
        return RestartWalks(self.walk_columns, self.step_probability)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for part in (self.input_norm, self.first, self.second, self.position):
            part.reset_parameters()
        for dropout in (self.inner_dropout, self.query_dropout):
            dropout.reset_parameters()

    def queries(self, batch: GraphBatch) -> Tensor:
        x, mask = self.node_features(batch), batch.segments.row_mask
        assert batch.columns is not None  # node_features checks it
        columns = torch.cat([x, batch.columns.to(x.dtype)], -1)
        x, walks = self.input_norm(columns, mask).split([self.in_channels, self.walk_columns], -1)
        h = leaky_relu(self.inner_dropout(self.first(x), mask), SLOPE)
        joined = torch.cat([self.second(h), self.position(walks)], -1)
        return leaky_relu(self.query_dropout(joined, mask), SLOPE)
