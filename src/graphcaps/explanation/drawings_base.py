"""What all drawings share: colours of capsules and scores, places of nodes, and how a figure becomes a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from graphcaps.errors import ArgumentError
from graphcaps.files import write_atomically

__all__ = [
    "BLANK",
    "COLOURS",
    "ENDINGS",
    "check_ending",
    "class_label",
    "colour_of",
    "draw_graph",
    "ink_on",
    "new_figure",
    "place_nodes",
    "save_figure",
    "score_colour",
    "score_shares",
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


def colour_of(number: int) -> str:
    """Colour of a capsule; they come again after sixteen, which is why numbers stand beside them."""
    return COLOURS[number % len(COLOURS)] if number >= 0 else BLANK


def score_shares(scores: Any) -> np.ndarray:
    """Scores divided by the largest of them, sign aside: between −1 and 1."""
    values = np.asarray(scores, dtype=float).reshape(-1)
    return values / max(float(np.abs(values).max(initial=0)), 1e-30)


def score_colour(share: float) -> str:
    """White where a node says nothing, orange where it speaks for a class, blue where it speaks against it."""
    end = _FOR if share > 0 else _AGAINST
    weight = min(abs(float(share)), 1.0)
    mixed = (255 + weight * (int(end[at : at + 2], 16) - 255) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part):02X}" for part in mixed)


def ink_on(colour: str) -> str:
    """Black or white, whichever stands out more from a colour."""
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return "#111111" if linear @ np.array([0.2126, 0.7152, 0.0722]) > 0.19 else "#FFFFFF"


def place_nodes(num_nodes: int, edges: np.ndarray) -> np.ndarray:
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
                      color=ink_on(colour))  # fmt: skip
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


def check_ending(owner: str, path: str | Path, endings: tuple[str, ...] = ENDINGS) -> str:
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
