"""Pictures of one explanation: parts, scores, flow, assignment, iterations, or the molecule."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from graphcaps.errors import ArgumentError
from graphcaps.explanation.contribution_flow import contribution_flow
from graphcaps.explanation.explanation_data import ExplainedLevel, ExplanationData
from graphcaps.explanation.graph_drawing import (
    check_suffix,
    class_label,
    draw_graph,
    new_figure,
    normalise_scores,
    save_figure,
)
from graphcaps.explanation.graph_layout import layout_nodes, separate_discs
from graphcaps.explanation.molecule_drawings import can_draw_molecule, draw_explained_molecule
from graphcaps.explanation.palette import AGAINST, WHITE, capsule_colour, score_colour, text_colour

__all__ = ["DrawingKind", "draw_explanation", "flow_masses"]

DrawingKind = Literal["parts", "scores", "flow", "assignment", "iterations", "molecule"]
"""Kinds of pictures; see :func:`draw_explanation`."""


def draw_explanation(
    explanation: ExplanationData, path: str | Path, *, kind: DrawingKind | None = None
) -> None:
    """Draws the explanation of one graph as SVG, PNG or PDF, by the suffix of the path.

    Args:
        explanation (Explanation): Explanation of one graph.
        path (str or Path): Picture to write.
        kind (str): ``"parts"``: the graph with nodes coloured by capsule, and the coarse graph. ``"scores"``: the graph
            with nodes coloured by score. ``"flow"``: contributions of capsules to the class scores as a Sankey
            diagram; those to a class add up to its score. ``"assignment"``: routing coefficients as heat maps.
            ``"iterations"``: the assignment after each routing iteration, paler for lower coefficients.
            ``"molecule"``: a molecule read from SMILES, by capsule and by score, as SVG or PNG with RDKit. (default:
            ``"molecule"`` if the graph was read from SMILES, RDKit is installed and the suffix is ``.svg`` or ``.png``;
            else ``"parts"``)

    Raises:
        ArgumentError: If the kind or the suffix is unknown, the graph is not a molecule, or it has no nodes.
        MissingExtraError: For ``"molecule"`` without RDKit.
    """
    if explanation.note:
        raise ArgumentError("draw_explanation", "explanation", "be of a graph with nodes", "one without")
    if kind is None:
        kind = "molecule" if can_draw_molecule(explanation, path) else "parts"
    if kind not in get_args(DrawingKind):
        raise ArgumentError(
            "draw_explanation", "kind", f"be one of {', '.join(get_args(DrawingKind))}", repr(kind)
        )
    if kind == "molecule":
        draw_explained_molecule(explanation, path)
        return
    from matplotlib import rc_context

    check_suffix("draw_explanation", path)
    draw = {
        "parts": _draw_parts,
        "scores": _draw_scores,
        "flow": _draw_flow,
        "assignment": _draw_assignment,
        "iterations": _draw_iterations,
    }[kind]
    # Class names may contain dollar signs, which are not mathematics here; text stays text in SVG.
    settings = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "graphcaps"}
    with rc_context({**settings, "font.family": "sans-serif"}):
        figure = draw(explanation)
        figure.text(0.012, 0.985, _title(explanation), ha="left", va="top", fontsize=11, fontweight="bold")
        save_figure(figure, path)


def _title(explanation: ExplanationData) -> str:
    names = [class_label(name) for name in explanation.class_names]
    predicted, true = explanation.predicted, explanation.true_class
    probability = float(explanation.probabilities[predicted])
    truth = "" if true is None else ", correct" if true == predicted else f"; true class {names[true]}"
    return f"Graph {explanation.graph + 1}: predicted {names[predicted]} ({100 * probability:.0f} %){truth}"


# ---------------------------------------------------------------------- parts
def _draw_parts(explanation: ExplanationData) -> Any:
    """The graph and its coarse graph side by side; with several levels a column of both for each."""
    hidden = explanation.levels[:-1]
    positions = layout_nodes(explanation.num_nodes, explanation.edges.numpy())
    masses, capsules = flow_masses(explanation), node_paths(explanation)
    if len(hidden) == 1:
        figure = new_figure(9.8, 4.9)
        axes = figure.subplots(1, 2, width_ratios=[1.6, 1.0], squeeze=False).T
    else:
        figure = new_figure(5.2 * len(hidden), 8.6)
        axes = figure.subplots(2, len(hidden), squeeze=False)
    for number, (level, capsule) in enumerate(zip(hidden, capsules, strict=True)):
        above, below = axes[:, number]
        of = f" of level {number + 1}" if len(hidden) > 1 else ""
        _draw_nodes(above, explanation, positions, capsule)
        above.set_title(f"Nodes, coloured and numbered by capsule{of}", fontsize=10)
        _draw_coarse(below, level, masses[number + 1], positions, capsule)
        below.set_title(f"Coarse graph{of}\nsize: share of the graph", fontsize=10)
    counts = np.bincount(capsules[0], minlength=hidden[0].lengths.numel())
    listed = ", ".join(f"{j + 1}: {count}" for j, count in enumerate(counts) if count)
    caption = f"Nodes per capsule{' of level 1' if len(hidden) > 1 else ''}: {listed}"
    if counts.max() == explanation.num_nodes > 1:  # one colour carries no information
        caption += ". All nodes share one capsule; use kind='scores' to see which nodes support the class."
    elif explanation.levels[0].is_nearly_uniform:
        caption += (
            ". All nodes have nearly the same coefficients; use kind='scores' to see which support the class."
        )
    figure.text(0.012, 0.015, caption, ha="left", va="bottom", fontsize=8.5, color="#444444")
    top = 0.84 if len(hidden) == 1 else 0.9
    figure.subplots_adjust(left=0.01, right=0.99, top=top, bottom=0.06, wspace=0.02, hspace=0.16)
    return figure


def node_paths(explanation: ExplanationData) -> list[np.ndarray]:
    """For each level below the classes, the capsule that each node leads to, level by level, ``[n]``."""
    paths = [explanation.levels[0].capsule.numpy()]
    for level in explanation.levels[1:-1]:
        paths.append(level.capsule.numpy()[paths[-1]])
    return paths


def _draw_nodes(
    axis: Any,
    explanation: ExplanationData,
    positions: np.ndarray,
    capsule: np.ndarray | None,
    opacity: np.ndarray | None = None,
) -> None:
    """Nodes coloured by capsule, white without one; ``opacity`` from 0 to 1 blends the colours with white."""
    from matplotlib.colors import to_hex, to_rgb

    n = explanation.num_nodes
    colours = [WHITE if capsule is None else capsule_colour(int(capsule[node])) for node in range(n)]
    opacity = np.ones(n) if opacity is None else opacity
    mixed = [to_hex(w * np.array(to_rgb(c)) + 1 - w) for c, w in zip(colours, opacity, strict=True)]
    texts = None if capsule is None else [str(number + 1) for number in capsule]
    draw_graph(axis, positions, explanation.edges.numpy(), mixed, texts)


def _draw_coarse(
    axis: Any, level: ExplainedLevel, masses: np.ndarray, nodes: np.ndarray, capsule: np.ndarray
) -> None:
    """Capsules with nodes at the centres of these; line widths show the coarse adjacency, sizes the share of the graph.

    Args:
        axis: Where to draw.
        level (ExplainedLevel): The level.
        masses (ndarray): Share of the graph of each capsule, ``[J]``.
        nodes (ndarray): Positions of the nodes, ``[n, 2]``.
        capsule (ndarray): Capsule of each node, ``[n]``.
    """
    used = np.unique(capsule)
    J = len(used)
    masses = masses[used]
    largest = 900 if J <= 6 else 900 * (6 / J) ** 1.4
    sizes = np.maximum(110, largest * masses / max(float(masses.max()), 1e-30))
    # Areas in square points on an axis of about 3.6 inches, 2.2 units wide.
    radii = np.sqrt(sizes / np.pi) / 72 * (2.2 / 3.6)
    centres = np.stack([nodes[capsule == j].mean(0) for j in used])
    centres = centres - (centres.min(0) + centres.max(0)) / 2
    positions = separate_discs(0.75 * centres / max(float(np.abs(centres).max()), 1e-9), radii)
    if level.adjacency is not None:
        weight = level.adjacency.double().numpy()[np.ix_(used, used)] * (1 - np.eye(J))
        weight = weight / max(float(weight.max()), 1e-30)
        for a, b in zip(*np.triu_indices(J, 1), strict=True):
            if weight[a, b] > 0.03:
                width, alpha = 0.5 + 5 * weight[a, b], 0.3 + 0.5 * weight[a, b]
                axis.plot(*positions[[a, b]].T, color="#9AA3AC", linewidth=width, alpha=alpha, zorder=1)
    axis.scatter(
        *positions.T,
        s=sizes,
        c=[capsule_colour(j) for j in used],
        edgecolors="#333333",
        linewidths=0.7,
        zorder=2,
    )
    for j, (x, y) in zip(used, positions, strict=True):
        axis.text(
            x,
            y,
            str(j + 1),
            ha="center",
            va="center_baseline",
            fontsize=8.5,
            color=text_colour(capsule_colour(j)),
        )
    axis.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", anchor="N")
    axis.axis("off")


# ---------------------------------------------------------------------- scores
_GRAPH_WIDTH, _HEADER_HEIGHT = 6.4, 0.75  # inches


def _draw_scores(explanation: ExplanationData) -> Any:
    """The graph with numbered nodes, coloured by their scores for the target class."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    scores = normalise_scores(explanation.node_scores)
    edges = explanation.edges.numpy()
    positions = layout_nodes(explanation.num_nodes, edges)
    # The graph fills the width; the height follows from its aspect ratio.
    height = float(np.clip(_GRAPH_WIDTH * (np.abs(positions[:, 1]).max() + 0.08) / 1.08, 1.8, 6.5))
    total = height + _HEADER_HEIGHT
    figure = new_figure(8.2, total)
    numbers = range(len(scores)) if explanation.nodes is None else explanation.nodes.tolist()
    draw_graph(
        figure.add_axes((0.01, 0.0, _GRAPH_WIDTH / 8.2, height / total)),
        positions,
        edges,
        [score_colour(score) for score in scores],
        [str(number + 1) for number in numbers],
    )
    name = class_label(explanation.class_names[explanation.target])
    figure.text(
        0.012, 1 - 0.4 / total, f"Node numbers, coloured by node score for {name}", fontsize=10, va="top"
    )
    colours = ListedColormap([score_colour(score) for score in np.linspace(-1, 1, 101)])
    largest = float(explanation.node_scores.abs().max())
    scale = ScalarMappable(Normalize(-largest, largest), colours)
    bar = figure.colorbar(scale, cax=figure.add_axes((0.82, 0.12, 0.022, 0.7 * height / total)))
    bar.set_ticks(
        [-largest, 0, largest],
        labels=[f"against it\n({-largest:.2g})", "0", f"for the class\n({largest:.2g})"],
    )
    bar.ax.tick_params(labelsize=8)
    return figure


