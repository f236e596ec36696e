"""Drawing primitives: one graph on an axis, and writing a figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphcaps._io.atomic_write import write_atomically
from graphcaps.errors import ArgumentError
from graphcaps.explanation.palette import text_colour

__all__ = [
    "SUFFIXES",
    "check_suffix",
    "class_label",
    "draw_graph",
    "new_figure",
    "normalise_scores",
    "save_figure",
]

SUFFIXES = (".png", ".svg", ".pdf")

_MAX_LABELLED_NODES = 120  # labels of more nodes would overlap


def normalise_scores(scores: Any) -> np.ndarray:
    """Scores divided by their largest absolute value, ``[n]``, from −1 to 1."""
    values = np.asarray(scores, dtype=float).reshape(-1)
    return values / max(float(np.abs(values).max(initial=0)), 1e-30)


def draw_graph(
    axis: Any,
    positions: np.ndarray,
    edges: np.ndarray,
    colours: Sequence[str],
    texts: Sequence[str] | None = None,
) -> None:
    """Draws nodes with their colours and texts, and edges; texts are left out above 120 nodes."""
    from matplotlib.collections import LineCollection

    size = float(np.clip(5200 / len(positions), 4, 150))
    thin = min(1.0, size / 12)  # outlines and edges of graphs with many nodes
    axis.add_collection(LineCollection(positions[edges.T], colors="#9AA3AC", linewidths=thin, zorder=1))
    axis.scatter(*positions.T, s=size, c=list(colours), edgecolors="#333333", linewidths=0.7 * thin, zorder=2)
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
