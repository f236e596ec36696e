"""Small graphs for tests, in torch-geometric's form and as padded batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.ops.edges import clean_edges, edge_table
from graphcaps.types import EdgeTable, GraphBatch, Segments


@dataclass
class Graphs:
    """B graphs: ``x [V, in]``, ``edge_index [2, E]``, ``batch [V]``, ``y [B]``."""

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    y: Tensor

    @property
    def sizes(self) -> Tensor:
        return torch.bincount(self.batch)

    @property
    def segments(self) -> Segments:
        return Segments.from_sizes(self.sizes)

    @property
    def edges(self) -> EdgeTable:
        return edge_table(self.edge_index, len(self.x))

    def as_batch(self) -> GraphBatch:
        return GraphBatch(self.x, self.segments, self.edges, self.y)

    def as_store(self) -> GraphStore:
        clean = clean_edges(self.edge_index[0], self.edge_index[1], len(self.x))
        ptr = torch.nn.functional.pad(self.sizes.cumsum(0), (1, 0))
        names = tuple(str(c) for c in range(int(self.y.max()) + 1))
        return GraphStore.from_clean_edges("test", ptr, clean, y=self.y, class_names=names)

    def one(self, graph: int) -> Graphs:
        """Graph number ``graph`` by itself."""
        nodes = (self.batch == graph).nonzero().squeeze(-1)
        inside = self.batch[self.edge_index[0]] == graph
        edge_index = self.edge_index[:, inside] - nodes[0]
        return Graphs(self.x[nodes], edge_index, torch.zeros_like(nodes), self.y[graph : graph + 1])


def random_graphs(
    sizes: list[int], channels: int = 5, classes: int = 2, seed: int = 0, density: float = 1.5
) -> Graphs:
    """Graphs of the given sizes with about ``density`` edges per node, float64 features of both signs."""
    generator = torch.Generator().manual_seed(seed)
    edges, first = [], 0
    for n in sizes:
        m = int(density * n) if n > 1 else 0
        pairs = torch.randint(0, n, (2, m), generator=generator)
        edges.append(pairs[:, pairs[0] != pairs[1]] + first)
        first += n
    x = torch.randn(first, channels, generator=generator, dtype=torch.float64)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    y = torch.arange(len(sizes)) % classes
    one_way = torch.cat(edges, 1)
    return Graphs(x, torch.cat([one_way, one_way.flip(0)], 1), batch, y)


def tiny_graphs() -> Graphs:
    """A triangle with a tail, a pair joined by an edge, and a single node."""
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 0, 2, 3, 4, 5], [1, 0, 2, 1, 0, 2, 3, 2, 5, 4]])
    x = torch.linspace(-1, 1, 35, dtype=torch.float64).reshape(7, 5).sin()
    return Graphs(x, edge_index, torch.tensor([0, 0, 0, 0, 1, 1, 2]), torch.tensor([0, 1, 0]))


def with_padding(
    batch: GraphBatch, rows: int = 3, graphs: int = 2, value: float = float("nan")
) -> GraphBatch:
    """The same batch followed by ``rows`` padding rows full of ``value`` and ``graphs`` empty graphs."""
    x, segments, edges = batch.x, batch.segments, batch.edges
    B = segments.num_graphs
    pad = torch.nn.functional.pad
    wide = torch.cat([x, x.new_full((rows, x.size(-1)), value)])
    index = pad(segments.index, (0, rows), value=B + graphs)
    ptr = torch.cat([segments.ptr, segments.ptr[-1:].expand(graphs)])
    table = EdgeTable(
        edges.ptr,
        edges.neighbours,
        edges.weight,
        pad(edges.node, (0, rows), value=-1),
        pad(edges.first, (0, rows)),
        edges.num_entries,
    )
    y = None if batch.y is None else pad(batch.y, (0, graphs), value=-1)
    return GraphBatch(wide, Segments(ptr, index, padded=True), table, y)


def assert_equal(found: Tensor, expected: Tensor, name: str = "value", tolerance: float = 1e-10) -> None:
    """Equal shapes, and equal numbers up to ``tolerance`` of the largest; NaN never passes."""
    assert found.shape == expected.shape, (
        f"{name}: shape {list(found.shape)}, expected {list(expected.shape)}"
    )
    if not expected.numel():
        return
    error = float((found.detach() - expected.detach()).abs().max())
    scale = max(1.0, float(expected.detach().abs().max()))
    assert error <= tolerance * scale, f"{name} differs by {error:.3g} (largest {scale:.3g})"
