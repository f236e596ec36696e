"""Graph convolution for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.initialise import glorot_
from graphcaps.ops.propagation.propagation import propagate
from graphcaps.types import EdgeTable, Segments

__all__ = ["ReplicaGCNConv"]


class ReplicaGCNConv(GraphLayer[Tensor]):
    r"""Graph convolution with separate weights for each replica.

    Graph Convolutional Network (ICLR 2017, https://arxiv.org/abs/1609.02907):

    .. math:: x' = \hat A x W + e, \quad \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}, \quad
        \tilde D_{ii} = 1 + \sum_j A_{ij}

    For one replica it equals :class:`torch_geometric.nn.GCNConv`, whose weight is :math:`W^\top`, on undirected graphs
    without self-loops and with edge weights of at least 0.

    Args:
        in_channels (int): Number of input features.
        out_channels (int): Number of output features.
        bias (bool): Whether :math:`e` is added. (default: True)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: ``[*lead, V, out_channels]``.

    Raises:
        ShapeError: If ``x`` has another number of columns than ``in_channels``.

    Example:
        >>> ReplicaGCNConv(5, 3)(torch.rand(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 3])
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, bias: bool = True, lead: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.lead = in_channels, out_channels, lead
        self.weight = nn.Parameter(torch.empty(*lead, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(*lead, out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.weight, self.in_channels, self.out_channels)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward_ragged(
        self, x: Tensor, edges: EdgeTable, segments: Segments, scale: Tensor | None = None
    ) -> Tensor:
        """Convolves ``x [*lead, V, in_channels]``.

        With the ``scale`` of :func:`graphcaps.ops.induced_scale`, it is the convolution on a subgraph.
        """
        # Â(xW) = (Âx)W: the hop is taken where rows are shorter.
        if self.in_channels < self.out_channels:
            y = propagate(x, edges, scale) @ self.weight
        else:
            y = propagate(x @ self.weight, edges, scale)
        return y if self.bias is None else y + self.bias.unsqueeze(-2)

    def extra_repr(self) -> str:
        shown = f"{self.in_channels}, {self.out_channels}" + ("" if self.bias is not None else ", bias=False")
        return shown + (f", lead={self.lead}" if self.lead else "")
