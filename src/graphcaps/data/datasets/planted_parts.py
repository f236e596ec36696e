"""The embedded data set ``planted-parts``: graphs whose class depends only on which motifs are connected.

Every graph holds a ring, a star, a clique and a ladder, each attached to a common scaffold. Two pairs of them are also
connected directly, by an edge or a short bridge. Four motifs can be paired in three ways: these are the three classes.

A difficulty level has twelve degree profiles (sizes of motifs, lengths of bridges, degrees of ports). Graphs of one
profile have the same number of nodes of every degree, and every profile occurs equally often in all classes.

The data set is frozen: tests pin the checksums of the default graphs of the three levels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch

from graphcaps.data.datasets.motifs import CORE_KINDS, MOTIF_KINDS, Motif, build_motif
from graphcaps.data.datasets.portable_random import PortableRandom, Range
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
    "planted_parts",
    "sample_profile",
    "sample_template",
]


MATCHINGS = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
"""Pairs of the four core motifs that are connected, for each class."""

_OTHER_KINDS = MOTIF_KINDS[1 + len(CORE_KINDS) :]


@dataclass(frozen=True)
class PlantedLevel:
    """Parameters of one difficulty level. Ranges include both ends.

    Args:
        sizes (dict): Range of the size of each kind of motif, in the unit of :func:`build_motif`.
        ports (str): Nodes where bridges end. ``"marked"`` is a node of highest degree in the motif, which then
            identifies the kind; ``"any"`` is any node of the motif.
        bridge (tuple): Number of nodes of a bridge; 0 is a direct edge.
        spacing (tuple): Number of steps along the scaffold between neighbouring motifs. Motifs that are not connected
            are at least two edges further apart than the smallest spacing.
        side_nodes (tuple): Number of nodes of degree one attached to the scaffold.
        distractors (str): ``"none"``; ``"single"``, one wheel, grid or comb that is connected to no motif; ``"pair"``,
            two motifs of one kind, any of the seven, that are connected to each other.
        noise (int): Number of motifs that are perturbed: a clique loses an edge, any other motif gains one.
    """

    sizes: dict[str, Range]
    ports: Literal["marked", "any"]
    bridge: Range
    spacing: Range
    side_nodes: Range = (0, 0)
    distractors: Literal["none", "single", "pair"] = "none"
    noise: int = 0


@dataclass(frozen=True)
class DegreeProfile:
    """Properties that determine the degree histogram of a graph; all graphs of a profile share them.

    Args:
        variants (tuple): Possible motifs of each part, all with the same degrees; more than one only if the motif is
            perturbed.
        port_degrees (tuple): Degree, inside its motif, of the node where the bridge of each part ends.
        anchor_degrees (tuple): Degree, inside its motif, of the node of each part that is attached to the scaffold.
        gaps (tuple): Steps along the scaffold between neighbouring parts, in any order.
        bridges (tuple): Number of nodes of each bridge, in any order.
        side_nodes (int): Number of nodes of degree one attached to the scaffold.
    """

    variants: tuple[tuple[Motif, ...], ...]
    port_degrees: tuple[int, ...]
    anchor_degrees: tuple[int, ...]
    gaps: tuple[int, ...]
    bridges: tuple[int, ...]
    side_nodes: int


def sample_profile(level: PlantedLevel, index: int, random: PortableRandom) -> DegreeProfile:
    """Samples profile ``index`` of a level: sizes, lengths and degrees. Distractors cycle through the kinds."""
    kinds = list(CORE_KINDS)
    if level.distractors == "single":
        kinds += [_OTHER_KINDS[index % len(_OTHER_KINDS)]]
    elif level.distractors == "pair":
        kinds += [MOTIF_KINDS[1:][index % len(MOTIF_KINDS[1:])]] * 2
    variants: list[tuple[Motif, ...]] = []
    for kind in kinds:
        variants.append((build_motif(kind, random.between(level.sizes[kind])),))
    for part in random.shuffled(range(len(kinds)))[: level.noise]:
        perturbed = variants[part][0].perturbations()
        degrees = sorted(random.choose(perturbed).degrees)
        variants[part] = tuple(motif for motif in perturbed if sorted(motif.degrees) == degrees)

    port_degrees, anchor_degrees = [], []
    for motifs in variants:
        degrees = random.shuffled(motifs[0].degrees)
        if level.ports == "marked":
            degrees.insert(0, degrees.pop(degrees.index(max(degrees))))
        port_degrees.append(degrees[0])
        anchor_degrees.append(degrees[1])
    return DegreeProfile(
        variants=tuple(variants),
        port_degrees=tuple(port_degrees),
        anchor_degrees=tuple(anchor_degrees),
        gaps=tuple(random.between(level.spacing) for _ in kinds[1:]),
        bridges=tuple(random.between(level.bridge) for _ in range(3 if level.distractors == "pair" else 2)),
        side_nodes=random.between(level.side_nodes),
    )


@dataclass
class GraphTemplate:
    """A graph without the two connections that determine its class.

    Args:
        part, kind (list): Ground truth, one number per node.
        edges (list): Edges of motifs, scaffold and distractors.
        ports (list): Node of each part where its bridge ends.
        bridges (list): Nodes of the two bridges that determine the class.
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
        """Adds nodes and returns their indices."""
        self.part += [part] * count
        self.kind += [kind] * count
        return list(range(self.num_nodes - count, self.num_nodes))

    def edges_of_class(self, label: int) -> list[tuple[int, int]]:
        """All edges of the graph of class ``label``. Only the ends of the two bridges depend on the class."""
        connections: list[tuple[int, int]] = []
        for (a, b), bridge in zip(MATCHINGS[label], self.bridges, strict=True):
            connections += pairwise([self.ports[a], *bridge, self.ports[b]])
        return self.edges + connections


