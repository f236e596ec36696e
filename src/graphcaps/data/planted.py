"""The embedded data set ``planted-parts``: the class is who meets whom, and nothing else.

Every graph holds a ring, a star, a clique and a ladder, each hung on a common scaffold. Two pairs of them
also *meet*: by an edge, or by a short bridge. There are three ways to pair four parts, and these are the
three classes. A level has twelve profiles (sizes of parts, lengths, degrees of the ports); graphs of one
profile have the same number of nodes of every degree, and every profile serves all classes equally often.

The set is frozen: the default draws of the three levels are pinned by checksums in the tests.
"""

from __future__ import annotations

from typing import Literal

import torch

from graphcaps.data.parts import CORE_KINDS, PART_KINDS
from graphcaps.data.planting import MATCHINGS, Draw, PlantedLevel, draw_plan, draw_profile
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.ops.edges import clean_edges

__all__ = ["LEVELS", "NUM_PROFILES", "PART_KINDS", "PlantedLevel", "planted_parts"]

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
        ``truth["kind"] [N]`` counts in :data:`PART_KINDS`.

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

    draw = Draw(seed, tuple(LEVELS).index(level))
    profiles = [draw_profile(LEVELS[level], turn, draw) for turn in range(NUM_PROFILES)]
    ends: list[tuple[int, int]] = []
    sizes: list[int] = []
    y: list[int] = []
    part: list[int] = []
    kind: list[int] = []
    for turn in range(count // 3):
        for label in draw.shuffled(range(3)):
            plan = draw_plan(profiles[turn % NUM_PROFILES], draw)
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
