"""Pictures of an explanation: parts, scores, flow, assignment, rounds; and molecules as molecules."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from graphcaps.errors import ArgumentError
from graphcaps.explanation.drawings_base import (
    BLANK,
    check_ending,
    class_label,
    colour_of,
    draw_graph,
    ink_on,
    new_figure,
    place_nodes,
    save_figure,
)
from graphcaps.explanation.drawings_flow import draw_flow
from graphcaps.explanation.drawings_scores import draw_scores
from graphcaps.explanation.types import ExplainedLevel, Explanation

__all__ = ["DrawingKind", "draw_explanation"]

DrawingKind = Literal["parts", "scores", "flow", "assignment", "rounds", "molecule"]
"""What a picture shows; see :func:`draw_explanation`."""

_ROWS_NAMED_UP_TO = 60


def draw_explanation(explanation: Explanation, path: str | Path, *, kind: DrawingKind | None = None) -> None:
    """Draws why a graph was given its class, as SVG, PNG or PDF by the path's ending.

    Args:
        explanation (Explanation): Of one graph.
        path (str or Path): Picture to write.
        kind (str): ``"parts"`` is the graph with its nodes coloured by capsule and the coarse graph beside it;
            ``"scores"`` the graph with its nodes coloured by how far they speak for the class, or against it;
            ``"flow"`` leads from nodes through capsules to classes, as wide as the routing weights;
            ``"assignment"`` shows all routing weights as a heat map; ``"rounds"`` the graph after each routing
            round, pale where a node is unsure; ``"molecule"`` the molecule that was read from SMILES, by capsule
            and by score, as SVG or PNG by RDKit. (default: ``"molecule"`` where that can be, else ``"parts"``)

    Raises:
        ArgumentError: If the kind or the ending is unknown, or the graph is no molecule.
        MissingExtraError: At ``"molecule"`` without RDKit.
    """
    from graphcaps.explanation.molecule_picture import can_draw_molecule, draw_explained_molecule

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

    check_ending("draw_explanation", path)
    draw = {
        "parts": _parts,
        "scores": draw_scores,
        "flow": draw_flow,
        "assignment": _assignment,
        "rounds": _rounds,
    }[kind]
    # Names come from users: a dollar sign in them is no mathematics. Text stays text in an SVG.
    settings = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "graphcaps"}
    with rc_context({**settings, "font.family": "sans-serif"}):
        figure = draw(explanation)
        figure.text(0.012, 0.985, _title(explanation), ha="left", va="top", fontsize=11, fontweight="bold")
        save_figure(figure, path)


def _title(explanation: Explanation) -> str:
    names = [class_label(name) for name in explanation.class_names]
    found, known = explanation.predicted, explanation.true_class
    share = float(explanation.probabilities[found])
    verdict = (
        "" if known is None else ", which is right" if known == found else f"; its own is {names[known]}"
    )
    return f"Graph {explanation.graph + 1}: taken for {names[found]} ({100 * share:.0f} %){verdict}"


# ---------------------------------------------------------------------- parts
def _parts(explanation: Explanation) -> Any:
    hidden = explanation.levels[:-1]
    figure = new_figure(6.2 + 3.6 * len(hidden), 4.9)
    axes = figure.subplots(1, 1 + len(hidden), width_ratios=[1.6] + [1.0] * len(hidden), squeeze=False)[0]
    places = place_nodes(explanation.num_nodes, explanation.edges.numpy())
    capsule = hidden[0].capsule.numpy()
    _graph(axes[0], explanation, places, capsule)
    axes[0].set_title("Nodes, coloured and numbered by capsule", fontsize=10)
    for number, (axis, level) in enumerate(zip(axes[1:], hidden, strict=True), start=1):
        _coarse(axis, level, _shares(explanation, number - 1))
        of = f" of level {number}" if len(hidden) > 1 else ""
        axis.set_title(f"Coarse graph{of}\nsize: share of the graph", fontsize=10)
    counts = np.bincount(capsule, minlength=hidden[0].lengths.numel())
    words = "Nodes per capsule: " + ", ".join(f"{j + 1}: {count}" for j, count in enumerate(counts))
    if counts.max() == explanation.num_nodes > 1:  # one colour tells nothing
        words += ". All share one; the kind 'scores' shows which of them speak for the class."
    figure.text(0.012, 0.015, words, ha="left", va="bottom", fontsize=8.5, color="#444444")
    figure.subplots_adjust(left=0.01, right=0.99, top=0.84, bottom=0.06, wspace=0.02)
    return figure


def _graph(
    axis: Any,
    explanation: Explanation,
    places: np.ndarray,
    capsule: np.ndarray | None,
    sure: np.ndarray | None = None,
) -> None:
    """Nodes where they are placed; ``None`` colours none of them, ``sure`` makes them pale."""
    from matplotlib.colors import to_hex, to_rgb

    n = explanation.num_nodes
    colours = [BLANK if capsule is None else colour_of(int(capsule[node])) for node in range(n)]
    shares = np.ones(n) if sure is None else sure
    mixed = [to_hex(w * np.array(to_rgb(c)) + 1 - w) for c, w in zip(colours, shares, strict=True)]
    texts = None if capsule is None else [str(number + 1) for number in capsule]
    draw_graph(axis, places, explanation.edges.numpy(), mixed, texts)


def _coarse(axis: Any, level: ExplainedLevel, shares: np.ndarray) -> None:
    """Capsules in a circle, joined as heavily as their nodes are."""
    J = level.lengths.numel()
    angle = np.pi / 2 - 2 * np.pi * np.arange(J) / J
    places = 0.78 * np.stack([np.cos(angle), np.sin(angle)], 1) if J > 1 else np.zeros((1, 2))
    if level.adjacency is not None:
        weight = level.adjacency.double().numpy() * (1 - np.eye(J))
        weight = weight / max(float(weight.max()), 1e-30)
        for a, b in zip(*np.triu_indices(J, 1), strict=True):
            if weight[a, b] > 0.03:
                width, alpha = 0.5 + 5 * weight[a, b], 0.3 + 0.5 * weight[a, b]
                axis.plot(*places[[a, b]].T, color="#9AA3AC", linewidth=width, alpha=alpha, zorder=1)
    most = 900 if J <= 6 else 900 * (6 / J) ** 1.4
    sizes = np.maximum(110, most * shares / max(float(shares.max()), 1e-30))
    axis.scatter(
        *places.T, s=sizes, c=[colour_of(j) for j in range(J)], edgecolors="#333333", linewidths=0.7, zorder=2
    )
    for j, (x, y) in enumerate(places):
        axis.text(
            x, y, str(j + 1), ha="center", va="center_baseline", fontsize=8.5, color=ink_on(colour_of(j))
        )
    axis.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", anchor="N")
    axis.axis("off")


def _shares(explanation: Explanation, level: int) -> np.ndarray:
    """Share of the graph that reached each capsule of a level."""
    mass = np.full(explanation.num_nodes, 1 / explanation.num_nodes)
    for own in explanation.levels[: level + 1]:
        mass = mass @ own.assignment.double().numpy()
    return mass


# ---------------------------------------------------------------------- assignment and rounds
def _assignment(explanation: Explanation) -> Any:
    levels = explanation.levels
    rows = [own.assignment.size(0) for own in levels]
    columns = [own.assignment.size(1) for own in levels]
    height = float(np.clip(0.16 * max(rows), 3.0, 12.0)) + 1.5
    figure = new_figure(sum(max(1.9, 0.42 * count) + 1.0 for count in columns) + 1.0, height)
    axes = figure.subplots(
        1, len(levels), width_ratios=[max(4.5, count) for count in columns], squeeze=False
    )[0]
    image: Any = None
    for number, (axis, own) in enumerate(zip(axes, levels, strict=True)):
        weights = own.assignment.double().numpy()
        order = np.argsort(own.capsule.numpy(), kind="stable") if number == 0 else np.arange(rows[number])
        image = axis.imshow(
            weights[order], cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest"
        )
        last = number == len(levels) - 1
        names = (
            [class_label(name, 24) for name in explanation.class_names]
            if last
            else [str(j + 1) for j in range(columns[number])]
        )
        turned = {"rotation": 35, "ha": "right"} if last else {}
        axis.set_xticks(range(columns[number]), names, fontsize=8, **turned)
        if number or rows[number] <= _ROWS_NAMED_UP_TO:
            axis.set_yticks(range(rows[number]), [str(row + 1) for row in order], fontsize=7)
        else:
            axis.set_yticks([])  # places in this order are no numbers of nodes
        axis.set_ylabel("node, in order of its capsule" if number == 0 else "capsule", fontsize=9)
        axis.set_xlabel("class" if last else "capsule", fontsize=9)
    figure.subplots_adjust(left=0.09, right=0.86, top=1 - 0.55 / height, bottom=0.95 / height, wspace=0.45)
    bar = figure.colorbar(image, cax=figure.add_axes((0.9, 0.25, 0.022, 0.5)))
    bar.set_label("routing weight", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return figure


def _rounds(explanation: Explanation) -> Any:
    rounds = explanation.levels[0].rounds
    R, J = rounds.size(0), rounds.size(-1)
    places = place_nodes(explanation.num_nodes, explanation.edges.numpy())
    height = 1.1 + 3.4 * (float(np.abs(places[:, 1]).max()) + 0.08)
    figure = new_figure(3.5 * R + 0.3, height)
    for number, axis in enumerate(figure.subplots(1, R, squeeze=False)[0]):
        weights = rounds[number].double()
        alike = J > 1 and float(weights.max() - weights.min()) < 1e-6
        most = weights.amax(-1).numpy()
        sure = 0.15 + 0.85 * (most - 1 / J) / (1 - 1 / J) if J > 1 else most
        _graph(axis, explanation, places, None if alike else weights.argmax(-1).numpy(), np.clip(sure, 0, 1))
        words = (
            "all capsules alike" if alike else f"mean weight of a node's capsule {100 * most.mean():.0f} %"
        )
        axis.set_title(f"Round {number + 1}\n{words}", fontsize=9.5)
    figure.subplots_adjust(left=0.01, right=0.99, top=1 - 0.85 / height, bottom=0.02, wspace=0.03)
    return figure