def sample_template(profile: DegreeProfile, random: PortableRandom) -> GraphTemplate:
    """Samples ports, the order along the scaffold, the positions of side nodes and the lengths of the bridges."""
    template = GraphTemplate()
    anchors = []
    for part, motifs in enumerate(profile.variants):
        motif = random.choose(motifs)
        nodes = template.add_nodes(motif.num_nodes, part, MOTIF_KINDS.index(motif.kind))
        template.edges += [(nodes[a], nodes[b]) for a, b in motif.edges]
        order, degrees = random.shuffled(range(motif.num_nodes)), motif.degrees
        port = next(v for v in order if degrees[v] == profile.port_degrees[part])
        anchor = next(v for v in order if v != port and degrees[v] == profile.anchor_degrees[part])
        template.ports.append(nodes[port])
        anchors.append(nodes[anchor])

    # Parts are attached along a path in random order, so that neighbours on the scaffold carry no information.
    backbone = template.add_nodes(1)
    inner: list[int] = []
    for gap, anchor in zip([0, *random.shuffled(profile.gaps)], random.shuffled(anchors), strict=True):
        step = template.add_nodes(gap)
        inner += step[:-1]
        backbone += step
        template.edges.append((backbone[-1], anchor))
    template.edges += pairwise(backbone)
    for node in random.shuffled(inner)[: profile.side_nodes]:
        template.edges.append((node, template.add_nodes(1)[0]))

    bridges = [template.add_nodes(length) for length in random.shuffled(profile.bridges)]
    template.bridges = bridges[:2]
    for bridge in bridges[2:]:  # connects a pair of distractors
        template.edges += pairwise([template.ports[4], *bridge, template.ports[5]])
    return template


NUM_PROFILES = 12
"""Number of degree profiles of a level; graphs 3k, 3k + 1 and 3k + 2 have profile k modulo this number."""

_VARIED_SIZES = {
    "ring": (5, 9),
    "star": (4, 8),
    "clique": (4, 6),
    "ladder": (3, 5),
    "wheel": (5, 7),
    "grid": (3, 3),
    "comb": (3, 5),
}

