"""Graph isomorphism layer for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.replica_mlp import ReplicaMLP
from graphcaps.ops.propagation.propagation import neighbour_sum
from graphcaps.types import EdgeTable, Segments

__all__ = ["ReplicaGINConv"]


class ReplicaGINConv(GraphLayer[Tensor]):
    r"""Sum over neighbours followed by an MLP, with separate weights for each replica.

    Graph Isomorphism Network (ICLR 2019, https://arxiv.org/abs/1810.00826):

    .. math:: x'_i = \mathrm{MLP}\Big((1 + \epsilon)\, x_i + \sum_{j \in N(i)} x_j\Big)

    For one replica it equals :class:`torch_geometric.nn.GINConv` on undirected graphs without self-loops. Edge weights,
    if there are any, multiply the rows of neighbours.

    Args:
        mlp (ReplicaMLP): The MLP; its leading axes are those of the layer.
        epsilon (float): Initial value of :math:`\epsilon`. (default: 0.0)
        train_epsilon (bool): Whether :math:`\epsilon` is trained. (default: False)

    Returns (from ``forward``):
        Tensor: ``[*lead, V, mlp.out_channels]``.

    Raises:
        ShapeError: If ``x`` has another number of columns than ``mlp.in_channels``.

    Example:
        >>> layer = ReplicaGINConv(ReplicaMLP([5, 16, 3]))
        >>> layer(torch.rand(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 3])
    """

    epsilon: Tensor

    def __init__(self, mlp: ReplicaMLP, *, epsilon: float = 0.0, train_epsilon: bool = False) -> None:
        super().__init__()
        self.mlp, self.in_channels, self.lead = mlp, mlp.in_channels, mlp.lead
        self.initial_epsilon = epsilon
        start = torch.full((*mlp.lead, 1, 1), epsilon)
        if train_epsilon:
            self.epsilon = nn.Parameter(start)
        else:
            self.register_buffer("epsilon", start)

    def reset_parameters(self) -> None:
        self.mlp.reset_parameters()
        nn.init.constant_(self.epsilon, self.initial_epsilon)

    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """Convolves ``x [*lead, V, mlp.in_channels]``."""
        h: Tensor = self.mlp((1 + self.epsilon) * x + neighbour_sum(x, edges), segments.row_mask)
        return h

    def extra_repr(self) -> str:
        return f"lead={self.lead}" if self.lead else ""
