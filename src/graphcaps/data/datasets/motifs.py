"""Motifs of the generated data sets: rings, stars, cliques, houses and other small graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["CORE_KINDS", "MOTIF_KINDS", "Motif", "build_motif"]

Edges = list[tuple[int, int]]

CORE_KINDS: tuple[str, ...] = ("ring", "star", "clique", "ladder")
"""The four motifs of every graph; which of them are connected determines the class."""

MOTIF_KINDS: tuple[str, ...] = ("scaffold", *CORE_KINDS, "wheel", "grid", "comb")
"""Kinds of ``planted-parts``, in the order of ``truth["kind"]``. Nodes that belong to no motif are scaffold."""


@dataclass(frozen=True)
class Motif:
    """A small graph that is planted as one part of a larger graph.

    Args:
        kind (str): One of :data:`MOTIF_KINDS`, except ``"scaffold"``, or ``"house"``.
        num_nodes (int): Number of nodes, numbered from 0.
        edges (tuple): Undirected edges, each listed once.
    """

    kind: str
    num_nodes: int
    edges: tuple[tuple[int, int], ...]

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degree of each node inside the motif."""
        counts = [0] * self.num_nodes
        for edge in self.edges:
            for node in edge:
                counts[node] += 1
        return tuple(counts)

    def perturbations(self) -> tuple[Motif, ...]:
        """All motifs with one more edge than this one, or, for a clique, with one edge less."""
        pairs = [(a, b) for b in range(self.num_nodes) for a in range(b)]
        present = {(min(edge), max(edge)) for edge in self.edges}
        missing = [pair for pair in pairs if pair not in present]
        if missing:
            changed = [(*self.edges, pair) for pair in missing]
        else:
            changed = [tuple(pair for pair in pairs if pair != removed) for removed in pairs]
        return tuple(Motif(self.kind, self.num_nodes, edges) for edges in changed)


def build_motif(kind: str, size: int) -> Motif:
    """Builds a motif. The meaning of ``size`` depends on the kind:

    ============  ===========================================  ==========
    kind          ``size`` counts                              nodes
    ============  ===========================================  ==========
    ``ring``      nodes of one cycle                           size
    ``star``      leaves around one hub                        size + 1
    ``clique``    nodes, all connected to each other           size
    ``ladder``    rungs                                        2 · size
    ``wheel``     nodes of the rim around one hub              size + 1
    ``grid``      columns of three nodes                       3 · size
    ``comb``      nodes of the spine, each with one tooth      2 · size
    ``house``     nodes of the square below the roof, 4        size + 1
    ============  ===========================================  ==========
    """
    edges = _EDGES[kind](size)
    return Motif(kind, 1 + max(max(edge) for edge in edges), tuple(edges))


def _ring(size: int) -> Edges:
    return [(i, (i + 1) % size) for i in range(size)]


def _star(size: int) -> Edges:
    return [(0, leaf) for leaf in range(1, size + 1)]


def _clique(size: int) -> Edges:
    return [(i, j) for j in range(size) for i in range(j)]


def _ladder(size: int) -> Edges:
    rungs = [(2 * i, 2 * i + 1) for i in range(size)]
    rails = [(i, i + 2) for i in range(2 * size - 2)]
    return rungs + rails


def _wheel(size: int) -> Edges:
    return _star(size) + [(i + 1, j + 1) for i, j in _ring(size)]


def _grid(size: int) -> Edges:
    columns = [(3 * i + k, 3 * i + k + 1) for i in range(size) for k in range(2)]
    rows = [(i, i + 3) for i in range(3 * size - 3)]
    return columns + rows


def _comb(size: int) -> Edges:
    spine = [(2 * i, 2 * i + 2) for i in range(size - 1)]
    teeth = [(2 * i, 2 * i + 1) for i in range(size)]
    return spine + teeth


def _house(size: int) -> Edges:
    return [*_ring(size), (0, size), (1, size)]


_EDGES: dict[str, Callable[[int], Edges]] = {
    "ring": _ring,
    "star": _star,
    "clique": _clique,
    "ladder": _ladder,
    "wheel": _wheel,
    "grid": _grid,
    "comb": _comb,
    "house": _house,
}
