"""The embedded data set ``planted-parts``: the class is who meets whom, and nothing else.

Every graph holds a ring, a star, a clique and a ladder, each hung on a common scaffold. Two pairs of them
also *meet*: by an edge, or by a short bridge. There are three ways to pair four parts, and these are the
three classes. A level has twelve profiles (sizes of parts, lengths, degrees of the ports); graphs of one
profile have the same number of nodes of every degree, and every profile serves all classes equally often.

The set is frozen: the default draws of the three levels are pinned by checksums in the tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeVar

import numpy as np
import torch

from graphcaps.data.datasets.motifs import CORE_KINDS, MOTIF_KINDS, Motif, build_motif
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.ops.edges import clean_edges

__all__ = [
    "LEVELS",
    "MATCHINGS",
    "MOTIF_KINDS",
    "NUM_PROFILES",
    "DegreeProfile",
    "GraphTemplate",
    "PlantedLevel",
    "PortableRandom",
    "planted_parts",
    "sample_profile",
    "sample_template",
]


T = TypeVar("T")
Range = tuple[int, int]  # both ends included

MATCHINGS = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
"""Which of the four core parts meet, for each class."""

_OTHER_KINDS = MOTIF_KINDS[1 + len(CORE_KINDS) :]


@dataclass(frozen=True)
class PlantedLevel:
    """The numbers of one level of difficulty; ranges include both ends.

    Args:
        sizes (dict): Range of the size of each kind of part, as :func:`build_motif` counts it.
        ports (str): Where bridges end: ``"marked"``, a node of the part's highest degree, which then tells
            the kinds apart; ``"any"``, any node of the part.
        bridge (tuple): Nodes of a bridge; 0 is a direct edge.
        spacing (tuple): Steps along the scaffold from one part's place to the next. Parts that do not meet
            are at least two more edges apart than the smallest spacing.
        side_nodes (tuple): Nodes of degree one hung on the scaffold.
        distractors (str): ``"none"``; ``"lone"``, one wheel, grid or comb that meets nothing; ``"couple"``,
            two parts of one kind, any of the seven, that meet each other.
        noise (int): Parts that are blurred: a clique loses an edge, any other part gains one inside.
    """

    sizes: dict[str, Range]
    ports: Literal["marked", "any"]
    bridge: Range
    spacing: Range
    side_nodes: Range = (0, 0)
    distractors: Literal["none", "lone", "couple"] = "none"
    noise: int = 0


class PortableRandom:
    """Random choices from the raw bits of PCG64.

    numpy keeps the bits of a bit generator stable between versions but not what its ``Generator`` makes
    of them, so that the few choices needed are made here. The remainder of 64 bits by a number below 100
    is uniform to one part in 10^17.
    """

    def __init__(self, *seeds: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seeds))
        self._ready: list[int] = []  # words drawn ahead, last one first, since single calls are slow

    def below(self, end: int) -> int:
        if not self._ready:
            self._ready = self._bits.random_raw(1024)[::-1].tolist()
        return self._ready.pop() % end

    def between(self, ends: Range) -> int:
        return ends[0] + self.below(ends[1] - ends[0] + 1)

    def choose(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def shuffled(self, items: Iterable[T]) -> list[T]:
        order = list(items)
        for i in range(len(order) - 1, 0, -1):
            j = self.below(i + 1)
            order[i], order[j] = order[j], order[i]
        return order


@dataclass(frozen=True)
class DegreeProfile:
    """What graphs of equal degree histogram share.

    Args:
        variants (tuple): For each part the shapes it may take, all with the same degrees (several only
            where the part is blurred).
        port_degrees (tuple): Degree, inside its part, of the node where the part's bridge ends.
        hanger_degrees (tuple): The same for the node that is joined to the scaffold.
        gaps (tuple): Steps along the scaffold between the places of parts, in any order.
        bridges (tuple): Nodes of each bridge, in any order: the first two make the class.
        side_nodes (int): Nodes of degree one hung on the scaffold.
    """

    variants: tuple[tuple[Motif, ...], ...]
    port_degrees: tuple[int, ...]
    hanger_degrees: tuple[int, ...]
    gaps: tuple[int, ...]
    bridges: tuple[int, ...]
    side_nodes: int


def sample_profile(level: PlantedLevel, turn: int, draw: PortableRandom) -> DegreeProfile:
    """Draws sizes, lengths and the degrees of ports; kinds of distractors take turns."""
    kinds = list(CORE_KINDS)
    if level.distractors == "lone":
        kinds += [_OTHER_KINDS[turn % len(_OTHER_KINDS)]]
    elif level.distractors == "couple":
        kinds += [MOTIF_KINDS[1:][turn % len(MOTIF_KINDS[1:])]] * 2
    variants: list[tuple[Motif, ...]] = []
    for kind in kinds:
        variants.append((build_motif(kind, draw.between(level.sizes[kind])),))
    for number in draw.shuffled(range(len(kinds)))[: level.noise]:
        blurs = variants[number][0].blurs()
        degrees = sorted(draw.choose(blurs).degrees)
        variants[number] = tuple(part for part in blurs if sorted(part.degrees) == degrees)

    port_degrees, hanger_degrees = [], []
    for shapes in variants:
        degrees = draw.shuffled(shapes[0].degrees)
        if level.ports == "marked":
            degrees.insert(0, degrees.pop(degrees.index(max(degrees))))
        port_degrees.append(degrees[0])
        hanger_degrees.append(degrees[1])
    return DegreeProfile(
        variants=tuple(variants),
        port_degrees=tuple(port_degrees),
        hanger_degrees=tuple(hanger_degrees),
        gaps=tuple(draw.between(level.spacing) for _ in kinds[1:]),
        bridges=tuple(draw.between(level.bridge) for _ in range(3 if level.distractors == "couple" else 2)),
        side_nodes=draw.between(level.side_nodes),
    )


@dataclass
class GraphTemplate:
    """One graph but for the two meetings that make its class.

    Args:
        part, kind (list): The truth, one number per node.
        edges (list): Edges of parts, scaffold and distractors.
        ports (list): Node of each part where its bridge ends.
        bridges (list): Nodes of the two bridges that make the class.
    """

    part: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    bridges: list[list[int]] = field(default_factory=list)

    @property
    def num_nodes(self) -> int:
        return len(self.part)

    def add_nodes(self, count: int, part: int = -1, kind: int = 0) -> list[int]:
        self.part += [part] * count
        self.kind += [kind] * count
        return list(range(self.num_nodes - count, self.num_nodes))

    def edges_of_class(self, label: int) -> list[tuple[int, int]]:
        """All edges, with the parts of the given class meeting; only the ends of bridges depend on it."""
        meetings: list[tuple[int, int]] = []
        for (a, b), bridge in zip(MATCHINGS[label], self.bridges, strict=True):
            meetings += pairwise([self.ports[a], *bridge, self.ports[b]])
        return self.edges + meetings


def sample_template(profile: DegreeProfile, draw: PortableRandom) -> GraphTemplate:
    """Draws ports, the order along the scaffold, the places of side nodes and which bridge is how long."""
    plan = GraphTemplate()
    hangers = []
    for number, shapes in enumerate(profile.variants):
        part = draw.choose(shapes)
        nodes = plan.add_nodes(part.num_nodes, number, MOTIF_KINDS.index(part.kind))
        plan.edges += [(nodes[a], nodes[b]) for a, b in part.edges]
        order, degrees = draw.shuffled(range(part.num_nodes)), part.degrees
        port = next(v for v in order if degrees[v] == profile.port_degrees[number])
        hanger = next(v for v in order if v != port and degrees[v] == profile.hanger_degrees[number])
        plan.ports.append(nodes[port])
        hangers.append(nodes[hanger])

    # Parts hang along a path in random order, so that neighbours on the scaffold tell nothing.
    backbone = plan.add_nodes(1)
    between: list[int] = []
    for gap, hanger in zip([0, *draw.shuffled(profile.gaps)], draw.shuffled(hangers), strict=True):
        step = plan.add_nodes(gap)
        between += step[:-1]
        backbone += step
        plan.edges.append((backbone[-1], hanger))
    plan.edges += pairwise(backbone)
    for place in draw.shuffled(between)[: profile.side_nodes]:
        plan.edges.append((place, plan.add_nodes(1)[0]))

    bridges = [plan.add_nodes(length) for length in draw.shuffled(profile.bridges)]
    plan.bridges = bridges[:2]
    for couple in bridges[2:]:
        plan.edges += pairwise([plan.ports[4], *couple, plan.ports[5]])
    return plan


NUM_PROFILES = 12
"""Profiles of a draw; graphs 3k, 3k + 1 and 3k + 2 have profile k modulo this number."""

LEVELS: dict[str, PlantedLevel] = {
    "easy": PlantedLevel(
        sizes={"ring": (5, 7), "star": (6, 8), "clique": (5, 6), "ladder": (3, 4)},
        ports="marked",
        bridge=(0, 0),
        spacing=(2, 3),
    ),
    "medium": PlantedLevel(
        sizes={
            "ring": (5, 9),
            "star": (4, 8),
            "clique": (4, 6),
            "ladder": (3, 5),
            "wheel": (5, 7),
            "grid": (3, 3),
            "comb": (3, 5),
        },
        ports="any",
        bridge=(1, 1),
        spacing=(2, 3),
        side_nodes=(0, 2),
        distractors="lone",
    ),
    "hard": PlantedLevel(
        sizes={
            "ring": (5, 9),
            "star": (4, 8),
            "clique": (4, 6),
            "ladder": (3, 5),
            "wheel": (5, 7),
            "grid": (3, 3),
            "comb": (3, 5),
        },
        ports="any",
        bridge=(2, 3),
        spacing=(3, 4),
        side_nodes=(1, 4),
        distractors="couple",
        noise=2,
    ),
}
"""The three levels; frozen, since figures are quoted for them."""


def planted_parts(
    level: Literal["easy", "medium", "hard"] = "easy", seed: int = 0, num_graphs: int | None = None
) -> GraphStore:
    """Draws graphs of planted parts, in which the class is which kinds of parts meet.

    Graphs ``3k``, ``3k + 1`` and ``3k + 2`` are one graph of each class, in random order, with the same
    number of nodes of every degree. A smaller draw is the beginning of a larger one with the same seed. The
    same level and seed give the same arrays everywhere.

    Args:
        level (str): ``"easy"``, ``"medium"`` or ``"hard"``, see :data:`LEVELS`. (default: ``"easy"``)
        seed (int): Seed of the draw, 0 or more; the frozen set is seed 0. (default: 0)
        num_graphs (int, optional): Number of graphs, a multiple of three. (default: 360)

    Returns:
        GraphStore: No labels, no attributes. ``truth["part"] [N]`` numbers the parts of a graph (0 to 3 are
        ring, star, clique and ladder, 4 and 5 are distractors, −1 is scaffold or bridge) and
        ``truth["kind"] [N]`` counts in :data:`MOTIF_KINDS`.

    Raises:
        ArgumentError: If the level is unknown, the seed is negative or the number is no multiple of three.
    """
    if level not in LEVELS:
        raise ArgumentError("planted_parts", "level", f"be one of {', '.join(LEVELS)}", repr(level))
    if seed < 0:
        raise ArgumentError("planted_parts", "seed", "be 0 or more", seed)
    count = 360 if num_graphs is None else num_graphs
    if count < 3 or count % 3:
        raise ArgumentError("planted_parts", "num_graphs", "be 3, 6, 9 … (a third for each class)", count)

    draw = PortableRandom(seed, tuple(LEVELS).index(level))
    profiles = [sample_profile(LEVELS[level], turn, draw) for turn in range(NUM_PROFILES)]
    ends: list[tuple[int, int]] = []
    sizes: list[int] = []
    y: list[int] = []
    part: list[int] = []
    kind: list[int] = []
    for turn in range(count // 3):
        for label in draw.shuffled(range(3)):
            plan = sample_template(profiles[turn % NUM_PROFILES], draw)
            order = draw.shuffled(range(plan.num_nodes))  # the planned node at each place
            place = {node: len(part) + i for i, node in enumerate(order)}
            ends += [(place[a], place[b]) for a, b in plan.edges_of_class(label)]
            part += [plan.part[node] for node in order]
            kind += [plan.kind[node] for node in order]
            sizes.append(plan.num_nodes)
            y.append(label)

    source, target = torch.tensor(ends, dtype=torch.long).T
    edges = clean_edges(torch.cat([source, target]), torch.cat([target, source]), len(part))
    return GraphStore.from_clean_edges(
        f"planted-parts-{level}",
        torch.tensor([0, *sizes]).cumsum(0),
        edges,
        y=torch.tensor(y),
        # Named after what the ring meets; the other two kinds meet as well.
        class_names=tuple(f"{CORE_KINDS[0]}-{CORE_KINDS[pairs[0][1]]}" for pairs in MATCHINGS),
        truth={"part": torch.tensor(part), "kind": torch.tensor(kind)},
    )
