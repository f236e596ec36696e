"""The flow of a graph's nodes through the capsules of every level to the classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcaps.explanation.drawings_base import class_label, colour_of, ink_on, new_figure
from graphcaps.explanation.types import Explanation

__all__ = ["draw_flow", "flow_masses"]

_BAR = 0.045  # width of a block, in units of the distance between two columns
_GAP = 0.025  # between two blocks, as a share of the height


def flow_masses(explanation: Explanation) -> list[np.ndarray]:
    """Share of the graph in each block: all of it in the nodes, then per level in each capsule."""
    mass = np.full(explanation.num_nodes, 1 / explanation.num_nodes)
    found = [np.ones(1)]
    for own in explanation.levels:
        mass = mass @ own.assignment.double().numpy()
        found.append(mass)
    return found


def draw_flow(explanation: Explanation) -> Any:
    """A figure with a column of blocks per level; a ribbon is as wide as the routing weights that it stands for."""
    masses = flow_masses(explanation)
    scale = 1 - _GAP * (max(len(own) for own in masses) - 1)
    starts = [_stack(own, scale) for own in masses]
    figure = new_figure(2.9 * len(masses) + 0.6, 4.9)
    axis = figure.add_axes((0.02, 0.03, 0.96, 0.82))
    for column, own in enumerate(explanation.levels):
        weights = masses[1][None] if column == 0 else own.assignment.double().numpy()
        out, into = starts[column].copy(), starts[column + 1].copy()
        for part, mass in enumerate(masses[column]):
            for j, weight in enumerate(weights[part]):
                height = mass * weight * scale
                if height > 1e-4:
                    colour = colour_of(j if column == 0 else part)
                    _ribbon(axis, column + _BAR, out[part], column + 1, into[j], height, colour)
                out[part] += height
                into[j] += height
    for column in range(len(masses)):
        _column(axis, explanation, column, masses[column] * scale, starts[column])
    axis.set(xlim=(-0.05, len(masses) - 1 + 0.5), ylim=(1.09, -0.01))
    axis.axis("off")
    return figure


def _stack(mass: np.ndarray, scale: float) -> np.ndarray:
    """Upper ends of blocks one below the other, in the middle of the height."""
    heights = mass * scale
    free = 1 - heights.sum() - _GAP * (len(mass) - 1)
    return 0.06 + free / 2 + np.concatenate([[0.0], np.cumsum(heights + _GAP)[:-1]])


def _ribbon(axis: Any, x1: float, y1: float, x2: float, y2: float, height: float, colour: str) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    half = (x1 + x2) / 2
    points = [
        *((x1, y1), (half, y1), (half, y2), (x2, y2)),
        *((x2, y2 + height), (half, y2 + height), (half, y1 + height), (x1, y1 + height)),
        (x1, y1),
    ]
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    axis.add_patch(PathPatch(Path(points, codes), facecolor=colour, alpha=0.5, linewidth=0))


def _column(
    axis: Any, explanation: Explanation, column: int, heights: np.ndarray, starts: np.ndarray
) -> None:
    from matplotlib.patches import Rectangle

    last = len(explanation.levels)
    level = f" of level {column}" if last > 2 else ""
    heading = (
        f"{explanation.num_nodes} nodes"
        if column == 0
        else "classes"
        if column == last
        else f"capsules{level}"
    )
    axis.text(column, 0.01, heading, ha="left", va="bottom", fontsize=9.5, color="#444444")
    for j, (start, height) in enumerate(zip(starts, heights, strict=True)):
        inner = 0 < column < last
        colour = colour_of(j) if inner else "#6B7480"
        axis.add_patch(
            Rectangle((column, start), _BAR, height, facecolor=colour, edgecolor="#333333", linewidth=0.5)
        )
        middle = start + height / 2
        if inner and height > 0.025:
            axis.text(column + _BAR / 2, middle, str(j + 1), ha="center", va="center_baseline", fontsize=7.5,
                      color=ink_on(colour))  # fmt: skip
        if column == last:
            name, score = class_label(explanation.class_names[j]), float(explanation.class_scores[j])
            short = name if len(name) <= 18 else f"{name[:17]}…"
            weight = "bold" if j == explanation.predicted else "normal"
            axis.text(column + _BAR + 0.02, middle, f"{short}\nlength {score:.2f}", ha="left", va="center", fontsize=9,
                      fontweight=weight)  # fmt: skip
