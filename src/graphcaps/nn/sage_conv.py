"""GraphSAGE layer for one model or many."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.propagation.propagation import neighbour_mean, neighbour_sum
from graphcaps.types import EdgeTable, Segments

__all__ = ["Aggregation", "ReplicaSAGEConv"]

Aggregation = Literal["mean", "sum"]


class ReplicaSAGEConv(GraphLayer[Tensor]):
    r"""Mean over neighbours and the node's own features, with separate weights for each replica.

    GraphSAGE (NeurIPS 2017, https://arxiv.org/abs/1706.02216):

    .. math:: x'_i = \Big(\frac{1}{|N(i)|} \sum_{j \in N(i)} x_j\Big) W_1 + e + x_i W_2

    For one replica it equals :class:`torch_geometric.nn.SAGEConv` on undirected graphs without self-loops; a node
    without neighbours has the mean 0. Edge weights, if there are any, multiply the rows of neighbours, and the divisor
    stays the number of neighbours, as in :class:`torch_geometric.nn.GraphConv`.

    Args:
        in_channels (int): Number of input features.
        out_channels (int): Number of output features.
        aggregation (str): ``"mean"``, or ``"sum"`` without the divisor. (default: "mean")
        normalize (bool): Whether each row of the result is divided by its Euclidean norm. (default: False)
        root_weight (bool): Whether :math:`x_i W_2` is added. (default: True)
        bias (bool): Whether :math:`e` is added. (default: True)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: ``[*lead, V, out_channels]``.

    Raises:
        ShapeError: If ``x`` has another number of columns than ``in_channels``.

    Example:
        >>> ReplicaSAGEConv(5, 3)(torch.rand(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        aggregation: Aggregation = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        bias: bool = True,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        if aggregation not in get_args(Aggregation):
            raise ArgumentError("ReplicaSAGEConv", "aggregation", "be 'mean' or 'sum'", repr(aggregation))
        self.in_channels, self.out_channels, self.lead = in_channels, out_channels, lead
        self.aggregation, self.normalize = aggregation, normalize
        self.neighbours = ReplicaLinear(in_channels, out_channels, bias=bias, lead=lead)
        self.root = ReplicaLinear(in_channels, out_channels, bias=False, lead=lead) if root_weight else None

    def reset_parameters(self) -> None:
        self.neighbours.reset_parameters()
        if self.root is not None:
            self.root.reset_parameters()

    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """Convolves ``x [*lead, V, in_channels]``."""
        aggregate = neighbour_mean if self.aggregation == "mean" else neighbour_sum
        y: Tensor = self.neighbours(aggregate(x, edges))
        if self.root is not None:
            y = y + self.root(x)
        return torch.nn.functional.normalize(y, dim=-1) if self.normalize else y

    def extra_repr(self) -> str:
        shown = f"{self.in_channels}, {self.out_channels}, aggregation='{self.aggregation}'"
        return shown + (f", lead={self.lead}" if self.lead else "")