LEVELS: dict[str, PlantedLevel] = {
    "easy": PlantedLevel(
        sizes={"ring": (5, 7), "star": (6, 8), "clique": (5, 6), "ladder": (3, 4)},
        ports="marked",
        bridge=(0, 0),
        spacing=(2, 3),
    ),
    "medium": PlantedLevel(
        sizes=_VARIED_SIZES,
        ports="any",
        bridge=(1, 1),
        spacing=(2, 3),
        side_nodes=(0, 2),
        distractors="single",
    ),
    "hard": PlantedLevel(
        sizes=_VARIED_SIZES,
        ports="any",
        bridge=(2, 3),
        spacing=(3, 4),
        side_nodes=(1, 4),
        distractors="pair",
        noise=2,
    ),
}
"""Parameters of the three levels, which are frozen because published results depend on them."""


def planted_parts(
    level: Literal["easy", "medium", "hard"] = "easy", seed: int = 0, num_graphs: int | None = None
) -> GraphStore:
    """Generates graphs of planted motifs, in which the class is determined by the motifs that are connected.

    Graphs ``3k``, ``3k + 1`` and ``3k + 2`` are one graph of each class, in random order, with the same number of nodes
    of every degree. With the same seed, fewer graphs are the beginning of more graphs. The same level and seed give the
    same arrays on every machine.

    Args:
        level (str): ``"easy"``, ``"medium"`` or ``"hard"``, see :data:`LEVELS`. (default: ``"easy"``)
        seed (int): Seed, 0 or more; the frozen data set has seed 0. (default: 0)
        num_graphs (int, optional): Number of graphs, a multiple of three. (default: 360)

    Returns:
        GraphStore: Graphs without labels and attributes. ``truth["part"] [N]`` is the part of each node: 0 to 3 are
        ring, star, clique and ladder, 4 and 5 are distractors, −1 is scaffold or bridge. ``truth["kind"] [N]`` is an
        index into :data:`MOTIF_KINDS`. ``truth["reason"] [N]`` is the part of nodes of the four motifs that determine
        the class, −1 elsewhere.

    Raises:
        ArgumentError: If the level is unknown, the seed is negative or the number is not a multiple of three.
    """
    if level not in LEVELS:
        raise ArgumentError("planted_parts", "level", f"be one of {', '.join(LEVELS)}", repr(level))
    if seed < 0:
        raise ArgumentError("planted_parts", "seed", "be 0 or more", seed)
    count = 360 if num_graphs is None else num_graphs
    if count < 3 or count % 3:
        raise ArgumentError("planted_parts", "num_graphs", "be 3, 6, 9 … (a third for each class)", count)

    random = PortableRandom(seed, tuple(LEVELS).index(level))
    profiles = [sample_profile(LEVELS[level], index, random) for index in range(NUM_PROFILES)]
    ends: list[tuple[int, int]] = []
    sizes: list[int] = []
    y: list[int] = []
    part: list[int] = []
    kind: list[int] = []
    for triple in range(count // 3):
        for label in random.shuffled(range(3)):
            template = sample_template(profiles[triple % NUM_PROFILES], random)
            order = random.shuffled(range(template.num_nodes))  # node of the template at each row
            row_of = {node: len(part) + row for row, node in enumerate(order)}
            ends += [(row_of[a], row_of[b]) for a, b in template.edges_of_class(label)]
            part += [template.part[node] for node in order]
            kind += [template.kind[node] for node in order]
            sizes.append(template.num_nodes)
            y.append(label)

    source, target = torch.tensor(ends, dtype=torch.long).T
    parts = torch.tensor(part)
    edges = clean_edges(torch.cat([source, target]), torch.cat([target, source]), len(part))
    return GraphStore.from_clean_edges(
        f"planted-parts-{level}",
        torch.tensor([0, *sizes]).cumsum(0),
        edges,
        y=torch.tensor(y),
        # Named after the motif that is connected to the ring; the other two are connected as well.
        class_names=tuple(f"{CORE_KINDS[0]}-{CORE_KINDS[pairs[0][1]]}" for pairs in MATCHINGS),
        truth={
            "part": parts,
            "kind": torch.tensor(kind),
            "reason": parts.where(parts < len(CORE_KINDS), -1),
        },
    )
