"""Base class of the layers that are called with a graph."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from torch import Tensor, nn

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn.collate import collate
from graphcaps.types import EdgeTable, Segments

__all__ = ["GraphLayer", "resolve_graph", "row_mask"]

Result = TypeVar("Result")


class GraphLayer(nn.Module, Generic[Result]):
    """A layer that is called with node features and a graph, in one of two forms.

    ``layer(x, edge_index, batch)`` is the form of torch-geometric, for one model without leading axes. Edges are made
    undirected and unique, and self-loops are dropped.

    ``layer(x, batch.edges, batch.segments)`` takes the edges and segments of a :class:`graphcaps.types.GraphBatch`.
    It works for replicas and padded batches, and needs no host–device synchronisation.

    Padding rows of ``x`` must be finite. They do not affect real rows, and the values of the result there are
    unspecified.

    A subclass sets ``in_channels`` and ``lead``, and defines ``forward_ragged``.

    Attributes:
        in_channels (int): Number of columns that ``x`` must have; 0 for any number. (default: 0)
        edge_kinds (tuple): Number of values of each edge label column that the layer reads. (default: (), none)
        lead (tuple): Leading axes of the parameters. (default: ())

    Example:
        >>> class Hop(GraphLayer[torch.Tensor]):
        ...     def forward_ragged(self, x, edges, segments):
        ...         return graphcaps.ops.propagate(x, edges)
        >>> Hop()(torch.eye(3), torch.tensor([[0], [1]]))
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """

    in_channels: int = 0
    edge_kinds: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeTable,
        batch: Tensor | Segments | None = None,
        *,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        num_graphs: int | None = None,
    ) -> Result:
        """Applies the layer.

        Args:
            x (Tensor): Node features, ``[V, in]``; with an :class:`EdgeTable`, ``[*lead, V, in]``.
            edge_index (Tensor or EdgeTable): Edges ``[2, E]``, or those of a batch.
            batch (Tensor or Segments, optional): Graph of each node, sorted, ``[V]``; :class:`Segments` if
                ``edge_index`` is an :class:`EdgeTable`. (default: one graph)
            edge_weight (Tensor, optional): ``[E]``; an :class:`EdgeTable` has its own. (default: all 1)
            edge_attr (Tensor, optional): Index of each edge's label, from 0, or −1 for any other label, ``[E]``, or
                ``[E, C]`` for C label columns; for layers with ``edge_kinds``. An :class:`EdgeTable` has its own.
            num_graphs (int, optional): Number of graphs B, if the last ones may have no nodes;
                :class:`Segments` have their own.

        Raises:
            ArgumentError: If the two forms are mixed, or a layer with leading axes is called in the first form.
            ShapeError: If shapes or types disagree, ``batch`` is not sorted, or an edge connects two graphs.
        """
        if self.in_channels and x.size(-1) != self.in_channels:
            raise ShapeError(type(self).__name__, "x", f"have {self.in_channels} columns", x.size(-1))
        edges, segments = resolve_graph(
            self, self.lead, x, edge_index, batch, edge_weight, num_graphs, edge_attr, self.edge_kinds
        )
        return self.forward_ragged(x, edges, segments)

    @abstractmethod
    def forward_ragged(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Result:
        """The computation of ``forward``, on ``x [*lead, V, in]``."""


def resolve_graph(
    layer: nn.Module,
    lead: tuple[int, ...],
    x: Tensor,
    edge_index: Tensor | EdgeTable,
    batch: Tensor | Segments | None,
    edge_weight: Tensor | None,
    num_graphs: int | None,
    edge_attr: Tensor | None = None,
    edge_kinds: tuple[int, ...] = (),
) -> tuple[EdgeTable, Segments]:
    """Edges and segments of a call of ``layer`` in either form, checked; arguments as in :meth:`GraphLayer.forward`."""
    owner = type(layer).__name__
    if isinstance(edge_index, EdgeTable):
        if not isinstance(batch, Segments):
            got = "None" if batch is None else "a tensor"
            raise ArgumentError(owner, "batch", "be Segments if 'edge_index' is an EdgeTable", got)
        others = {"edge_weight": edge_weight, "edge_attr": edge_attr, "num_graphs": num_graphs}
        for name, value in others.items():
            if value is not None:
                raise ArgumentError(owner, name, "be None if 'edge_index' is an EdgeTable", "a value")
        if x.shape[:-1] != batch.index.shape:
            expected = f"have one row per node of the batch, {list(batch.index.shape)}"
            raise ShapeError(owner, "x", expected, list(x.shape[:-1]))
        return edge_index, batch
    if isinstance(batch, Segments):
        raise ArgumentError(owner, "batch", "be a tensor if 'edge_index' is one", "Segments")
    if lead:
        fix = "Call the layer with the edges and segments of a GraphBatch."
        raise ArgumentError(owner, "lead", "be () for a torch-geometric call", lead, fix)
    dtype = next((parameter.dtype for parameter in layer.parameters()), x.dtype)
    graphs = collate(
        owner,
        x,
        edge_index,
        batch,
        edge_weight,
        num_graphs,
        dtype,
        edge_attr=edge_attr,
        edge_kinds=edge_kinds,
    )
    return graphs.edges, graphs.segments


def row_mask(batch: Tensor | Segments | None) -> Tensor | None:
    """True at real rows, ``[*lead, V]``; ``None`` without padding. A ``batch`` tensor has no padding rows."""
    return batch.row_mask if isinstance(batch, Segments) else None
