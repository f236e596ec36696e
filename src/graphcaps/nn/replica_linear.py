"""Linear maps for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.errors import ShapeError
from graphcaps.nn.initialise import linear_

__all__ = ["ReplicaLinear"]


class ReplicaLinear(nn.Module):
    r"""A linear map with separate weights for each replica.

    .. math:: y = x W + e

    For one replica it equals :class:`torch.nn.Linear`, whose weight is :math:`W^\top`, also in the distribution of the
    initial weights.

    Args:
        in_channels (int): Number of input features.
        out_channels (int): Number of output features.
        bias (bool): Whether :math:`e` is added. (default: True)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: ``[*lead, N, out_channels]``.

    Raises:
        ShapeError: If ``x`` has another number of columns than ``in_channels``.

    Example:
        >>> ReplicaLinear(5, 3, lead=(10,))(torch.rand(10, 7, 5)).shape
        torch.Size([10, 7, 3])
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
        linear_(self.weight, self.in_channels)
        if self.bias is not None:
            linear_(self.bias, self.in_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``x [*lead, N, in_channels]``."""
        if x.size(-1) != self.in_channels:
            raise ShapeError("ReplicaLinear", "x", f"have {self.in_channels} columns", x.size(-1))
        y = x @ self.weight
        return y if self.bias is None else y + self.bias.unsqueeze(-2)

    def extra_repr(self) -> str:
        shown = f"{self.in_channels}, {self.out_channels}" + ("" if self.bias is not None else ", bias=False")
        return shown + (f", lead={self.lead}" if self.lead else "")
