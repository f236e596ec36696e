"""A hop whose messages depend on the labels of the edges, for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError
from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.ops.edge_kinds import check_edge_kinds
from graphcaps.ops.propagation.modulated_hop import modulated_hop
from graphcaps.types import EdgeTable, Segments

__all__ = ["EdgeModulation"]


class EdgeModulation(GraphLayer[Tensor]):
    r"""One hop along the edges, in which every edge label scales and shifts the messages that pass it.

    .. math::
        y_i = \hat A_{ii} x_i + \sum_{j \ne i} \hat A_{ij} (\gamma_{ij} \odot x_j + \beta_{ij}), \quad
        \gamma_{ij} = 1 + \sum_c \mathrm{scale}_{c, k_c(ij)}, \quad \beta_{ij} = \sum_c \mathrm{shift}_{c, k_c(ij)}

    where :math:`k_c(ij)` is the value of the edge in label column c: a feature-wise linear modulation of the messages
    (https://arxiv.org/abs/1709.07871), with the edge label as condition. Parameters are zero at the start, so that
    the layer begins as the plain hop :math:`\hat A x` (:func:`graphcaps.ops.propagate`). A label that training did not
    have adds nothing.

    Args:
        channels (int): Number of columns of x.
        edge_kinds (tuple or int): Number of values of each edge label column.
        normalised (bool): Whether the hop is that of :math:`\hat A`. Otherwise it is that of :math:`A + I`, a sum over
            the node and its neighbours, as in a graph isomorphism network. (default: True)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: ``[*lead, V, channels]``.

    Example:
        >>> edges, bonds = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([0, 1, 0])
        >>> EdgeModulation(5, edge_kinds=2)(torch.rand(4, 5), edges, edge_attr=bonds).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        channels: int,
        edge_kinds: int | tuple[int, ...],
        *,
        normalised: bool = True,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.channels, self.in_channels, self.lead = channels, channels, lead
        self.normalised = normalised
        self.edge_kinds = check_edge_kinds("EdgeModulation", edge_kinds)
        if not self.edge_kinds:
            raise ArgumentError("EdgeModulation", "edge_kinds", "name at least one label column", "()")
        rows = sum(self.edge_kinds)
        self.scale = nn.Parameter(torch.empty(*lead, rows, channels))
        self.shift = nn.Parameter(torch.empty(*lead, rows, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.scale)
        nn.init.zeros_(self.shift)

    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """Maps ``x [*lead, V, channels]`` to the same shape."""
        return modulated_hop(x, self.scale, self.shift, edges, self.edge_kinds, self.normalised)

    def extra_repr(self) -> str:
        shown = f"{self.channels}, edge_kinds={self.edge_kinds}"
        shown += "" if self.normalised else ", normalised=False"
        return shown + (f", lead={self.lead}" if self.lead else "")
