"""Pictures of an explanation: parts, scores, flow, assignment, rounds; and molecules as molecules."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import networkx as nx
import numpy as np
from torch import Tensor

from graphcaps._io.atomic_write import write_atomically
from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.explanation.explanation import ExplainedLevel, Explanation

__all__ = [
    "BLANK",
    "COLOURS",
    "ENDINGS",
    "DrawingKind",
    "capsule_colour",
    "check_suffix",
    "class_label",
    "draw_explanation",
    "draw_flow",
    "draw_graph",
    "draw_parts",
    "draw_scores",
    "flow_masses",
    "layout_nodes",
    "new_figure",
    "normalise_scores",
    "save_figure",
    "score_colour",
    "text_colour",
]


# Okabe and Ito's colours, told apart by colour-blind readers too, then lighter relatives for more parts.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#555555",
    "#8FB8DE", "#F4C77B", "#7FCFB4", "#E3B8D0", "#A9D8F2", "#EBA27A", "#F7F0A0", "#AAAAAA",
)  # fmt: skip
BLANK = "#FFFFFF"
_FOR, _AGAINST = "#D55E00", "#0072B2"
ENDINGS = (".png", ".svg", ".pdf")

_NUMBERED_UP_TO = 120  # nodes: beyond, numbers would cover each other
# Kamada and Kawai's places take time with the cube of the nodes.
_LARGEST_BY_STRESS = 200


def capsule_colour(number: int) -> str:
    """Colour of a capsule; they come again after sixteen, which is why numbers stand beside them."""
    return COLOURS[number % len(COLOURS)] if number >= 0 else BLANK


def normalise_scores(scores: Any) -> np.ndarray:
    """Scores divided by the largest of them, sign aside: between −1 and 1."""
    values = np.asarray(scores, dtype=float).reshape(-1)
    return values / max(float(np.abs(values).max(initial=0)), 1e-30)


def score_colour(share: float) -> str:
    """White where a node says nothing, orange where it speaks for a class, blue where it speaks against it."""
    end = _FOR if share > 0 else _AGAINST
    weight = min(abs(float(share)), 1.0)
    mixed = (255 + weight * (int(end[at : at + 2], 16) - 255) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part):02X}" for part in mixed)


def text_colour(colour: str) -> str:
    """Black or white, whichever stands out more from a colour."""
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return "#111111" if linear @ np.array([0.2126, 0.7152, 0.0722]) > 0.19 else "#FFFFFF"


def layout_nodes(num_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Places between −1 and 1 from path lengths alone, ``[n, 2]``: a graph is always drawn the same way."""
    graph = nx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(edges.T.tolist())
    if not graph.number_of_edges():
        places = nx.circular_layout(graph)
    elif num_nodes <= _LARGEST_BY_STRESS:
        places = nx.kamada_kawai_layout(graph)
    else:
        places = nx.spring_layout(graph, seed=0)
    found = np.array([places[node] for node in range(num_nodes)], dtype=float).reshape(-1, 2)
    found = _push_apart(found, edges)
    # The longest side lies flat, which suits wide pictures.
    centred = found - found.mean(0)
    turned: np.ndarray = (
        centred @ np.linalg.svd(centred, full_matrices=False)[2].T if num_nodes > 2 else centred
    )
    return turned / max(float(np.abs(turned).max()), 1e-9)


