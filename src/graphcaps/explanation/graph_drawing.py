"""Drawing primitives: node layout, one graph on an axis, and writing a figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from graphcaps._io.atomic_write import write_atomically
from graphcaps.errors import ArgumentError
from graphcaps.explanation.palette import text_colour

__all__ = [
    "SUFFIXES",
    "check_suffix",
    "class_label",
    "draw_graph",
    "layout_nodes",
    "new_figure",
    "normalise_scores",
    "save_figure",
]

SUFFIXES = (".png", ".svg", ".pdf")

_MAX_LABELLED_NODES = 120  # labels of more nodes would overlap
_MAX_KAMADA_KAWAI_NODES = 200  # the layout takes cubic time in the number of nodes


def normalise_scores(scores: Any) -> np.ndarray:
    """Scores divided by their largest absolute value, ``[n]``, from −1 to 1."""
    values = np.asarray(scores, dtype=float).reshape(-1)
    return values / max(float(np.abs(values).max(initial=0)), 1e-30)


def layout_nodes(num_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Deterministic node positions between −1 and 1, ``[n, 2]``; the longest axis of the graph is horizontal.

    Kamada-Kawai up to 200 nodes, spring layout above, a circle for a graph without edges.

    Args:
        num_nodes (int): Number of nodes n.
        edges (ndarray): ``[2, E]``.
    """
    graph = nx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(edges.T.tolist())
    if not graph.number_of_edges():
        layout = nx.circular_layout(graph)
    elif num_nodes <= _MAX_KAMADA_KAWAI_NODES:
        layout = nx.kamada_kawai_layout(graph)
    else:
        layout = nx.spring_layout(graph, seed=0)
    positions = np.array([layout[node] for node in range(num_nodes)], dtype=float).reshape(-1, 2)
    positions = _separate(positions, edges)
    centred = positions - positions.mean(0)
    rotated: np.ndarray = (
        centred @ np.linalg.svd(centred, full_matrices=False)[2].T if num_nodes > 2 else centred
    )
    return rotated / max(float(np.abs(rotated).max()), 1e-9)


def _separate(positions: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Pushes nodes apart that are closer than 0.74 median edge lengths, so that none hides another."""
    if not edges.size or len(positions) > _MAX_KAMADA_KAWAI_NODES:
        return positions
    min_distance = 0.74 * float(np.median(np.linalg.norm(positions[edges[0]] - positions[edges[1]], axis=1)))
    for _ in range(15):
        difference = positions[:, None] - positions[None]
        length = np.maximum(np.linalg.norm(difference, axis=-1), 1e-9)
        push = np.clip(min_distance - length, 0, None) / length
        np.fill_diagonal(push, 0)
        positions = positions + 0.25 * (push[..., None] * difference).sum(1)
    return positions


def draw_graph(
    axis: Any,
    positions: np.ndarray,
    edges: np.ndarray,
    colours: Sequence[str],
    texts: Sequence[str] | None = None,
) -> None:
    """Draws nodes with their colours and texts, and edges; texts are left out above 120 nodes."""
    from matplotlib.collections import LineCollection

    axis.add_collection(LineCollection(positions[edges.T], colors="#9AA3AC", linewidths=1.0, zorder=1))
    size = float(np.clip(5200 / len(positions), 12, 150))
    axis.scatter(*positions.T, s=size, c=list(colours), edgecolors="#333333", linewidths=0.7, zorder=2)
    if texts is not None and len(positions) <= _MAX_LABELLED_NODES:
        for (x, y), text, colour in zip(positions, texts, colours, strict=True):
            axis.text(x, y, text, ha="center", va="center_baseline", fontsize=0.52 * size**0.5,
                      color=text_colour(colour))  # fmt: skip
    half_height = float(np.abs(positions[:, 1]).max()) + 0.08
    axis.set(xlim=(-1.08, 1.08), ylim=(-half_height, half_height), aspect="equal", anchor="N")
    axis.axis("off")


def class_label(name: str, max_length: int = 40) -> str:
    """A class name for display: "class 1" for a plain number, truncated if too long."""
    label = f"class {name}" if name.lstrip("-").isdigit() else name
    return label if len(label) <= max_length else f"{label[: max_length - 1]}…"


def new_figure(width: float, height: float) -> Any:
    """An empty white figure without a window, sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def check_suffix(owner: str, path: str | Path, suffixes: tuple[str, ...] = SUFFIXES) -> str:
    """The suffix of a picture file, in lower case; checked before anything is drawn.

    Raises:
        ArgumentError: If it is not one of ``suffixes``.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in suffixes:
        raise ArgumentError(
            owner, "path", f"end in {', '.join(suffixes[:-1])} or {suffixes[-1]}", f"'{path}'"
        )
    return suffix


def save_figure(figure: Any, path: str | Path, *, dpi: int = 150) -> None:
    """Writes a figure in the format of the path's suffix; the same figure gives the same bytes."""
    kind = Path(path).suffix.lower()[1:]
    data = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    figure.savefig(data, format=kind, dpi=dpi, metadata=metadata)
    write_atomically(path, data.getvalue())
