"""The picture of node scores: which nodes speak for a class, and which against it."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcaps.explanation.drawings_base import (
    class_label,
    draw_graph,
    new_figure,
    place_nodes,
    score_colour,
    score_shares,
)
from graphcaps.explanation.types import Explanation

__all__ = ["draw_scores"]

_WIDE, _ABOVE = 6.4, 0.75  # width of the graph and height of what is written above it, in inches


def draw_scores(explanation: Explanation) -> Any:
    """The graph with its nodes numbered, and coloured by their scores for the target class."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    shares = score_shares(explanation.node_scores)
    edges = explanation.edges.numpy()
    places = place_nodes(explanation.num_nodes, edges)
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
