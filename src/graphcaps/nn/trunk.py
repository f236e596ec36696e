"""Message passing layers under the votes of a capsule layer."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError, ShapeError, check_at_least
from graphcaps.nn.gat_conv import ReplicaGATConv
from graphcaps.nn.gin_conv import ReplicaGINConv
from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.replica_mlp import ReplicaMLP
from graphcaps.nn.sage_conv import ReplicaSAGEConv
from graphcaps.ops.edge_kinds import check_edge_kinds, one_hot_kinds
from graphcaps.ops.propagation.propagation import edge_list, to_edge_index
from graphcaps.types import EdgeTable, Segments

__all__ = ["Trunk", "TrunkKind"]

TrunkKind = Literal["gin", "gine", "sage", "gat"]

_READ_EDGES = ("gine", "gat")  # named kinds whose layers take edge labels


class Trunk(GraphLayer[Tensor]):
    """A stack of message passing layers that replaces the hop of a capsule layer.

    The votes remain linear in its output, so routing needs no stored votes. There is a ReLU between layers, not after
    the last one.

    The kinds of layers:

    ==========  =====================================================================================================
    ``"gin"``   :class:`ReplicaGINConv`, with an MLP of two linear layers, a ReLU between them, and a trained ε
    ``"sage"``  :class:`ReplicaSAGEConv`
    ``"gat"``   :class:`ReplicaGATConv`, which reads edge labels with ``edge_kinds``
    ``"gine"``  as ``"gin"``, with messages that edge labels and a ReLU shape; it always reads edge labels
    a module    a single layer of the user, such as one of torch-geometric
    ==========  =====================================================================================================

    With ``edge_kinds`` a module is called as ``module(x, edge_index, edge_attr)``, where ``edge_attr`` holds the edge
    labels in one-hot form, ``[E, n_1 + … + n_C]`` for columns of n_c values; a label without a column is all zeros. A
    module has no replicas; the other layers compute all of them at once.

    Args:
        kind (str or Module): ``"gin"``, ``"gine"``, ``"sage"``, ``"gat"``, or a module called as
            ``module(x, edge_index)`` that keeps the width. With ``edge_kinds``, ``"gine"``, ``"gat"`` or a module
            called as ``module(x, edge_index, edge_attr)``.
        channels (int): Length of a capsule, in and out.
        num_layers (int): Number of layers of a named kind. (default: 1)
        edge_kinds (tuple or int): Number of values of each edge label column. (default: (), labels are not read)
        lead (tuple): Leading axes of the parameters; a module has none. (default: ())

    Returns (from ``forward``):
        Tensor: ``[*lead, V, channels]``.

    Example:
        >>> Trunk("gat", 5)(torch.rand(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        kind: TrunkKind | nn.Module,
        channels: int,
        *,
        num_layers: int = 1,
        edge_kinds: int | tuple[int, ...] = (),
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        check_at_least("Trunk", 1, num_layers=num_layers)
        self.channels, self.in_channels, self.lead = channels, channels, lead
        self.edge_kinds = check_edge_kinds("Trunk", edge_kinds)
        self.layers = nn.ModuleList()  # with leading axes; empty for a module of the user
        self.module: nn.Module | None = None
        if isinstance(kind, nn.Module):
            if lead:
                raise ArgumentError(
                    "Trunk", "kind", "be a name if there are leading axes", type(kind).__name__
                )
            self.module, self.kind = kind, type(kind).__name__
            return
        if kind not in get_args(TrunkKind):
            raise ArgumentError(
                "Trunk", "kind", f"be one of {', '.join(get_args(TrunkKind))} or a module", repr(kind)
            )
        if self.edge_kinds and kind not in _READ_EDGES:
            expected = f"read edge labels: {' or '.join(_READ_EDGES)}, or a module"
            raise ArgumentError("Trunk", "kind", expected, repr(kind), "Or leave the edge labels out.")
        if kind == "gine" and not self.edge_kinds:
            raise ArgumentError("Trunk", "edge_kinds", "be given for the kind 'gine'", "()", "Or use 'gin'.")
        self.kind = kind
        self.layers.extend(_layer(kind, channels, self.edge_kinds, lead) for _ in range(num_layers))

    @property
    def capturable(self) -> bool:
        """Whether a training step can be captured as a CUDA graph.

        A module of the user may synchronise with the host, as those of torch-geometric do. So does attention without a
        kernel (:attr:`ReplicaGATConv.capturable`).
        """
        attention = (layer for layer in self.layers if isinstance(layer, ReplicaGATConv))
        return self.module is None and all(layer.capturable for layer in attention)

    def reset_parameters(self) -> None:
        for part in (*self.layers, self.module):  # a module of the user may have no such method
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()

    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        """Maps ``x [*lead, V, d]`` to the same shape."""
        if edges.weight is not None:
            raise ArgumentError(
                "Trunk",
                "edge_weight",
                f"be None with the trunk '{self.kind}'",
                "weights",
                "Use trunk=None.",
            )
        if self.module is not None:
            return self._apply_module(self.module, x, edges)
        for number, layer in enumerate(self.layers):
            x = layer(x.relu() if number else x, edges, segments)
        return x

    def _apply_module(self, module: nn.Module, x: Tensor, edges: EdgeTable) -> Tensor:
        attributes = self._edge_attr(edges, x.dtype)
        h: Tensor = module(x, to_edge_index(edges), *(() if attributes is None else (attributes,)))
        if h.size(-1) != self.channels:
            raise ShapeError("Trunk", "kind", f"keep the width {self.channels}", h.size(-1))
        return h

    def _edge_attr(self, edges: EdgeTable, dtype: torch.dtype) -> Tensor | None:
        """One-hot labels of the edges in the order of ``to_edge_index``, ``[E, n_1 + … + n_C]``."""
        if not self.edge_kinds:
            return None
        kind = edge_list(edges).kind
        if kind is None:
            raise ShapeError("Trunk", "edges", "have kinds", "none", "Pass edge_attr.")
        return one_hot_kinds(self.edge_kinds, kind.device)[kind].to(dtype)

    def extra_repr(self) -> str:
        return f"'{self.kind}', {self.channels}" + (f", lead={self.lead}" if self.lead else "")


def _layer(
    kind: str, channels: int, edge_kinds: tuple[int, ...], lead: tuple[int, ...]
) -> GraphLayer[Tensor]:
    """A layer of a named kind."""
    if kind in ("gin", "gine"):
        mlp = ReplicaMLP([channels] * 3, norm=False, lead=lead)
        return ReplicaGINConv(mlp, train_epsilon=True, edge_kinds=edge_kinds)
    if kind == "sage":
        return ReplicaSAGEConv(channels, channels, lead=lead)
    return ReplicaGATConv(channels, channels, edge_kinds=edge_kinds, lead=lead)