# ---------------------------------------------------------------------- flow
_BAR = 0.045  # width of a block, in units of the column distance
_GAP = 0.025  # between blocks, as a fraction of the height
_MEAN = "#AAAAAA"  # the residual, which belongs to no single capsule


def flow_masses(explanation: ExplanationData) -> list[np.ndarray]:
    """Share of the graph in each block of a column: 1 for the nodes, then per level the share of each capsule.

    Every node has mass 1/n, which the routing weights distribute level by level.
    """
    mass = np.full(explanation.num_nodes, 1 / explanation.num_nodes)
    masses = [np.ones(1)]
    for level in explanation.levels:
        mass = mass @ level.assignment.double().numpy()
        masses.append(mass)
    return masses


def _draw_flow(explanation: ExplanationData) -> Any:
    """A Sankey diagram with a column of blocks per level; the width of a ribbon is its contribution."""
    flows = contribution_flow(explanation)
    columns = _flow_columns(flows)
    tallest = max(float(heights.sum()) for heights in columns)
    scale = (1 - _GAP * (max(len(heights) for heights in columns) - 1)) / max(tallest, 1e-30)
    starts = [_stack(heights, scale) for heights in columns]
    figure = new_figure(2.9 * len(columns) + 0.6, 5.2)
    axis = figure.add_axes((0.02, 0.09, 0.96, 0.77))
    for column, flow in enumerate(flows):
        out, into = starts[column].copy(), starts[column + 1][: flow.shape[1]].copy()
        # Negative contributions end below the positive ones, at a class in the part that they cancel.
        cancelled = into + np.clip(flow, 0, None).sum(0) * scale
        if column == len(flows) - 1:
            cancelled -= np.clip(-flow, 0, None).sum(0) * scale
        for part, j in np.ndindex(*flow.shape):
            value = float(flow[part, j])
            height, against = abs(value) * scale, value < 0
            if height > 1e-4:
                number = j if column == 0 else part if part < len(flow) - 1 else -1
                y1, y2 = float(out[part]), float((cancelled if against else into)[j])
                _ribbon(axis, column + _BAR, y1, column + 1, y2, height, number, against)
            out[part] += height
            (cancelled if against else into)[j] += height
    for column, heights in enumerate(columns):
        _column(axis, explanation, column, heights * scale, starts[column])
    last = flows[-1]
    for j, start in enumerate(starts[-1]):
        removed = float(np.clip(-last[:, j], 0, None).sum()) * scale
        if removed > 1e-4:
            _hatched(axis, len(flows), float(start + columns[-1][j] * scale) - removed, removed)
    axis.set(xlim=(-0.05, len(columns) - 1 + 0.5), ylim=(1.09, -0.01))
    axis.axis("off")
    _flow_legend(figure, bool((last < 0).any()))
    return figure


