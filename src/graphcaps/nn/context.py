"""Learned message passing under the votes, for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError
from graphcaps.nn.edge_modulation import EdgeModulation
from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.initialise import glorot_
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.edge_kinds import check_edge_kinds
from graphcaps.ops.propagation.propagation import propagate
from graphcaps.types import EdgeTable, Segments

__all__ = ["Context"]


class Context(GraphLayer[Tensor]):
    r"""Message passing layers that replace the single hop :math:`\hat A u` under the votes.

    .. math::
        h^{(0)} = u, \quad
        h^{(l+1)} = h^{(l)} + \mathrm{ReLU}\big(\mathrm{BatchNorm}([h^{(l)}, \hat A h^{(l)}] W_l)\big), \quad
        h = \hat A^{k} h^{(L)}

    with :math:`\hat A` of :func:`graphcaps.ops.propagation.propagation.propagate`. A single linear hop cannot
    distinguish a node of a ring from a node of a path, which differ only several hops away. The final k hops have no
    parameters; they make the votes of neighbours similar, which mostly belong to the same part.

    With ``edge_kinds`` the hop :math:`\hat A h^{(l)}` of each layer is an :class:`EdgeModulation`, in which messages
    depend on the labels of the edges.

    Unlike :class:`graphcaps.nn.Trunk` it supports leading axes and needs no torch-geometric.

    Args:
        channels (int): Length of an input capsule, and of a row of the result.
        num_layers (int): Number of layers L, at least 1.
        hops (int): Number of hops k after the last layer, 0 or more. (default: 1)
        edge_kinds (tuple or int): Number of values of each edge label column. (default: (), labels are not read)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: h, ``[*lead, V, channels]``.

    Example:
        >>> Context(5, num_layers=2)(torch.rand(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        channels: int,
        num_layers: int,
        *,
        hops: int = 1,
        edge_kinds: int | tuple[int, ...] = (),
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ArgumentError("Context", "num_layers", "be at least 1", num_layers)
        if hops < 0:
            raise ArgumentError("Context", "hops", "be at least 0", hops)
        self.channels, self.in_channels, self.hops, self.lead = channels, channels, hops, lead
        self.weights = nn.ParameterList(
            nn.Parameter(torch.empty(*lead, 2 * channels, channels)) for _ in range(num_layers)
        )
        self.norms = nn.ModuleList(RaggedBatchNorm(channels, lead=lead) for _ in range(num_layers))
        self.edge_kinds = check_edge_kinds("Context", edge_kinds)
        self.modulations = nn.ModuleList(
            EdgeModulation(channels, self.edge_kinds, lead=lead)
            for _ in range(num_layers if self.edge_kinds else 0)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in self.weights:
            glorot_(weight, 2 * self.channels, self.channels)
        for part in (*self.norms, *self.modulations):
            part.reset_parameters()

    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """Maps ``x [*lead, V, channels]`` to the same shape."""
        h = x
        for number, (weight, norm) in enumerate(zip(self.weights, self.norms, strict=True)):
            hop = self.modulations[number](h, edges, segments) if self.edge_kinds else propagate(h, edges)
            message = torch.cat([h, hop], -1) @ weight
            h = h + norm(message, segments.row_mask).relu()
        for _ in range(self.hops):
            h = propagate(h, edges)
        return h

    def extra_repr(self) -> str:
        shown = f"{self.channels}, num_layers={len(self.weights)}, hops={self.hops}"
        shown += f", edge_kinds={self.edge_kinds}" if self.edge_kinds else ""
        return shown + (f", lead={self.lead}" if self.lead else "")
