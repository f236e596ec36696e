"""Graphs drawn with their nodes coloured by part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from torch import Tensor

from graphcaps.data.convert_networkx import to_networkx
from graphcaps.data.store import GraphStore
from graphcaps.errors import ShapeError
from graphcaps.explanation.drawings_base import colour_of
from graphcaps.explanation.drawings_explanation import DrawingKind, draw_explanation

__all__ = ["DrawingKind", "draw_explanation", "draw_parts"]


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
    colours = [colour_of(number) for number in part]
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
        Line2D([], [], marker="o", linestyle="", markersize=6, color=colour_of(n), markeredgecolor="#333333",
               markeredgewidth=0.6, label=name(n))
        for n in numbers
    ]  # fmt: skip
    axis.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