def _push_apart(places: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Moves nodes that came too close, so that none hides another."""
    if not edges.size or len(places) > _LARGEST_BY_STRESS:
        return places
    apart = 0.74 * float(np.median(np.linalg.norm(places[edges[0]] - places[edges[1]], axis=1)))
    for _ in range(15):
        between = places[:, None] - places[None]
        length = np.maximum(np.linalg.norm(between, axis=-1), 1e-9)
        move = np.clip(apart - length, 0, None) / length
        np.fill_diagonal(move, 0)
        places = places + 0.25 * (move[..., None] * between).sum(1)
    return places


def draw_graph(
    axis: Any,
    places: np.ndarray,
    edges: np.ndarray,
    colours: Sequence[str],
    texts: Sequence[str] | None = None,
) -> None:
    """Nodes where they are placed, each in its colour and with its text; above 120 nodes texts are left out."""
    from matplotlib.collections import LineCollection

    axis.add_collection(LineCollection(places[edges.T], colors="#9AA3AC", linewidths=1.0, zorder=1))
    size = float(np.clip(5200 / len(places), 12, 150))
    axis.scatter(*places.T, s=size, c=list(colours), edgecolors="#333333", linewidths=0.7, zorder=2)
    if texts is not None and len(places) <= _NUMBERED_UP_TO:
        for (x, y), text, colour in zip(places, texts, colours, strict=True):
            axis.text(x, y, text, ha="center", va="center_baseline", fontsize=0.52 * size**0.5,
                      color=text_colour(colour))  # fmt: skip
    tall = float(np.abs(places[:, 1]).max()) + 0.08
    axis.set(xlim=(-1.08, 1.08), ylim=(-tall, tall), aspect="equal", anchor="N")
    axis.axis("off")


def class_label(name: str, widest: int = 40) -> str:
    """A class that is only a number is called so; a long name is cut."""
    called = f"class {name}" if name.lstrip("-").isdigit() else name
    return called if len(called) <= widest else f"{called[: widest - 1]}…"


def new_figure(width: float, height: float) -> Any:
    """An empty white figure that belongs to no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def check_suffix(owner: str, path: str | Path, endings: tuple[str, ...] = ENDINGS) -> str:
    """The ending of a picture's name, before anything is drawn.

    Raises:
        ArgumentError: If it names no known format.
    """
    ending = Path(path).suffix.lower()
    if ending not in endings:
        raise ArgumentError(owner, "path", f"end in {', '.join(endings[:-1])} or {endings[-1]}", f"'{path}'")
    return ending


def save_figure(figure: Any, path: str | Path) -> None:
    """Writes a figure in the format of the path's ending; the same figure gives the same bytes."""
    ending = Path(path).suffix.lower()[1:]
    data = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending)
    figure.savefig(data, format=ending, dpi=150, metadata=metadata)
    write_atomically(path, data.getvalue())


