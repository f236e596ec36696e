"""Graph isomorphism layer for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.initialise import linear_
from graphcaps.nn.replica_mlp import ReplicaMLP
from graphcaps.ops.edge_kinds import check_edge_kinds
from graphcaps.ops.propagation.edge_relu_sum import edge_relu_sum
from graphcaps.ops.propagation.propagation import neighbour_sum
from graphcaps.types import EdgeTable, Segments

__all__ = ["ReplicaGINConv"]


class ReplicaGINConv(GraphLayer[Tensor]):
    r"""Sum over neighbours followed by an MLP, with separate weights for each replica.

    Graph Isomorphism Network (ICLR 2019, https://arxiv.org/abs/1810.00826):

    .. math:: x'_i = \mathrm{MLP}\Big((1 + \epsilon)\, x_i + \sum_{j \in N(i)} x_j\Big)

    For one replica it equals :class:`torch_geometric.nn.GINConv` on undirected graphs without self-loops. Edge weights,
    if there are any, multiply the messages.

    With edge labels it is GINE (ICLR 2020, https://arxiv.org/abs/1905.12265), whose messages are

    .. math:: \mathrm{ReLU}\Big(x_j + e + \sum_c w_{c, k_c(ij)}\Big)

    in place of :math:`x_j`, where :math:`k_c(ij)` is the value of the edge in label column c. It then equals
    :class:`torch_geometric.nn.GINEConv`, whose edge attributes are one-hot labels. A label that training did not have
    adds nothing.

    Args:
        mlp (ReplicaMLP): The MLP; its leading axes are those of the layer.
        epsilon (float): Initial value of :math:`\epsilon`. (default: 0.0)
        train_epsilon (bool): Whether :math:`\epsilon` is trained. (default: False)
        edge_kinds (tuple or int): Number of values of each edge label column. (default: (), labels are not read)

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

    def __init__(
        self,
        mlp: ReplicaMLP,
        *,
        epsilon: float = 0.0,
        train_epsilon: bool = False,
        edge_kinds: int | tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.mlp, self.in_channels, self.lead = mlp, mlp.in_channels, mlp.lead
        self.initial_epsilon = epsilon
        start = torch.full((*mlp.lead, 1, 1), epsilon)
        if train_epsilon:
            self.epsilon = nn.Parameter(start)
        else:
            self.register_buffer("epsilon", start)
        self.edge_kinds = check_edge_kinds("ReplicaGINConv", edge_kinds)
        self.label: nn.Parameter | None = None
        self.label_bias: nn.Parameter | None = None
        if self.edge_kinds:
            self.label = nn.Parameter(torch.empty(*mlp.lead, sum(self.edge_kinds), mlp.in_channels))
            self.label_bias = nn.Parameter(torch.empty(*mlp.lead, mlp.in_channels))
            self._reset_labels()

    def reset_parameters(self) -> None:
        self.mlp.reset_parameters()
        nn.init.constant_(self.epsilon, self.initial_epsilon)
        self._reset_labels()

    def _reset_labels(self) -> None:
        for part in (self.label, self.label_bias):
            if part is not None:
                linear_(part, sum(self.edge_kinds))

    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """Convolves ``x [*lead, V, mlp.in_channels]``."""
        h: Tensor = self.mlp((1 + self.epsilon) * x + self._messages(x, edges), segments.row_mask)
        return h

    def _messages(self, x: Tensor, edges: EdgeTable) -> Tensor:
        """Sum of the messages to each node, ``[*lead, V, mlp.in_channels]``."""
        if self.label is None or self.label_bias is None:
            return neighbour_sum(x, edges)
        return edge_relu_sum(x + self.label_bias.unsqueeze(-2), self.label, edges, self.edge_kinds)

    def extra_repr(self) -> str:
        shown = [f"edge_kinds={self.edge_kinds}"] if self.edge_kinds else []
        return ", ".join([*shown, f"lead={self.lead}"] if self.lead else shown)
