"""Multilayer perceptrons for one model or many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from graphcaps.errors import ArgumentError
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear

__all__ = ["ReplicaMLP"]


class ReplicaMLP(nn.Module):
    r"""A multilayer perceptron with separate weights for each replica.

    .. math:: h \leftarrow \mathrm{dropout}\big(\mathrm{ReLU}(\mathrm{BatchNorm}(h W + e))\big)

    for every layer; the last one is only linear with ``plain_last=True``. For one replica it equals
    :class:`torch_geometric.nn.MLP`.

    Args:
        channels (sequence of int): Number of features before the first layer and after each layer.
        norm (bool): Whether there is a BatchNorm before each ReLU. (default: True)
        dropout (float): Dropout probability. (default: 0.0)
        plain_last (bool): Whether the last layer is only linear. (default: True)
        bias (bool): Whether :math:`e` is added. A BatchNorm that follows cancels it. (default: True)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: ``[*lead, N, channels[-1]]``.

    Example:
        >>> ReplicaMLP([5, 16, 3], dropout=0.5)(torch.rand(7, 5)).shape
        torch.Size([7, 3])
    """

    def __init__(
        self,
        channels: Sequence[int],
        *,
        norm: bool = True,
        dropout: float = 0.0,
        plain_last: bool = True,
        bias: bool = True,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        if len(channels) < 2:
            raise ArgumentError("ReplicaMLP", "channels", "name at least two widths", list(channels))
        self.in_channels, self.out_channels, self.lead = channels[0], channels[-1], lead
        self.linears = nn.ModuleList(ReplicaLinear(a, b, bias=bias, lead=lead) for a, b in pairwise(channels))
        activated = list(channels[1:-1] if plain_last else channels[1:])
        self.norms = nn.ModuleList(RaggedBatchNorm(width, lead=lead) for width in activated) if norm else None
        self.dropouts = nn.ModuleList(ReplicaDropout(dropout, lead=lead) for _ in activated)

    def reset_parameters(self) -> None:
        for part in (*self.linears, *(self.norms or ()), *self.dropouts):
            part.reset_parameters()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Maps ``x [*lead, N, channels[0]]``; ``mask [*lead, N]`` is True at real rows. (default: all are real)

        Rows are the nodes of a batch with ``mask=segments.row_mask``, or its graphs with ``mask=segments.graph_mask``.
        """
        for number, linear in enumerate(self.linears):
            x = linear(x)
            if number < len(self.dropouts):
                if self.norms is not None:
                    x = self.norms[number](x, mask)
                x = self.dropouts[number](x.relu(), mask)
        return x
