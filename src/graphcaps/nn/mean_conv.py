"""Mean over a node and its neighbours, for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.memo import remember
from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.initialise import glorot_
from graphcaps.ops.propagation.propagation import degrees, neighbour_sum
from graphcaps.types import EdgeTable, Segments

__all__ = ["ReplicaMeanConv"]


class ReplicaMeanConv(GraphLayer[Tensor]):
    r"""Graph convolution with rows that are divided by degree plus one, with separate weights for each replica.

    The convolution of DGCNN (AAAI 2018) before its tanh:

    .. math:: x' = \tilde D^{-1} \big((A + I) x W + e\big), \quad \tilde D_{ii} = 1 + \sum_j A_{ij}

    As in the authors' program, :math:`e` is divided too. Edge weights enter A; a sum below 1 divides by 1.

    Args:
        in_channels (int): Number of input features.
        out_channels (int): Number of output features.
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: ``[*lead, V, out_channels]``.

    Raises:
        ShapeError: If ``x`` has another number of columns than ``in_channels``.

    Example:
        >>> ReplicaMeanConv(5, 3)(torch.rand(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 3])
    """

    def __init__(self, in_channels: int, out_channels: int, *, lead: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.lead = in_channels, out_channels, lead
        self.weight = nn.Parameter(torch.empty(*lead, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(*lead, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.weight, self.in_channels, self.out_channels)
        nn.init.zeros_(self.bias)

    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """Convolves ``x [*lead, V, in_channels]``."""
        # The hop is taken where rows are shorter.
        if self.in_channels < self.out_channels:
            y = neighbour_sum(x, edges, with_self=True) @ self.weight
        else:
            y = neighbour_sum(x @ self.weight, edges, with_self=True)
        return (y + self.bias.unsqueeze(-2)) / _divisor(edges, y.dtype)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}" + (f", lead={self.lead}" if self.lead else "")


def _divisor(edges: EdgeTable, dtype: torch.dtype) -> Tensor:
    """Degree plus one of each row, ``[*lead, V, 1]``, cached for the batch if there are no weights."""

    def make() -> Tensor:
        return (degrees(edges).to(dtype) + 1).clamp_min(1).unsqueeze(-1)

    return remember(edges.memo, ("degree plus one", dtype), make) if edges.weight is None else make()
