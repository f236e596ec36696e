"""The embedded data sets ``ba-2motifs`` and ``ba-multishapes``: motifs attached to a Barabási–Albert tree.

Both are benchmarks of explanations whose reason for the class is known. They are generated here by the definitions of
their papers, not read from the files that the authors distribute, so that the planted motif of every node is known.

* ``ba-2motifs`` (Luo et al., Parameterized Explainer for Graph Neural Network, NeurIPS 2020,
  https://arxiv.org/abs/2011.04573): a base of 20 nodes, and a house or a cycle of five nodes, which is the class.
* ``ba-multishapes`` (Azzolin et al., Global Explainability of GNNs via Logic Combination of Learned Concepts, ICLR
  2023, https://arxiv.org/abs/2210.07147): 40 nodes with houses, wheels and grids. Class ``two`` has exactly two
  different motifs; class ``other`` has none, one, or all three.

In both, a new node of the base is attached by one edge to an earlier node, which is drawn with a probability in
proportion to its degree. A motif is attached by one edge between a random node of the graph so far and a random node of
the motif. Nodes have no labels and no attributes: the constant features of the papers carry no information.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from graphcaps.data.datasets.motifs import build_motif
from graphcaps.data.datasets.portable_random import PortableRandom
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.ops.edges import clean_edges

__all__ = ["MULTISHAPES_KINDS", "TWO_MOTIFS_KINDS", "ba_2motifs", "ba_multishapes"]

TWO_MOTIFS_KINDS: tuple[str, ...] = ("base", "house", "cycle")
"""Kinds of ``ba-2motifs``, in the order of ``truth["kind"]``."""

MULTISHAPES_KINDS: tuple[str, ...] = ("base", "house", "wheel", "grid")
"""Kinds of ``ba-multishapes``, in the order of ``truth["kind"]``."""

_MOTIFS = {  # five, five, six (a hub and a rim of five) and nine nodes
    "house": build_motif("house", 4),
    "cycle": build_motif("ring", 5),
    "wheel": build_motif("wheel", 5),
    "grid": build_motif("grid", 3),
}
_PAIRS = (("wheel", "grid"), ("house", "wheel"), ("house", "grid"))
_OTHERS: tuple[tuple[str, ...], ...] = (
    ("wheel",),
    ("house",),
    ("grid",),
    ("house", "grid", "wheel"),
    *[()] * 6,  # six of ten graphs of this class have no motif
)
_NUM_GRAPHS = 1000


def ba_2motifs(seed: int = 0, num_graphs: int = _NUM_GRAPHS) -> GraphStore:
    """Generates ``ba-2motifs``: 25 nodes, of which five are a house or a cycle.

    A house has six edges and a cycle five, so that the number of edges determines the class.

    Args:
        seed (int): Seed, 0 or more. (default: 0)
        num_graphs (int): Number of graphs, even; fewer are the beginning of more. (default: 1000)

    Returns:
        GraphStore: ``truth["part"]`` and ``truth["reason"]`` are 0 in the motif and −1 in the base; ``truth["kind"]``
        is an index into :data:`TWO_MOTIFS_KINDS`.

    Raises:
        ArgumentError: If the seed is negative or the number is odd.
    """
    _check("ba_2motifs", seed, num_graphs)
    random, house, cycle = PortableRandom(seed, 2), ("house",), ("cycle",)
    graphs, labels = _draw(num_graphs, 25, lambda label: cycle if label else house, TWO_MOTIFS_KINDS, random)
    return _to_store("ba-2motifs", graphs, labels, TWO_MOTIFS_KINDS[1:])


def ba_multishapes(seed: int = 0, num_graphs: int = _NUM_GRAPHS) -> GraphStore:
    """Generates ``ba-multishapes``: 40 nodes, and two different motifs or another number of them.

    As in the authors' program, the three pairs of class ``two`` are equally likely. Of class ``other``, six in ten
    graphs have no motif, and one in ten each a house, a wheel, a grid, and all three.

    Args:
        seed (int): Seed, 0 or more. (default: 0)
        num_graphs (int): Number of graphs, even; fewer are the beginning of more. (default: 1000)

    Returns:
        GraphStore: ``truth["part"]`` numbers the motifs of a graph from 0, −1 is the base; ``truth["reason"]`` is the
        same; ``truth["kind"]`` is an index into :data:`MULTISHAPES_KINDS`.

    Raises:
        ArgumentError: If the seed is negative or the number is odd.
    """
    _check("ba_multishapes", seed, num_graphs)
    random = PortableRandom(seed, 3)

    def motifs(label: int) -> Sequence[str]:
        return random.choose(_PAIRS if label else _OTHERS)

    graphs, labels = _draw(num_graphs, 40, motifs, MULTISHAPES_KINDS, random)
    return _to_store("ba-multishapes", graphs, labels, ("other", "two"))


def _draw(
    num_graphs: int,
    num_nodes: int,
    motifs: Callable[[int], Sequence[str]],
    kinds: Sequence[str],
    random: PortableRandom,
) -> tuple[list[_Graph], list[int]]:
    """Graphs and their classes, of which every other one is of each class.

    Args:
        num_graphs (int): Number of graphs, even.
        num_nodes (int): Number of nodes of a graph, motifs included.
        motifs (callable): Kinds of the motifs of a graph of a class.
        kinds (sequence): All kinds.
        random (PortableRandom): Draws the graphs.
    """
    graphs: list[_Graph] = []
    labels: list[int] = []
    for _ in range(num_graphs // 2):
        for label in random.shuffled(range(2)):
            attached = motifs(label)
            graph = _Graph(num_nodes - sum(_MOTIFS[kind].num_nodes for kind in attached), random)
            for kind in attached:
                graph.attach(kind, kinds, random)
            graph.shuffle(random)
            graphs.append(graph)
            labels.append(label)
    return graphs, labels


class _Graph:
    """A Barabási–Albert tree, to which motifs are attached.

    Args:
        size (int): Number of nodes of the tree.
        random (PortableRandom): Draws the edges.
    """

    def __init__(self, size: int, random: PortableRandom) -> None:
        self.part = [-1] * size
        self.kind = [0] * size
        self.edges = [(0, 1)]
        ends = [0, 1]  # each node as often as it has neighbours
        for node in range(2, size):
            earlier = random.choose(ends)
            self.edges.append((earlier, node))
            ends += [earlier, node]

    def attach(self, kind: str, kinds: Sequence[str], random: PortableRandom) -> None:
        """Adds a motif and one edge to it."""
        motif, first = _MOTIFS[kind], len(self.part)
        self.edges.append((random.below(first), first + random.below(motif.num_nodes)))
        self.edges += [(first + a, first + b) for a, b in motif.edges]
        self.part += [max(self.part) + 1] * motif.num_nodes
        self.kind += [kinds.index(kind)] * motif.num_nodes

    def shuffle(self, random: PortableRandom) -> None:
        """Numbers the nodes in random order."""
        order = random.shuffled(range(len(self.part)))
        row_of = {node: row for row, node in enumerate(order)}
        self.edges = [(row_of[a], row_of[b]) for a, b in self.edges]
        self.part = [self.part[node] for node in order]
        self.kind = [self.kind[node] for node in order]


def _to_store(
    name: str, graphs: Sequence[_Graph], labels: Sequence[int], class_names: tuple[str, ...]
) -> GraphStore:
    ends: list[tuple[int, int]] = []
    part: list[int] = []
    kind: list[int] = []
    for graph in graphs:
        ends += [(len(part) + a, len(part) + b) for a, b in graph.edges]
        part += graph.part
        kind += graph.kind
    source, target = torch.tensor(ends, dtype=torch.long).T
    edges = clean_edges(torch.cat([source, target]), torch.cat([target, source]), len(part))
    parts = torch.tensor(part)
    return GraphStore.from_clean_edges(
        name,
        torch.tensor([0, *(len(graph.part) for graph in graphs)]).cumsum(0),
        edges,
        y=torch.tensor(labels),
        class_names=class_names,
        truth={"part": parts, "kind": torch.tensor(kind), "reason": parts},
    )


def _check(owner: str, seed: int, num_graphs: int) -> None:
    if seed < 0:
        raise ArgumentError(owner, "seed", "be 0 or more", seed)
    if num_graphs < 2 or num_graphs % 2:
        raise ArgumentError(owner, "num_graphs", "be 2, 4, 6 … (half for each class)", num_graphs)
