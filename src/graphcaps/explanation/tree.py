"""An explanation as nested dictionaries: for JSON, and for people to read down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from graphcaps.explanation.types import Explanation

__all__ = ["plain", "tree_of"]


def tree_of(found: Explanation) -> dict[str, Any]:
    """Classes, below them capsules level by level, below these nodes.

    Everything stands below the one whole that it is routed to most; ``weight`` says how far, and ``weights`` of a
    capsule how far to each whole above. A class or capsule to which nothing is routed most has no ``parts``.

    Returns:
        dict: ``{"predicted", "target", "classes": [{"class", "length", "probability", "parts"}]}``, where a part
        is ``{"level", "capsule", "length", "weight", "weights", "parts"}`` (levels count from 1, above the nodes)
        or ``{"node", "weight", "score"}``. Strongest weights stand first.
    """
    names = found.class_names
    lowest, *above = found.levels
    nodes = range(found.num_nodes) if found.nodes is None else found.nodes.tolist()
    below: list[dict[str, Any]] = [
        {"node": node, "weight": _short(weight), "score": _short(score)}
        for node, weight, score in zip(
            nodes, lowest.assignment.amax(-1).tolist(), found.node_scores.tolist(), strict=True
        )
    ]
    owner = lowest.capsule.tolist()
    for number, level in enumerate(above, start=1):
        wholes = _grouped(below, owner, level.assignment.size(0))
        weights, owner = level.assignment.tolist(), level.capsule.tolist()
        lengths = found.levels[number - 1].lengths.tolist()
        below = [
            {
                "level": number,
                "capsule": capsule,
                "length": _short(lengths[capsule]),
                "weight": _short(weights[capsule][owner[capsule]]),
                "weights": [_short(weight) for weight in weights[capsule]],
                "parts": parts,
            }
            for capsule, parts in enumerate(wholes)
        ]
    classes = [
        {
            "class": name,
            "length": _short(float(found.class_scores[number])),
            "probability": _short(float(found.probabilities[number])),
            "parts": parts,
        }
        for number, (name, parts) in enumerate(zip(names, _grouped(below, owner, len(names)), strict=True))
    ]
    return {"predicted": names[found.predicted], "target": names[found.target], "classes": classes}


def plain(found: Explanation) -> dict[str, Any]:
    """All fields of an explanation in JSON's own types; numbers have six digits."""
    names = found.class_names
    return {
        "graph": found.graph,
        "class_names": list(names),
        "class_scores": _listed(found.class_scores),
        "probabilities": _listed(found.probabilities),
        "predicted": names[found.predicted],
        "target": names[found.target],
        "true_class": None if found.true_class is None else names[found.true_class],
        "num_nodes": found.num_nodes,
        "nodes": _listed(found.nodes),
        "edges": found.edges.T.tolist(),
        "node_labels": _listed(found.node_labels),
        "node_scores": _listed(found.node_scores),
        "edge_scores": _listed(found.edge_scores),
        "reconstruction_error": _listed(found.reconstruction_error),
        "levels": [
            {
                "assignment": _listed(level.assignment),
                "rounds": _listed(level.rounds),
                "capsule": level.capsule.tolist(),
                "lengths": _listed(level.lengths),
                "adjacency": _listed(level.adjacency),
            }
            for level in found.levels
        ],
    }


def _grouped(parts: list[dict[str, Any]], owner: list[int], count: int) -> list[list[dict[str, Any]]]:
    """Parts below their own whole, the strongest first."""
    groups: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for part, whole in zip(parts, owner, strict=True):
        groups[whole].append(part)
    return [sorted(group, key=lambda part: -part["weight"]) for group in groups]


def _listed(values: Tensor | None) -> Any:
    return None if values is None else _rounded(values.tolist())


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return _short(value) if isinstance(value, float) else value


def _short(value: float) -> float:
    return float(f"{value:.6g}")
