"""An explanation as nested dictionaries: for JSON, and for people to read down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.types import ShapeRepr

if TYPE_CHECKING:
    from graphcaps.explanation.drawings import DrawingKind

__all__ = ["ExplainedLevel", "Explanation", "StoreExplanation", "plain", "tree_of"]


@dataclass(frozen=True, eq=False, repr=False)
class ExplainedLevel(ShapeRepr):
    """One step up the hierarchy of one graph: parts, and the J capsules that they were routed to.

    Args:
        assignment (Tensor): Routing weights of the last round, ``[parts, J]``; rows sum to 1. Parts are the
            nodes at the lowest level, and the capsules of the level below elsewhere.
        rounds (Tensor): The weights that each routing round summed with, ``[R, parts, J]``; the first are all
            1/J, and the last are ``assignment``.
        lengths (Tensor): Length of each capsule, ``[J]``.
        adjacency (Tensor, optional): The graph among the capsules, ``[J, J]``; ``None`` at the class level.
    """

    assignment: Tensor
    rounds: Tensor
    lengths: Tensor
    adjacency: Tensor | None

    @property
    def capsule(self) -> Tensor:
        """The capsule that each part belongs to most, ``[parts]``."""
        return self.assignment.argmax(-1)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(ShapeRepr):
    """Why a model gives one graph its class.

    Args:
        graph (int): Number of the graph in what was explained, from 0.
        class_names (tuple): The O classes.
        class_scores (Tensor): Lengths of the class capsules, ``[O]``.
        probabilities (Tensor): The same divided by their sum, ``[O]``, calibrated where the model has a calibration.
        predicted (int): Class with the highest score.
        target (int): Class that node and edge scores are for.
        true_class (int, optional): The graph's own class, where it is known.
        edges (Tensor): Each edge once, smaller node first, ``[2, E]``.
        node_labels (Tensor, optional): As in the store, ``[n, L]``.
        levels (tuple): One :class:`ExplainedLevel` per capsule layer; the last is the class level.
        node_scores (Tensor): How far each node speaks for ``target`` (above 0) or against it, ``[n]``.
        edge_scores (Tensor): The same of edges, ``[E]``.
        reconstruction_error (Tensor, optional): 1 − P of each edge, where P is the probability that the model's
            decoder gives it, ``[E]``; ``None`` where the model has no decoder.
        nodes (Tensor, optional): Numbers of the nodes in the graph as it was given, ``[n]``, where the model
            reads only so many nodes of a graph and this one was cut; ``None`` where all were read.
        elements (Tensor, optional): Atomic number of each node, ``[n]``, where the graph was read from SMILES.
        bonds (Tensor, optional): Its edge labels, ``[E]``, see :data:`graphcaps.data.readers.molecules.BOND_LABELS`.
    """

    graph: int
    class_names: tuple[str, ...]
    class_scores: Tensor
    probabilities: Tensor
    predicted: int
    target: int
    true_class: int | None
    edges: Tensor
    node_labels: Tensor | None
    levels: tuple[ExplainedLevel, ...]
    node_scores: Tensor
    edge_scores: Tensor
    reconstruction_error: Tensor | None
    nodes: Tensor | None = None
    elements: Tensor | None = None
    bonds: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        return self.node_scores.numel()

    @property
    def tree(self) -> dict[str, Any]:
        """Class, capsules and nodes as nested dictionaries in JSON's own types; see :mod:`.tree`."""

        return tree_of(self)

    def as_dict(self) -> dict[str, Any]:
        """All fields in JSON's own types."""

        return plain(self)

    def to_json(self, **settings: Any) -> str:
        """:meth:`as_dict` as text; ``settings`` go to :func:`json.dumps`."""
        return json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False, **settings)

    def draw(self, path: str | Path, *, kind: DrawingKind | None = None) -> None:
        """Writes a picture, see :func:`graphcaps.explanation.drawings.draw_explanation`.

        By default a graph that was read from SMILES is drawn as a molecule, where RDKit is installed and the path
        ends in ``.svg`` or ``.png``, and any other as ``"parts"``.
        """
        from graphcaps.explanation.drawings import draw_explanation

        draw_explanation(self, path, kind=kind)

    def to_html(self, path: str | Path | None = None) -> str:
        """A page that stands by itself, returned, and written where a path is given."""
        from graphcaps._io.atomic_write import write_atomically
        from graphcaps.explanation.report import explanation_page

        page = explanation_page(self)
        if path is not None:
            write_atomically(Path(path), page)
        return page


