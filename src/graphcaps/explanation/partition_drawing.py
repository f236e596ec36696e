"""Graphs of a store side by side, with nodes coloured by one or several partitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from torch import Tensor

from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.data.store import GraphStore
from graphcaps.errors import ShapeError
from graphcaps.explanation.graph_drawing import check_suffix, new_figure, save_figure
from graphcaps.explanation.graph_layout import layout_nodes
from graphcaps.explanation.palette import capsule_colour

__all__ = ["draw_parts"]


def draw_parts(
    path: str | Path,
    store: GraphStore,
    graphs: Sequence[int],
    rows: dict[str, Tensor],
    *,
    titles: Sequence[str] = (),
    names: dict[str, Sequence[str]] | None = None,
) -> None:
    """Draws a grid of graphs: one column per graph, one row per partition of the nodes.

    Args:
        path (str or Path): Picture to write, with the suffix png, svg or pdf.
        store (GraphStore): The graphs.
        graphs (Sequence): Indices of the graphs to draw.
        rows (dict): For each row its heading and the part of every node of the store, ``[N]``; negative numbers mean
            no part and are drawn in white.
        titles (Sequence): Titles of the columns.
        names (dict, optional): For a row heading, the names of its parts in the legend. (default: capsule numbers)

    Raises:
        ShapeError: If a row does not have one part per node.
        ArgumentError: If the suffix is another one.
    """
    for heading, part in rows.items():
        if part.shape != (store.num_nodes,):
            raise ShapeError(
                "draw_parts", heading, f"have one part per node, {store.num_nodes}", list(part.shape)
            )
    check_suffix("draw_parts", path)
    drawn = [to_networkx(store, graph) for graph in graphs]
    # Once, so that a node has the same position in every row.
    layouts = [layout_nodes(len(graph), np.array(graph.edges, dtype=int).reshape(-1, 2).T) for graph in drawn]
    width = 2.6 * len(drawn) + 1.7
    height = 2.6 * len(rows) + 0.35
    figure = new_figure(width, height)
    axes = figure.subplots(len(rows), len(drawn), squeeze=False)
    first = store.node_ptr.tolist()
    for line, (heading, part) in enumerate(rows.items()):
        used: set[int] = set()
        for column, (graph, layout) in enumerate(zip(drawn, layouts, strict=True)):
            graph_part = part[first[graphs[column]] : first[graphs[column] + 1]].tolist()
            used |= set(graph_part)
            _draw_one(axes[line, column], graph, layout, graph_part)
            if line == 0 and column < len(titles):
                axes[line, column].set_title(titles[column], fontsize=9, pad=2)
        axes[line, 0].text(-0.06, 0.5, heading, rotation=90, va="center", ha="right", fontsize=10,
                           transform=axes[line, 0].transAxes)  # fmt: skip
        _add_legend(axes[line, -1], sorted(used), (names or {}).get(heading))
    figure.subplots_adjust(
        left=0.4 / width, right=1 - 1.3 / width, top=1 - 0.35 / height, bottom=0.01, wspace=0.02, hspace=0.02
    )
    save_figure(figure, path, dpi=130)


def _draw_one(axis: Any, graph: nx.Graph, layout: np.ndarray, part: list[int]) -> None:
    nx.draw_networkx_edges(graph, layout, ax=axis, edge_color="#999999", width=0.9)
    colours = [capsule_colour(number) for number in part]
    nx.draw_networkx_nodes(
        graph, layout, ax=axis, node_size=46, node_color=colours, edgecolors="#333333", linewidths=0.6
    )
    axis.set_aspect("equal")
    axis.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12))  # layouts lie between −1 and 1
    axis.axis("off")


def _add_legend(axis: Any, numbers: list[int], names: Sequence[str] | None) -> None:
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
