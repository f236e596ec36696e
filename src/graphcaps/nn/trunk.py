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
from graphcaps.ops._triton.dispatch import WIDEST_ATTENTION
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
    ``"gine"``  :class:`torch_geometric.nn.GINEConv`, with the MLP and ε of ``"gin"``; it always reads edge labels
    a module    a single layer of the user, such as one of torch-geometric
    ==========  =====================================================================================================

    Layers of torch-geometric are called as ``layer(x, edge_index, edge_attr)`` with ``edge_kinds``, where ``edge_attr``
    holds the edge labels in one-hot form, ``[E, n_1 + … + n_C]`` for columns of n_c values; a label without a column is
    all zeros. They have a stack per replica, and stacks run one after another; the other layers compute all replicas
    at once.

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
        self.layers = nn.ModuleList()  # with leading axes; empty for layers of torch-geometric
        self.replicas = nn.ModuleList()  # a stack of torch-geometric layers per replica; empty for the others
        if isinstance(kind, nn.Module):
            if lead:
                raise ArgumentError(
                    "Trunk", "kind", "be a name if there are leading axes", type(kind).__name__
                )
            self.replicas.append(_Stack([kind]))
            self.kind = type(kind).__name__
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
        if kind == "gine":
            edge_dim = sum(self.edge_kinds)
            self.replicas.extend(
                _Stack([_gine_layer(channels, edge_dim) for _ in range(num_layers)])
                for _ in range(torch.Size(lead).numel())
            )
        else:
            self.layers.extend(_layer(kind, channels, self.edge_kinds, lead) for _ in range(num_layers))

    @property
    def capturable(self) -> bool:
        """Whether a training step can be captured as a CUDA graph.

        Layers of torch-geometric synchronise with the host, and so does attention over rows that its kernel does not
        take.
        """
        has_kernels = self.kind != "gat" or self.channels <= WIDEST_ATTENTION
        return len(self.layers) > 0 and has_kernels

    def reset_parameters(self) -> None:
        for part in (*self.layers, *self.replicas):
            part.reset_parameters()

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
        if self.replicas:
            return self._forward_stacks(x, edges)
        for number, layer in enumerate(self.layers):
            x = layer(x.relu() if number else x, edges, segments)
        return x

    def _forward_stacks(self, x: Tensor, edges: EdgeTable) -> Tensor:
        """The layers of torch-geometric, one replica after another."""
        edge_index, edge_attr = to_edge_index(edges), self._edge_attr(edges, x.dtype)
        rows = x.reshape(len(self.replicas), *x.shape[-2:])
        V = x.size(-2)
        replica = edge_index[0] // max(V, 1)
        outputs = []
        for f, stack in enumerate(self.replicas):
            if len(self.replicas) == 1:
                outputs.append(stack(rows[f], edge_index, edge_attr))
                continue
            own = replica == f
            attributes = None if edge_attr is None else edge_attr[own]
            outputs.append(stack(rows[f], edge_index[:, own] - f * V, attributes))
        h = torch.stack(outputs)
        if h.size(-1) != self.channels:
            raise ShapeError("Trunk", "kind", f"keep the width {self.channels}", h.size(-1))
        return h.reshape(x.shape)

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


class _Stack(nn.Module):
    """Layers of torch-geometric of one replica."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def reset_parameters(self) -> None:
        for layer in self.layers:
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                reset()

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        attributes = () if edge_attr is None else (edge_attr,)
        for number, layer in enumerate(self.layers):
            x = layer(x.relu() if number else x, edge_index, *attributes)
        return x


def _layer(
    kind: str, channels: int, edge_kinds: tuple[int, ...], lead: tuple[int, ...]
) -> GraphLayer[Tensor]:
    """A layer of the kind ``"gin"``, ``"sage"`` or ``"gat"``."""
    if kind == "gin":
        mlp = ReplicaMLP([channels] * 3, norm=False, lead=lead)
        return ReplicaGINConv(mlp, train_epsilon=True)
    if kind == "sage":
        return ReplicaSAGEConv(channels, channels, lead=lead)
    return ReplicaGATConv(channels, channels, edge_kinds=edge_kinds, lead=lead)


def _gine_layer(channels: int, edge_dim: int) -> nn.Module:
    """A layer of the kind ``"gine"``; ``edge_dim`` is the number of columns of ``edge_attr``."""
    # Imported late: few models need it, and the import takes a second.
    from torch_geometric.nn import GINEConv

    # GINEConv reads the width of x from the layers of its MLP.
    mlp = nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels))
    layer: nn.Module = GINEConv(mlp, train_eps=True, edge_dim=edge_dim)
    return layer
