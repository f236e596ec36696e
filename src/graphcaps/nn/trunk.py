"""Message passing layers of torch-geometric under the votes of a capsule layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.ops.propagation.propagation import to_edge_index
from graphcaps.types import EdgeTable, Segments

__all__ = ["Trunk", "TrunkKind"]

TrunkKind = Literal["gin", "sage", "gat"]


class Trunk(GraphLayer[Tensor]):
    """A stack of torch-geometric layers that replaces the hop of a capsule layer.

    The votes remain linear in its output, so routing needs no stored votes. There is a ReLU between layers, not after
    the last one.

    Args:
        kind (str or Module): ``"gin"``, ``"sage"``, ``"gat"``, or a module called as ``module(x, edge_index)``
            that keeps the width.
        channels (int): Length of a capsule, in and out.
        num_layers (int): Number of layers of a named kind. (default: 1)
        lead (tuple): Leading axes; each replica has its own stack, and stacks run one after another. (default: ())

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
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ArgumentError("Trunk", "num_layers", "be at least 1", num_layers)
        self.channels, self.in_channels, self.lead = channels, channels, lead
        if isinstance(kind, nn.Module):
            if lead:
                raise ArgumentError(
                    "Trunk", "kind", "be a name if there are leading axes", type(kind).__name__
                )
            self.replicas = nn.ModuleList([_Stack([kind])])
            self.kind = type(kind).__name__
            return
        if kind not in get_args(TrunkKind):
            raise ArgumentError(
                "Trunk", "kind", f"be one of {', '.join(get_args(TrunkKind))} or a module", repr(kind)
            )
        self.kind = kind
        count = torch.Size(lead).numel()
        self.replicas = nn.ModuleList(
            _Stack([_layer(kind, channels) for _ in range(num_layers)]) for _ in range(count)
        )

    def reset_parameters(self) -> None:
        for stack in self.replicas:
            stack.reset_parameters()  # type: ignore[operator]

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
        edge_index = to_edge_index(edges)
        rows = x.reshape(len(self.replicas), *x.shape[-2:])
        V = x.size(-2)
        replica = edge_index[0] // max(V, 1)
        outputs = []
        for f, stack in enumerate(self.replicas):
            selected = edge_index if len(self.replicas) == 1 else edge_index[:, replica == f] - f * V
            outputs.append(stack(rows[f], selected))
        h = torch.stack(outputs)
        if h.size(-1) != self.channels:
            raise ShapeError("Trunk", "kind", f"keep the width {self.channels}", h.size(-1))
        return h.reshape(x.shape)

    def extra_repr(self) -> str:
        return f"'{self.kind}', {self.channels}" + (f", lead={self.lead}" if self.lead else "")


class _Stack(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def reset_parameters(self) -> None:
        for layer in self.layers:
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                reset()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x.relu() if number else x, edge_index)
        return x


def _layer(kind: str, channels: int) -> nn.Module:
    # Imported late: few models need it, and the import takes a second.
    from torch_geometric.nn import GATConv, GINConv, SAGEConv

    def gin() -> nn.Module:
        mlp = nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels))
        layer: nn.Module = GINConv(mlp, train_eps=True)
        return layer

    makers: dict[str, Callable[[], nn.Module]] = {
        "gin": gin,
        "sage": lambda: SAGEConv(channels, channels),
        "gat": lambda: GATConv(channels, channels),
    }
    return makers[kind]()