def _flow_columns(flows: list[np.ndarray]) -> list[np.ndarray]:
    """Heights of the blocks of each column: what leaves them, and for classes what is for them."""
    return [*(np.abs(flow).sum(1) for flow in flows), np.clip(flows[-1], 0, None).sum(0)]


def _flow_legend(figure: Any, has_negative: bool) -> None:
    from matplotlib.patches import Patch

    entries = [Patch(facecolor="#8A949F", alpha=0.5, label="for the class: width is the contribution")]
    if has_negative:
        entries.append(
            Patch(facecolor="none", edgecolor=AGAINST, hatch="////", label="against it: cancels as much")
        )
    figure.legend(
        handles=entries, loc="lower left", ncols=2, frameon=False, fontsize=8.5, bbox_to_anchor=(0.005, 0)
    )


def _stack(heights: np.ndarray, scale: float) -> np.ndarray:
    """Upper edges of blocks stacked with gaps and centred vertically."""
    scaled = heights * scale
    free = 1 - scaled.sum() - _GAP * (len(heights) - 1)
    return 0.06 + free / 2 + np.concatenate([[0.0], np.cumsum(scaled + _GAP)[:-1]])


def _ribbon(
    axis: Any, x1: float, y1: float, x2: float, y2: float, height: float, number: int, against: bool
) -> None:
    """A ribbon in the colour of capsule ``number``, grey for −1, hatched if it is against its end."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    half = (x1 + x2) / 2
    points = [
        *((x1, y1), (half, y1), (half, y2), (x2, y2)),
        *((x2, y2 + height), (half, y2 + height), (half, y1 + height), (x1, y1 + height)),
        (x1, y1),
    ]
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    colour = _MEAN if number < 0 else capsule_colour(number)
    style = (
        {"facecolor": "none", "edgecolor": AGAINST, "hatch": "////", "alpha": 0.7}
        if against
        else {"facecolor": colour, "alpha": 0.5}
    )
    axis.add_patch(PathPatch(Path(points, codes), linewidth=0, **style))


def _hatched(axis: Any, column: int, start: float, height: float) -> None:
    """The part of a class that negative contributions cancel."""
    from matplotlib.patches import Rectangle

    axis.add_patch(
        Rectangle(
            (column, start), _BAR, height, facecolor=WHITE, edgecolor=AGAINST, hatch="////", linewidth=0.5
        )
    )


def _column(
    axis: Any, explanation: ExplanationData, column: int, heights: np.ndarray, starts: np.ndarray
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
        is_mean = inner and j == len(heights) - 1
        colour = _MEAN if is_mean else capsule_colour(j) if inner else "#6B7480"
        axis.add_patch(
            Rectangle((column, start), _BAR, height, facecolor=colour, edgecolor="#333333", linewidth=0.5)
        )
        middle = start + height / 2
        if inner and height > 0.025:
            text = "mean" if is_mean else str(j + 1)
            axis.text(column + _BAR / 2, middle, text, ha="center", va="center" if is_mean else "center_baseline",
                      fontsize=7.5, rotation=90 if is_mean else 0, color=text_colour(colour))  # fmt: skip
        if column == last:
            name, score = class_label(explanation.class_names[j]), float(explanation.class_scores[j])
            short = name if len(name) <= 18 else f"{name[:17]}…"
            weight = "bold" if j == explanation.predicted else "normal"
            axis.text(column + _BAR + 0.02, middle, f"{short}\nlength {score:.2f}", ha="left", va="center", fontsize=9,
                      fontweight=weight)  # fmt: skip


# ---------------------------------------------------------------------- assignment and iterations
_MAX_LABELLED_ROWS = 60


def _draw_assignment(explanation: ExplanationData) -> Any:
    levels = explanation.levels
    rows = [level.assignment.size(0) for level in levels]
    columns = [level.assignment.size(1) for level in levels]
    height = float(np.clip(0.16 * max(rows), 3.0, 12.0)) + 1.5
    figure = new_figure(sum(max(1.9, 0.42 * count) + 1.0 for count in columns) + 1.0, height)
    axes = figure.subplots(
        1, len(levels), width_ratios=[max(4.5, count) for count in columns], squeeze=False
    )[0]
    image: Any = None
    for number, (axis, level) in enumerate(zip(axes, levels, strict=True)):
        weights = level.assignment.double().numpy()
        order = np.argsort(level.capsule.numpy(), kind="stable") if number == 0 else np.arange(rows[number])
        image = axis.imshow(
            weights[order], cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest"
        )
        last = number == len(levels) - 1
        names = (
            [class_label(name, 24) for name in explanation.class_names]
            if last
            else [str(j + 1) for j in range(columns[number])]
        )
        rotated = {"rotation": 35, "ha": "right"} if last else {}
        axis.set_xticks(range(columns[number]), names, fontsize=8, **rotated)
        if number or rows[number] <= _MAX_LABELLED_ROWS:
            axis.set_yticks(range(rows[number]), [str(row + 1) for row in order], fontsize=7)
        else:
            axis.set_yticks([])  # row numbers would be mistaken for node numbers
        axis.set_ylabel("node, sorted by capsule" if number == 0 else "capsule", fontsize=9)
        axis.set_xlabel("class" if last else "capsule", fontsize=9)
    figure.subplots_adjust(left=0.09, right=0.86, top=1 - 0.55 / height, bottom=0.95 / height, wspace=0.45)
    bar = figure.colorbar(image, cax=figure.add_axes((0.9, 0.25, 0.022, 0.5)))
    bar.set_label("routing coefficient", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return figure


def _draw_iterations(explanation: ExplanationData) -> Any:
    iterations = explanation.levels[0].iterations
    R, J = iterations.size(0), iterations.size(-1)
    positions = layout_nodes(explanation.num_nodes, explanation.edges.numpy())
    height = 1.1 + 3.4 * (float(np.abs(positions[:, 1]).max()) + 0.08)
    figure = new_figure(3.5 * R + 0.3, height)
    for number, axis in enumerate(figure.subplots(1, R, squeeze=False)[0]):
        weights = iterations[number].double()
        uniform = J > 1 and float(weights.max() - weights.min()) < 1e-6
        largest = weights.amax(-1).numpy()
        opacity = 0.15 + 0.85 * (largest - 1 / J) / (1 - 1 / J) if J > 1 else largest
        _draw_nodes(
            axis,
            explanation,
            positions,
            None if uniform else explanation.levels[0].capsule_after(number).numpy(),
            np.clip(opacity, 0, 1),
        )
        caption = (
            "uniform coefficients" if uniform else f"mean largest coefficient {100 * largest.mean():.0f} %"
        )
        axis.set_title(f"Iteration {number + 1}\n{caption}", fontsize=9.5)
    figure.subplots_adjust(left=0.01, right=0.99, top=1 - 0.85 / height, bottom=0.02, wspace=0.03)
    return figure