def draw_parts(
    path: str | Path,
    store: GraphStore,
    graphs: Sequence[int],
    rows: dict[str, Tensor],
    *,
    titles: Sequence[str] = (),
    names: dict[str, Sequence[str]] | None = None,
) -> None:
    """Draws chosen graphs side by side, once per row, with nodes coloured by that row's parts.

    Args:
        path (str or Path): Picture to write; its ending says the format (png, svg, pdf).
        store (GraphStore): Where the graphs are.
        graphs (Sequence): Graphs to draw, one column each.
        rows (dict): A heading for each row and the part of every node of the store, ``[N]``; a node with a
            number below zero belongs to none and is drawn in white.
        titles (Sequence): A line above each column.
        names (dict, optional): For a row, the names of its parts, for the legend. (default: numbers)

    Raises:
        ShapeError: If a row does not have one part per node.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    for heading, part in rows.items():
        if part.shape != (store.num_nodes,):
            raise ShapeError(
                "draw_parts", heading, f"have one part per node, {store.num_nodes}", list(part.shape)
            )
    drawn = [to_networkx(store, graph) for graph in graphs]
    # Laid out once, so that a node stands in the same place in every row.
    places = [_layout(graph) for graph in drawn]
    width = 2.6 * len(drawn) + 1.7
    height = 2.6 * len(rows) + 0.35
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), len(drawn), squeeze=False)
    first = store.node_ptr.tolist()
    for line, (heading, part) in enumerate(rows.items()):
        seen: set[int] = set()
        for column, (graph, place) in enumerate(zip(drawn, places, strict=True)):
            own = part[first[graphs[column]] : first[graphs[column] + 1]].tolist()
            seen |= set(own)
            _draw_one(axes[line, column], graph, place, own)
            if line == 0 and column < len(titles):
                axes[line, column].set_title(titles[column], fontsize=9, pad=2)
        axes[line, 0].text(-0.06, 0.5, heading, rotation=90, va="center", ha="right", fontsize=10,
                           transform=axes[line, 0].transAxes)  # fmt: skip
        _legend(axes[line, -1], sorted(seen), (names or {}).get(heading))
    figure.subplots_adjust(
        left=0.4 / width, right=1 - 1.3 / width, top=1 - 0.35 / height, bottom=0.01, wspace=0.02, hspace=0.02
    )
    figure.savefig(path, dpi=130)


def _layout(graph: nx.Graph) -> dict[Any, np.ndarray]:
    """Places from path lengths alone, so that the same graph is always drawn the same way."""
    return nx.kamada_kawai_layout(graph) if graph.number_of_edges() else nx.circular_layout(graph)


def _draw_one(axis: Any, graph: nx.Graph, place: dict[Any, np.ndarray], part: list[int]) -> None:
    nx.draw_networkx_edges(graph, place, ax=axis, edge_color="#999999", width=0.9)
    colours = [capsule_colour(number) for number in part]
    nx.draw_networkx_nodes(
        graph, place, ax=axis, node_size=46, node_color=colours, edgecolors="#333333", linewidths=0.6
    )
    axis.set_aspect("equal")
    axis.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12))  # layouts lie between −1 and 1
    axis.axis("off")


def _legend(axis: Any, numbers: list[int], names: Sequence[str] | None) -> None:
    from matplotlib.lines import Line2D

    def name(number: int) -> str:
        if number < 0:
            return "no part"
        return f"capsule {number + 1}" if names is None else names[number]

    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=6, color=capsule_colour(n), markeredgecolor="#333333",
               markeredgewidth=0.6, label=name(n))
        for n in numbers
    ]  # fmt: skip
    axis.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)


_WIDE, _ABOVE = 6.4, 0.75  # width of the graph and height of what is written above it, in inches


def draw_scores(explanation: Explanation) -> Any:
    """The graph with its nodes numbered, and coloured by their scores for the target class."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    shares = normalise_scores(explanation.node_scores)
    edges = explanation.edges.numpy()
    places = layout_nodes(explanation.num_nodes, edges)
    # As wide as the picture allows, and as high as the graph then is.
    height = float(np.clip(_WIDE * (np.abs(places[:, 1]).max() + 0.08) / 1.08, 1.8, 6.5))
    whole = height + _ABOVE
    figure = new_figure(8.2, whole)
    numbers = range(len(shares)) if explanation.nodes is None else explanation.nodes.tolist()
    draw_graph(
        figure.add_axes((0.01, 0.0, _WIDE / 8.2, height / whole)),
        places,
        edges,
        [score_colour(share) for share in shares],
        [str(number + 1) for number in numbers],
    )
    name = class_label(explanation.class_names[explanation.target])
    figure.text(
        0.012, 1 - 0.4 / whole, f"Nodes by number, coloured by what they say of {name}", fontsize=10, va="top"
    )
    colours = ListedColormap([score_colour(share) for share in np.linspace(-1, 1, 101)])
    most = float(explanation.node_scores.abs().max())
    scale = ScalarMappable(Normalize(-most, most), colours)
    bar = figure.colorbar(scale, cax=figure.add_axes((0.82, 0.12, 0.022, 0.7 * height / whole)))
    bar.set_ticks([-most, 0, most], labels=[f"against ({-most:.2g})", "nothing", f"for it ({most:.2g})"])
    bar.ax.tick_params(labelsize=8)
    return figure


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
                    colour = capsule_colour(j if column == 0 else part)
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
        colour = capsule_colour(j) if inner else "#6B7480"
        axis.add_patch(
            Rectangle((column, start), _BAR, height, facecolor=colour, edgecolor="#333333", linewidth=0.5)
        )
        middle = start + height / 2
        if inner and height > 0.025:
            axis.text(column + _BAR / 2, middle, str(j + 1), ha="center", va="center_baseline", fontsize=7.5,
                      color=text_colour(colour))  # fmt: skip
        if column == last:
            name, score = class_label(explanation.class_names[j]), float(explanation.class_scores[j])
            short = name if len(name) <= 18 else f"{name[:17]}…"
            weight = "bold" if j == explanation.predicted else "normal"
            axis.text(column + _BAR + 0.02, middle, f"{short}\nlength {score:.2f}", ha="left", va="center", fontsize=9,
                      fontweight=weight)  # fmt: skip


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
    from graphcaps.explanation.molecule_drawings import can_draw_molecule, draw_explained_molecule

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
    places = layout_nodes(explanation.num_nodes, explanation.edges.numpy())
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
    colours = [BLANK if capsule is None else capsule_colour(int(capsule[node])) for node in range(n)]
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
        *places.T,
        s=sizes,
        c=[capsule_colour(j) for j in range(J)],
        edgecolors="#333333",
        linewidths=0.7,
        zorder=2,
    )
    for j, (x, y) in enumerate(places):
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
    places = layout_nodes(explanation.num_nodes, explanation.edges.numpy())
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
