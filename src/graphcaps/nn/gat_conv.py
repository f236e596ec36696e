"""Graph attention layer for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.initialise import glorot_
from graphcaps.ops._triton.dispatch import WIDEST_ATTENTION
from graphcaps.ops.edge_kinds import check_edge_kinds
from graphcaps.ops.propagation.edge_attention import edge_attention
from graphcaps.ops.propagation.modulated_hop import kind_table
from graphcaps.types import EdgeTable, Segments

__all__ = ["ReplicaGATConv"]


class ReplicaGATConv(GraphLayer[Tensor]):
    r"""Attention over a node and its neighbours, with separate weights for each replica.

    Graph attention network (ICLR 2018, https://arxiv.org/abs/1710.10903) with one head and edge labels:

    .. math::
        h = x W, \quad x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} h_j + e, \quad
        \alpha_{ij} = \mathrm{softmax}_j \, \mathrm{LeakyReLU}
        \Big(h_i \cdot a + h_j \cdot b + \sum_c w_{c, k_c(ij)}\Big)

    where :math:`k_c(ij)` is the value of the edge in label column c. For one replica it equals
    :class:`torch_geometric.nn.GATConv`, whose edge attributes are one-hot labels, all 0 for self-loops. A label that
    training did not have adds nothing. Edge weights, if there are any, multiply the messages.

    Args:
        in_channels (int): Number of input features.
        out_channels (int): Number of output features.
        edge_kinds (tuple or int): Number of values of each edge label column. (default: (), labels are not read)
        negative_slope (float): Slope of the LeakyReLU below 0. (default: 0.2)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: ``[*lead, V, out_channels]``.

    Example:
        >>> ReplicaGATConv(5, 3)(torch.rand(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        edge_kinds: int | tuple[int, ...] = (),
        negative_slope: float = 0.2,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.lead = in_channels, out_channels, lead
        self.edge_kinds = check_edge_kinds("ReplicaGATConv", edge_kinds)
        self.negative_slope = negative_slope
        self.weight = nn.Parameter(torch.empty(*lead, in_channels, out_channels))
        self.attention = nn.Parameter(torch.empty(*lead, out_channels, 2))  # columns a and b
        labels = sum(self.edge_kinds)
        self.label = nn.Parameter(torch.empty(*lead, labels, 1)) if labels else None
        self.bias = nn.Parameter(torch.empty(*lead, out_channels))
        self.reset_parameters()

    @property
    def capturable(self) -> bool:
        """Whether a training step can be captured as a CUDA graph: attention over rows that its kernel does not take
        synchronises with the host."""
        return self.out_channels <= WIDEST_ATTENTION

    def reset_parameters(self) -> None:
        glorot_(self.weight, self.in_channels, self.out_channels)
        glorot_(self.attention, self.out_channels, 1)
        if self.label is not None:
            nn.init.zeros_(self.label)
        nn.init.zeros_(self.bias)

    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """Convolves ``x [*lead, V, in_channels]``."""
        h = x @ self.weight
        centre, member = (h @ self.attention).unbind(-1)
        label = None if self.label is None else kind_table(self.label, self.edge_kinds).squeeze(-1)
        y = edge_attention(h, centre, member, edges, label, self.negative_slope)
        return y + self.bias.unsqueeze(-2)

    def extra_repr(self) -> str:
        shown = f"{self.in_channels}, {self.out_channels}"
        shown += f", edge_kinds={self.edge_kinds}" if self.edge_kinds else ""
        return shown + (f", lead={self.lead}" if self.lead else "")
