"""Capsule cards and counterfactuals as values for the header of the data block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcaps.explanation.capsule_description import CapsuleCards, TypicalGroup
from graphcaps.explanation.counterfactual import Counterfactual, Counterfactuals

__all__ = ["card_values", "counterfactual_values"]


def card_values(cards: CapsuleCards, graphs: np.ndarray) -> dict[str, Any]:
    """Cards as JSON values; examples are rows of the page.

    Args:
        cards (CapsuleCards): The cards of all graphs.
        graphs (ndarray): Indices of the graphs on the page, ascending.
    """
    row_of = {graph: row for row, graph in enumerate(graphs.tolist())}
    listed = []
    for card in cards.cards:
        values = {
            name: value for name, value in vars(card).items() if name not in ("typical", "class_shares")
        }
        for name in ("graph_share", "node_share", "purity", "truth_purity"):
            values[name] = None if values[name] is None else round(values[name], 5)
        shares = [None if share is None else round(share, 5) for share in card.class_shares.values()]
        groups = [_group_values(group, row_of) for group in card.typical]
        listed.append(values | {"class_shares": shares, "typical": groups})
    return {"graphs": cards.graphs, "classes": cards.classes, "cards": listed}


def _group_values(group: TypicalGroup, row_of: Mapping[int, int]) -> dict[str, Any]:
    """A kind of group with the first example that is on the page, or none."""
    shown = ((row_of[graph], list(nodes)) for graph, nodes in group.examples if graph in row_of)
    values = {name: value for name, value in vars(group).items() if name != "examples"}
    return values | {"share": round(group.share, 5), "example": next(shown, None)}


def counterfactual_values(
    counterfactuals: Mapping[int, Counterfactuals], graphs: np.ndarray
) -> list[dict[str, Any] | None] | None:
    """Counterfactuals of each graph on the page, ``None`` for one without; ``None`` if no graph has any.

    Args:
        counterfactuals (mapping): Counterfactuals by the index of their graph.
        graphs (ndarray): Indices of the graphs on the page, ascending.
    """
    if not counterfactuals:
        return None
    entries = (counterfactuals.get(graph) for graph in graphs.tolist())
    return [
        None if entry is None else {"sentence": entry.sentence, "found": [_change(one) for one in entry]}
        for entry in entries
    ]


def _change(one: Counterfactual) -> dict[str, Any]:
    values = {name: value for name, value in vars(one).items() if name != "class_name"}
    return values | {"probability": round(one.probability, 4)}