@dataclass(frozen=True, eq=False, repr=False)
class StoreExplanation(ShapeRepr):
    """Why a model gives the graphs of a store their classes: a few flat tensors for G graphs.

    Nodes of graph g are rows ``node_ptr[g]`` to ``node_ptr[g + 1]`` of what is listed as ``[N, …]``, its edges
    those of ``edge_ptr``. Fields with the name of one of :class:`Explanation` hold the same for all graphs.

    Args:
        class_names (tuple): The O classes.
        class_scores, probabilities (Tensor): ``[G, O]``.
        target (Tensor): ``[G]``.
        true_class (Tensor, optional): ``[G]``, −1 where it is not known.
        node_ptr, edge_ptr (Tensor): ``[G + 1]``.
        edges (Tensor): Nodes counted from the first of their graph, ``[2, E]``.
        node_labels (Tensor, optional): ``[N, L]``.
        assignments (tuple): Per level the weights of the last round: ``[N, J]``, then ``[G, J_below, J]``.
        rounds (tuple): Per level those of all rounds: ``[R, N, J]``, then ``[R, G, J_below, J]``.
        lengths (tuple): Per level ``[G, J]``.
        adjacency (tuple): Per level ``[G, J, J]``; ``None`` at the class level.
        node_scores (Tensor): ``[N]``.
        edge_scores (Tensor): ``[E]``.
        reconstruction_error (Tensor, optional): ``[E]``.
        nodes (Tensor, optional): ``[N]``, where graphs were cut.
        elements, bonds (Tensor, optional): ``[N]`` and ``[E]``, where graphs were read from SMILES.
    """

    class_names: tuple[str, ...]
    class_scores: Tensor
    probabilities: Tensor
    target: Tensor
    true_class: Tensor | None
    node_ptr: Tensor
    edge_ptr: Tensor
    edges: Tensor
    node_labels: Tensor | None
    assignments: tuple[Tensor, ...]
    rounds: tuple[Tensor, ...]
    lengths: tuple[Tensor, ...]
    adjacency: tuple[Tensor | None, ...]
    node_scores: Tensor
    edge_scores: Tensor
    reconstruction_error: Tensor | None
    nodes: Tensor | None = None
    elements: Tensor | None = None
    bonds: Tensor | None = None

    def __len__(self) -> int:
        return self.node_ptr.numel() - 1

    def __iter__(self) -> Iterator[Explanation]:
        return (self[graph] for graph in range(len(self)))

    @property
    def predicted(self) -> Tensor:
        """Class with the highest probability, as :meth:`FittedModel.predict` has it, ``[G]``."""
        return self.probabilities.argmax(-1)

    @property
    def capsule(self) -> Tensor:
        """The capsule of the lowest level that each node belongs to most, ``[N]``."""
        return self.assignments[0].argmax(-1)

    @property
    def node_graph(self) -> Tensor:
        """Graph of each node, ``[N]``."""
        return torch.arange(len(self)).repeat_interleave(self.node_ptr.diff())

    def __getitem__(self, graph: int) -> Explanation:
        """The explanation of one graph; its tensors are views."""
        if not -len(self) <= graph < len(self):
            raise ArgumentError("StoreExplanation", "graph", f"be a number from 0 to {len(self) - 1}", graph)
        graph %= len(self)
        n = slice(*self.node_ptr[graph : graph + 2].tolist())
        e = slice(*self.edge_ptr[graph : graph + 2].tolist())
        levels = []
        for number, (rounds, lengths, adjacency) in enumerate(
            zip(self.rounds, self.lengths, self.adjacency, strict=True)
        ):
            own = rounds[:, n] if number == 0 else rounds[:, graph]
            joined = None if adjacency is None else adjacency[graph]
            levels.append(ExplainedLevel(own[-1], own, lengths[graph], joined))
        known = -1 if self.true_class is None else int(self.true_class[graph])
        nodes = None if self.nodes is None else self.nodes[n]
        return Explanation(
            graph=graph,
            class_names=self.class_names,
            class_scores=self.class_scores[graph],
            probabilities=self.probabilities[graph],
            predicted=int(self.probabilities[graph].argmax()),
            target=int(self.target[graph]),
            true_class=None if known < 0 else known,
            edges=self.edges[:, e],
            node_labels=None if self.node_labels is None else self.node_labels[n],
            levels=tuple(levels),
            node_scores=self.node_scores[n],
            edge_scores=self.edge_scores[e],
            reconstruction_error=None if self.reconstruction_error is None else self.reconstruction_error[e],
            nodes=nodes,
            elements=None if self.elements is None else self.elements[n],
            bonds=None if self.bonds is None else self.bonds[e],
        )


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
