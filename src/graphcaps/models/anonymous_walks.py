"""Distributions of anonymous walks: the features of anonymous walk embeddings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from graphcaps.data.quality.weisfeiler_lehman import mix64, wl_node_colours
from graphcaps.data.store import GraphStore

__all__ = ["WalkSampling", "anonymous_walks", "number_of_samples", "walk_distributions"]

_STEP_WALKS = 1 << 19  # walks that are in memory at a time
_FIXED_POINT = 2.0**40  # probabilities are whole multiples of its inverse: their sums are exact in any order
_EXACT_NODES = 1 << 12  # of a graph: so many probabilities of 1 stay below 2⁵³ of these units
_COLOUR_ROUNDS = 6  # of the colours that order the nodes for sampled walks


@dataclass(frozen=True)
class WalkSampling:
    """When the walks of a graph are sampled, and how many.

    Args:
        max_walks (int): Graphs with at most so many walks are enumerated.
        samples (int): Number of walks of other graphs.
        seed (int): Seed of the samples.
    """

    max_walks: int
    samples: int
    seed: int = 0


@cache
def anonymous_walks(length: int) -> tuple[tuple[int, ...], ...]:
    """All anonymous walks of some steps, in lexicographic order; their number is the Bell number of ``length``.

    An anonymous walk has, in place of each node, the number of other nodes that were visited before its first visit.
    The walk a, b, c, b of three steps becomes 0, 1, 2, 1. Edges join different nodes, so neighbouring numbers differ.

    Args:
        length (int): Number of steps, at least 0.
    """
    walks: list[tuple[int, ...]] = [(0,)]
    for _ in range(length):
        walks = [(*walk, label) for walk in walks for label in range(max(walk) + 2) if label != walk[-1]]
    return tuple(walks)


@cache
def _transitions(steps: int) -> NDArray[np.int32]:
    """Number of each anonymous walk after one more step, int32 ``[walks of steps, steps + 2]``.

    Column i belongs to a step to the node at position i of the walk, the last one to a step to a new node.
    """
    table = np.zeros((len(anonymous_walks(steps)), steps + 2), np.int32)
    number = {walk: i for i, walk in enumerate(anonymous_walks(steps + 1))}
    for row, walk in enumerate(anonymous_walks(steps)):
        for position, label in enumerate((*walk, max(walk) + 1)):
            if label != walk[-1]:
                table[row, position] = number[*walk, label]
    return table


def number_of_samples(length: int, error: float, risk: float) -> int:
    r"""Number of walks after which a sampled distribution is within ``error`` of the true one.

    For η anonymous walks and the sum of absolute differences, the publication (Eq. 2) gives

    .. math:: m = \left\lceil \frac{2}{\varepsilon^2} \big(\log(2^\eta - 2) - \log \delta\big) \right\rceil

    Args:
        length (int): Number of steps, at least 1.
        error (float): ε, positive.
        risk (float): δ, the probability of a larger error, from 0 to 1.
    """
    walks = len(anonymous_walks(length))
    if walks == 1:
        return 1  # nothing to estimate
    logarithm = walks * math.log(2) + math.log1p(-(2.0 ** (1 - walks)))
    return math.ceil(2 / error**2 * (logarithm - math.log(risk)))


_computed: WeakKeyDictionary[GraphStore, dict[tuple[int, WalkSampling], NDArray[np.float64]]] = (
    WeakKeyDictionary()
)


def walk_distributions(store: GraphStore, length: int, sampling: WalkSampling) -> NDArray[np.float64]:
    r"""Probability of each anonymous walk in each graph, float64 ``[G, walks]``.

    A walk starts at a node, each with the same probability, and each step leads to a neighbour, each with the same
    probability:

    .. math:: p(a) = \frac{1}{n} \sum_{w \in W(a)} \prod_{v \in w'} \frac{1}{d_v}

    with the walks W(a) that have the anonymous walk a, and w′ = w without its last node. A node without neighbours
    starts no walk, so that the probabilities sum to the fraction of the other nodes.

    Graphs with at most ``sampling.max_walks`` walks are enumerated; their probabilities do not depend on the order of
    nodes. Others are sampled. The random numbers of a graph depend on the seed and on its Weisfeiler-Lehman colours,
    not on other graphs, and its nodes are ordered by colour. Among nodes of the same colour the order of the store
    counts. The result is kept as long as the store exists: the folds of a cross-validation share it.

    Args:
        store (GraphStore): Graphs.
        length (int): Number of steps, at least 1.
        sampling (WalkSampling): Which graphs are sampled.
    """
    kept = _computed.setdefault(store, {})
    if (length, sampling) not in kept:
        kept[length, sampling] = _compute(store, length, sampling)
    return kept[length, sampling]


@dataclass(frozen=True, eq=False)
class _Adjacency:
    """Neighbours of all nodes of a store.

    Args:
        ptr, neighbours (ndarray): Compressed rows, int64 ``[N + 1]`` and int32 ``[M]``, with indices among all nodes.
        nodes (ndarray): Nodes with neighbours, by graph, int32.
        node_ptr (ndarray): First of these nodes of each graph, then their number, int64 ``[G + 1]``.
        graph (ndarray): Graph of each node, int64 ``[N]``.
    """

    ptr: NDArray[np.int64]
    neighbours: NDArray[np.int32]
    nodes: NDArray[np.int32]
    node_ptr: NDArray[np.int64]
    graph: NDArray[np.int64]

    @classmethod
    def of(cls, store: GraphStore) -> _Adjacency:
        ptr, graph = store.edge_ptr.numpy(), store.node_graph.numpy()
        first = store.host_node_ptr.numpy()[:-1][graph]
        neighbours = store.neighbours.numpy() + np.repeat(first, np.diff(ptr)).astype(np.int32)
        nodes = np.flatnonzero(np.diff(ptr)).astype(np.int32)
        node_ptr = np.searchsorted(graph[nodes], np.arange(len(store) + 1))
        return cls(ptr, neighbours, nodes, node_ptr, graph)

    @property
    def degree(self) -> NDArray[np.int64]:
        return np.diff(self.ptr)

    def count_walks(self, length: int) -> NDArray[np.float64]:
        """Number of walks of each graph, float64 ``[G]``."""
        N = len(self.graph)
        matrix = csr_array((np.ones(len(self.neighbours)), self.neighbours, self.ptr), shape=(N, N))
        walks: NDArray[np.float64] = np.ones(N)
        for _ in range(length):
            walks = matrix @ walks
        return np.bincount(self.graph, walks, len(self.node_ptr) - 1).astype(np.float64)

    def ordered(self, colours: NDArray[np.uint64]) -> _Adjacency:
        """The same with nodes and neighbours in ascending order of their colours."""
        rank = np.empty(len(colours), np.int64)
        rank[np.argsort(colours, kind="stable")] = np.arange(len(colours))
        row = np.repeat(np.arange(len(colours)), self.degree)
        entries = np.argsort(row * len(colours) + rank[self.neighbours])
        nodes = np.argsort(self.graph[self.nodes] * len(colours) + rank[self.nodes])
        return replace(self, neighbours=self.neighbours[entries], nodes=self.nodes[nodes])


def _compute(store: GraphStore, length: int, sampling: WalkSampling) -> NDArray[np.float64]:
    store = replace(store.to("cpu"), node_labels=None)  # only the edges are read
    adjacency = _Adjacency.of(store)
    sizes = store.sizes.numpy()
    counts = adjacency.count_walks(length)
    exact = (counts <= sampling.max_walks) & (sizes <= _EXACT_NODES)
    p = np.zeros((len(store), len(anonymous_walks(length))))
    for graphs in _chunks(np.flatnonzero(exact & (counts > 0)), counts):
        p[graphs] = _enumerate(adjacency, graphs, length) / sizes[graphs, None]
    if not exact.all():
        colours = wl_node_colours(store, _COLOUR_ROUNDS)[-1]
        ordered, seeds = adjacency.ordered(colours), _graph_seeds(colours, adjacency.graph, sampling.seed)
        for graphs in _chunks(np.flatnonzero(~exact), np.full(len(store), float(sampling.samples))):
            sampled = _sample(ordered, graphs, seeds[graphs], length, sampling.samples)
            walking = np.diff(adjacency.node_ptr)[graphs] / sizes[graphs]
            p[graphs] = sampled * (walking / sampling.samples)[:, None]
    return p


def _chunks(graphs: NDArray[np.int64], walks: NDArray[np.float64]) -> Iterator[NDArray[np.int64]]:
    """Groups of graphs, each with about as many walks as are in memory at a time."""
    if len(graphs):
        group = np.cumsum(walks[graphs]) // _STEP_WALKS
        yield from np.split(graphs, np.flatnonzero(np.diff(group)) + 1)


def _enumerate(adjacency: _Adjacency, graphs: NDArray[np.int64], length: int) -> NDArray[np.float64]:
    """Sum of the probabilities of all walks from all nodes, by anonymous walk, ``[len(graphs), walks]``."""
    bounds = zip(adjacency.node_ptr[graphs], adjacency.node_ptr[graphs + 1], strict=True)
    start = np.concatenate([adjacency.nodes[first:end] for first, end in bounds])
    path, weight = start[None], np.ones(len(start))
    state = np.zeros(len(start), np.int32)
    row = np.searchsorted(graphs, adjacency.graph[start])
    for step in range(length):
        last = path[-1]
        first, degree = adjacency.ptr[last], adjacency.ptr[last + 1] - adjacency.ptr[last]
        parent = np.repeat(np.arange(len(last)), degree)
        entry = np.arange(len(parent)) + np.repeat(first - (np.cumsum(degree) - degree), degree)
        node = adjacency.neighbours[entry]
        path, weight, row = path[:, parent], (weight / degree)[parent], row[parent]
        state = _transitions(step)[state[parent], _visited_position(path, node)]
        path = np.concatenate([path, node[None]])
    walks = len(anonymous_walks(length))
    units = np.rint(weight * _FIXED_POINT)
    sums = np.bincount(row * walks + state, units, len(graphs) * walks)
    return sums.reshape(-1, walks) / _FIXED_POINT


def _sample(
    adjacency: _Adjacency,
    graphs: NDArray[np.int64],
    seeds: NDArray[np.uint64],
    length: int,
    samples: int,
) -> NDArray[np.float64]:
    """How many of the sampled walks have each anonymous walk, ``[len(graphs), walks]``."""
    row = np.repeat(np.arange(len(graphs)), samples)
    number = np.tile(np.arange(samples, dtype=np.uint64), len(graphs)) * np.uint64(length + 1)
    key = np.repeat(seeds, samples) + number
    first, end = (adjacency.node_ptr[graphs + i][row] for i in (0, 1))
    path = np.empty((length + 1, len(row)), np.int32)
    path[0] = adjacency.nodes[first + _draw(key, end - first)]
    state = np.zeros(len(row), np.int32)
    for step in range(length):
        first, end = adjacency.ptr[path[step]], adjacency.ptr[path[step] + 1]
        node = adjacency.neighbours[first + _draw(key + np.uint64(step + 1), end - first)]
        state = _transitions(step)[state, _visited_position(path[: step + 1], node)]
        path[step + 1] = node
    walks = len(anonymous_walks(length))
    counts = np.bincount(row * walks + state, minlength=len(graphs) * walks)
    return counts.reshape(-1, walks).astype(np.float64)


def _visited_position(path: NDArray[np.int32], node: NDArray[np.int32]) -> NDArray[np.int8]:
    """A position of a node in each walk, the number of positions where it is new, ``[W]``."""
    position = np.full(len(node), len(path), np.int8)
    for i in range(len(path) - 1):  # a step never leads to the last node itself
        position[path[i] == node] = i
    return position


def _draw(keys: NDArray[np.uint64], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """A random number from 0 to each bound − 1, from a hash of each key."""
    high = mix64(keys) >> np.uint64(32)
    return ((high * bounds.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def _graph_seeds(colours: NDArray[np.uint64], graph: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """A seed of each graph, from the seed and the multiset of its colours, uint64 ``[G]``."""
    sums = np.zeros(int(graph[-1]) + 1, np.uint64)
    np.add.at(sums, graph, mix64(colours))
    return mix64(sums + mix64(np.array([seed], np.uint64)))
