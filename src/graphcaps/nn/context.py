"""Learned message passing under the votes, for one model or many."""

from __future__ import annotations

from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError, check_at_least
from graphcaps.nn.edge_modulation import EdgeModulation
from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.initialise import glorot_
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.edge_kinds import check_edge_kinds
from graphcaps.ops.propagation.propagation import hop_with_skip, propagate
from graphcaps.types import EdgeTable, Segments

__all__ = ["Context", "ContextKind", "context_kinds"]

ContextKind = Literal["residual", "gated", "gin"]


def context_kinds() -> tuple[ContextKind, ...]:
    """Names of the kinds of layers."""
    return get_args(ContextKind)


class Context(GraphLayer[Tensor]):
    r"""Message passing layers that replace the single hop :math:`\hat A u` under the votes.

    .. math::
        h^{(0)} = u, \quad h^{(l+1)} = h^{(l)} + f_l\big(h^{(l)}\big), \quad h = \hat A^{k} h^{(L)}

    with :math:`\hat A` of :func:`graphcaps.ops.propagation.propagation.propagate`. A single linear hop cannot
    distinguish a node of a ring from a node of a path, which differ only several hops away. The final k hops have no
    parameters; they make the votes of neighbours similar, which mostly belong to the same part.

    The kinds of layers, with BN for BatchNorm:

    .. math::
        \text{residual:} \quad & f_l(h) = \mathrm{ReLU}\big(\mathrm{BN}([h, \hat A h]\, W_l)\big) \\
        \text{gated:} \quad & f_l(h) = \mathrm{ReLU}(a) \odot \sigma(g), \quad
            [a, g] = \mathrm{BN}([h, \hat A h]\, W_l) \\
        \text{gin:} \quad & f_l(h) = \mathrm{ReLU}\big(\mathrm{BN}\big(
            \mathrm{ReLU}(\mathrm{BN}((h + A h)\, W_l))\, V_l\big)\big)

    In ``"gated"`` layers a node decides for every feature how much of its neighbourhood is added. ``"gin"`` sums over
    neighbours, as a graph isomorphism network (https://arxiv.org/abs/1810.00826) with :math:`\epsilon = 0`: unlike the
    weighted mean :math:`\hat A h`, a sum distinguishes neighbourhoods that differ in the number of equal nodes.

    With ``jumping``, the last hops start from a linear map of all layers in place of the last one
    (https://arxiv.org/abs/1806.03536): :math:`h = \hat A^k \, [h^{(0)}, \dots, h^{(L)}]\, W`.

    With ``edge_kinds`` the hop of each layer, :math:`\hat A h^{(l)}` or :math:`h^{(l)} + A h^{(l)}`, is an
    :class:`EdgeModulation`, in which messages depend on the labels of the edges.

    Unlike the layers of a :class:`graphcaps.nn.Trunk`, these have a residual connection and BatchNorm.

    Args:
        channels (int): Length of an input capsule, and of a row of the result.
        num_layers (int): Number of layers L, at least 1.
        kind (str): ``"residual"``, ``"gated"`` or ``"gin"``. (default: "residual")
        jumping (bool): Whether the votes read all layers. (default: False)
        hops (int): Number of hops k after the last layer, 0 or more. (default: 1)
        edge_kinds (tuple or int): Number of values of each edge label column. (default: (), labels are not read)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: h, ``[*lead, V, channels]``.

    Example:
        >>> Context(5, num_layers=2, kind="gin")(torch.rand(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        channels: int,
        num_layers: int,
        *,
        kind: ContextKind = "residual",
        jumping: bool = False,
        hops: int = 1,
        edge_kinds: int | tuple[int, ...] = (),
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        check_at_least("Context", 1, num_layers=num_layers)
        if kind not in context_kinds():
            raise ArgumentError("Context", "kind", f"be one of {', '.join(context_kinds())}", repr(kind))
        check_at_least("Context", 0, hops=hops)
        self.channels, self.in_channels, self.hops, self.lead = channels, channels, hops, lead
        self.kind = kind
        rows, columns = _WEIGHTS[kind]
        self.weights = _matrices(num_layers, rows * channels, columns * channels, lead)
        self.norms = nn.ModuleList(RaggedBatchNorm(columns * channels, lead=lead) for _ in self.weights)
        # V and its BatchNorm, of "gin" only.
        self.outer_weights = _matrices(num_layers if kind == "gin" else 0, channels, channels, lead)
        self.outer_norms = nn.ModuleList(RaggedBatchNorm(channels, lead=lead) for _ in self.outer_weights)
        self.jump = (
            nn.Parameter(torch.empty(*lead, (num_layers + 1) * channels, channels)) if jumping else None
        )
        self.edge_kinds = check_edge_kinds("Context", edge_kinds)
        self.modulations = nn.ModuleList(
            EdgeModulation(channels, self.edge_kinds, normalised=kind != "gin", lead=lead)
            for _ in range(num_layers if self.edge_kinds else 0)
        )
        self.reset_parameters()

    @property
    def matrices(self) -> tuple[nn.Parameter, ...]:
        """The matrices W, V and that of the jumping connections."""
        return (*self.weights, *self.outer_weights, *(() if self.jump is None else (self.jump,)))

    def reset_parameters(self) -> None:
        for weight in self.matrices:
            glorot_(weight, *weight.shape[-2:])
        for part in (*self.norms, *self.outer_norms, *self.modulations):
            part.reset_parameters()

    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """Maps ``x [*lead, V, channels]`` to the same shape."""
        layer = self._gin if self.kind == "gin" else self._residual
        h, outputs = x, [x]
        for number in range(len(self.weights)):
            h = layer(number, h, edges, segments)
            outputs.append(h)
        if self.jump is not None:
            h = torch.cat(outputs, -1) @ self.jump
        for _ in range(self.hops):
            h = propagate(h, edges)
        return h

    def _residual(self, number: int, h: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """A layer of kind ``"residual"`` or ``"gated"``."""
        if self.edge_kinds:
            hop: Tensor = self.modulations[number](h, edges, segments)
        else:
            hop, h = hop_with_skip(h, edges)
        matrix, mask = self.weights[number], segments.row_mask
        return self._norm(number).activate_product((h, hop), matrix, mask, h, gated=self.kind == "gated")

    def _gin(self, number: int, h: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        if self.edge_kinds:
            total: Tensor = self.modulations[number](h, edges, segments)
        else:
            total, h = hop_with_skip(h, edges, normalised=False)
        inner = self._norm(number).activate_product((total,), self.weights[number], segments.row_mask)
        outer = cast(RaggedBatchNorm, self.outer_norms[number])
        return outer.activate_product((inner,), self.outer_weights[number], segments.row_mask, h)

    def _norm(self, number: int) -> RaggedBatchNorm:
        return cast(RaggedBatchNorm, self.norms[number])

    def extra_repr(self) -> str:
        shown = f"{self.channels}, num_layers={len(self.weights)}, kind='{self.kind}', hops={self.hops}"
        shown += ", jumping=True" if self.jump is not None else ""
        shown += f", edge_kinds={self.edge_kinds}" if self.edge_kinds else ""
        return shown + (f", lead={self.lead}" if self.lead else "")


_WEIGHTS: dict[ContextKind, tuple[int, int]] = {"residual": (2, 1), "gated": (2, 2), "gin": (1, 1)}
"""Rows and columns of the matrices W of each kind, in multiples of the width."""


def _matrices(count: int, rows: int, columns: int, lead: tuple[int, ...]) -> nn.ParameterList:
    return nn.ParameterList(nn.Parameter(torch.empty(*lead, rows, columns)) for _ in range(count))
