"""Small graphs for tests, in torch-geometric's form and as padded batches."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.ops.edge_kinds import count_edge_kinds
from graphcaps.ops.edges import clean_edges, edge_table
from graphcaps.testing.padded_batch import with_padding
from graphcaps.types import EdgeTable, GraphBatch, Segments

__all__ = [
    "Graphs",
    "assert_equal",
    "assert_same_stores",
    "masked_segments",
    "random_graphs",
    "tiny_graphs",
    "with_kinds",
    "with_padding",
    "with_weights",
]


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
        """The graph with index ``graph`` alone."""
        nodes = (self.batch == graph).nonzero().squeeze(-1)
        edge_mask = self.batch[self.edge_index[0]] == graph
        edge_index = self.edge_index[:, edge_mask] - nodes[0]
        return Graphs(self.x[nodes], edge_index, torch.zeros_like(nodes), self.y[graph : graph + 1])


def random_graphs(
    sizes: list[int], channels: int = 5, classes: int = 2, seed: int = 0, density: float = 1.5
) -> Graphs:
    """Random graphs with the given node counts, about ``density`` edges per node and normal float64 features."""
    generator = torch.Generator().manual_seed(seed)
    edges, num_nodes = [], 0
    for n in sizes:
        m = int(density * n) if n > 1 else 0
        pairs = torch.randint(0, n, (2, m), generator=generator)
        edges.append(pairs[:, pairs[0] != pairs[1]] + num_nodes)
        num_nodes += n
    x = torch.randn(num_nodes, channels, generator=generator, dtype=torch.float64)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    y = torch.arange(len(sizes)) % classes
    one_way = torch.cat(edges, 1)
    return Graphs(x, torch.cat([one_way, one_way.flip(0)], 1), batch, y)


def tiny_graphs() -> Graphs:
    """Three graphs: a triangle with a tail, two nodes joined by an edge, and a single node."""
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 0, 2, 3, 4, 5], [1, 0, 2, 1, 0, 2, 3, 2, 5, 4]])
    x = torch.linspace(-1, 1, 35, dtype=torch.float64).reshape(7, 5).sin()
    return Graphs(x, edge_index, torch.tensor([0, 0, 0, 0, 1, 1, 2]), torch.tensor([0, 1, 0]))


def masked_segments(mask: Tensor) -> Segments:
    """One graph per replica, with the rows where ``mask [*lead, V]`` is True; other rows are padding."""
    ptr = torch.nn.functional.pad(mask.sum(-1, keepdim=True), (1, 0))
    return Segments(ptr, (~mask).long())


def with_kinds(store: GraphStore, edge_kinds: tuple[int, ...]) -> GraphStore:
    """The store with a kind for each edge, equal in both directions; on a CPU."""
    return store.with_edge_kind((_edge_numbers(store) % count_edge_kinds(edge_kinds)).int())


def with_weights(store: GraphStore, dtype: torch.dtype = torch.float32) -> GraphStore:
    """The store with a weight from 0.2 to 1.4 for each edge, equal in both directions; on a CPU."""
    return replace(store, edge_weight=(1 + _edge_numbers(store) % 7).to(dtype) / 5)


def _edge_numbers(store: GraphStore) -> Tensor:
    """A number for each entry, equal in both directions."""
    source = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    target = store.neighbours.long() + store.node_ptr[store.node_graph[source]]
    return source * target + source + target


def assert_equal(actual: Tensor, expected: Tensor, name: str = "value", tolerance: float = 1e-10) -> None:
    """Equal shapes, and values equal within ``tolerance`` times the largest expected value (at least 1); NaN fails."""
    assert actual.shape == expected.shape, (
        f"{name}: shape {list(actual.shape)}, expected {list(expected.shape)}"
    )
    if not expected.numel():
        return
    error = float((actual.detach() - expected.detach()).abs().max())
    scale = max(1.0, float(expected.detach().abs().max()))
    assert error <= tolerance * scale, f"{name} differs by {error:.3g} (largest {scale:.3g})"


def with_empty_graphs(store: GraphStore, counts: list[int], y: int = 0) -> tuple[GraphStore, list[int]]:
    """The store with graphs without nodes inserted, and the new index of each of its graphs.

    Args:
        store (GraphStore): G graphs.
        counts (list): Number of graphs without nodes before each graph, and after the last, ``[G + 1]``.
        y (int): Class of the inserted graphs.
    """
    sizes, classes, kept = [], [], []
    for graph, count in enumerate(counts):
        sizes += [0] * count
        classes += [y] * count
        if graph < len(store):
            kept.append(len(sizes))
            sizes.append(int(store.sizes[graph]))
            classes.append(0 if store.y is None else int(store.y[graph]))
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    return replace(store, node_ptr=ptr, y=None if store.y is None else torch.tensor(classes)), kept


def assert_same_stores(one: GraphStore, two: GraphStore) -> None:
    """Every field of two stores is equal, types of tensors included."""
    for entry in fields(GraphStore):
        left, right = getattr(one, entry.name), getattr(two, entry.name)
        if isinstance(left, Tensor):
            assert left.dtype == right.dtype, entry.name
            assert torch.equal(left, right), entry.name
        elif entry.name == "truth":
            assert left.keys() == right.keys()
            assert all(
                torch.equal(left[key], right[key]) and left[key].dtype == right[key].dtype for key in left
            )
        else:
            assert left == right, entry.name
