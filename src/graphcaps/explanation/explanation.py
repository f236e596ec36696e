"""Explanations as users handle them: as a tree, as JSON, as a drawing and as an HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.explanation.explanation_data import ExplainedLevel, ExplanationData, StoreExplanationData

if TYPE_CHECKING:
    from graphcaps.explanation.drawings import DrawingKind

__all__ = ["ExplainedLevel", "Explanation", "StoreExplanation"]


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(ExplanationData):
    """Why a model predicts a class for one graph; see :class:`ExplanationData` for the fields."""

    @property
    def tree(self) -> dict[str, Any]:
        """Classes, below them capsules level by level, below these the nodes, as nested JSON values.

        A node is listed under the capsule that it belongs to, with its coefficient as ``weight``. A capsule is listed
        under the capsule or class that it contributes most to; ``contributions`` and ``weights`` are its contributions
        and routing coefficients to all of them, ``contribution`` and ``weight`` those to the one above it. A class or
        capsule without such entries has no ``parts``, and no class of a graph without nodes has any.

        The contributions of the ``parts`` of a class, ``other_contributions``, those of the capsules that are listed
        under other classes, and ``residual_contribution`` add up to its length. So do those of a capsule above the
        lowest level.

        Returns:
            dict: ``{"predicted", "target", "classes": [{"class", "length", "probability", "parts",
            "other_contributions", "residual_contribution"}]}``, where a part is ``{"level", "capsule", "length",
            "contribution", "contributions", "weight", "weights", "parts"}``, from level 2 on with the two entries as
            well (levels count from 1, above the nodes), or ``{"node", "weight", "score"}``. Capsules are sorted by
            descending contribution, nodes by descending weight.
        """
        lowest, *above = self.levels
        capsule = lowest.capsule.unsqueeze(1)
        nodes = range(self.num_nodes) if self.nodes is None else self.nodes.tolist()
        entries: list[dict[str, Any]] = [
            {"node": node, "weight": _round(weight), "score": _round(score)}
            for node, weight, score in zip(
                nodes,
                lowest.assignment.gather(1, capsule).squeeze(1).tolist(),
                self.node_scores.tolist(),
                strict=True,
            )
        ]
        parents = capsule.squeeze(1).tolist()
        rest: list[dict[str, float]] = [
            {} for _ in range(lowest.lengths.numel())
        ]  # parts of the lowest are nodes
        for number, level in enumerate(above, start=1):
            children = _group(entries, parents, level.assignment.size(0))
            weights, contributions = level.assignment.tolist(), level.contributions.tolist()
            parents = level.contributions.argmax(-1).tolist()
            lengths = self.levels[number - 1].lengths.tolist()
            entries = [
                {
                    "level": number,
                    "capsule": capsule,
                    "length": _round(lengths[capsule]),
                    "contribution": _round(contributions[capsule][parents[capsule]]),
                    "contributions": [_round(value) for value in contributions[capsule]],
                    "weight": _round(weights[capsule][parents[capsule]]),
                    "weights": [_round(weight) for weight in weights[capsule]],
                    "parts": parts,
                }
                | rest[capsule]
                for capsule, parts in enumerate(children)
            ]
            rest = _rest(level, parents)
        names = self.class_names
        parts_of = _group(entries, parents, len(names)) if self.num_nodes else [[] for _ in names]
        classes = [
            {
                "class": name,
                "length": _round(float(self.class_scores[number])),
                "probability": _round(float(self.probabilities[number])),
                "parts": parts,
            }
            | rest[number]
            for number, (name, parts) in enumerate(zip(names, parts_of, strict=True))
        ]
        return {"predicted": names[self.predicted], "target": names[self.target], "classes": classes}

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON values; numbers are rounded to six significant digits."""
        names = self.class_names
        return {
            "graph": self.graph,
            "class_names": list(names),
            "class_scores": _to_list(self.class_scores),
            "probabilities": _to_list(self.probabilities),
            "predicted": names[self.predicted],
            "target": names[self.target],
            "true_class": None if self.true_class is None else names[self.true_class],
            "num_nodes": self.num_nodes,
            "note": self.note or None,
            "smiles": self.smiles,
            "nodes": _to_list(self.nodes),
            "edges": self.edges.T.tolist(),
            "node_labels": _to_list(self.node_labels),
            "node_scores": _to_list(self.node_scores),
            "edge_scores": _to_list(self.edge_scores),
            "reconstruction_error": _to_list(self.reconstruction_error),
            **self._members(),
            **self._companion(),
            "levels": [
                {
                    "assignment": _to_list(level.assignment),
                    "iterations": _to_list(level.iterations),
                    "mean_coefficients": _to_list(
                        None if level.mean_coefficients is None else level.mean_coefficients[-1]
                    ),
                    "groups": _to_list(level.groups),
                    "capsule": level.capsule.tolist(),
                    "lengths": _to_list(level.lengths),
                    "adjacency": _to_list(level.adjacency),
                    "contributions": _to_list(level.contributions),
                    "residual_contributions": _to_list(level.residual_contributions),
                }
                for level in self.levels
            ],
        }

    def _members(self) -> dict[str, Any]:
        """How far the members of a committee agree, under ``members``; {} for a single model."""
        if self.member_node_scores is None or self.member_predicted is None:
            return {}
        agreement = self.agreement
        return {
            "members": {
                "predicted": [self.class_names[index] for index in self.member_predicted.tolist()],
                "node_scores": _to_list(self.member_node_scores),
                "agreement": None if agreement is None else _round(agreement),
            }
        }

    def _companion(self) -> dict[str, Any]:
        """What else the answer is made of, under ``companion``; {} for a network alone."""
        if self.network_share is None:
            return {}
        return {
            "companion": {"models": list(self.part_names[1:]), "network_share": _round(self.network_share)}
        }

    def to_json(self, **settings: Any) -> str:
        """:meth:`as_dict` as text; ``settings`` are passed to :func:`json.dumps`."""
        return json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False, **settings)

    def draw(self, path: str | Path, *, kind: DrawingKind | None = None) -> None:
        """Writes a picture, see :func:`graphcaps.explanation.drawings.draw_explanation`."""
        from graphcaps.explanation.drawings import draw_explanation

        draw_explanation(self, path, kind=kind)

    def to_html(self, path: str | Path | None = None) -> str:
        """Returns a self-contained HTML page, and writes it if a path is given."""
        from graphcaps._io.atomic_write import write_atomically
        from graphcaps.explanation.report import explanation_page

        page = explanation_page(self)
        if path is not None:
            write_atomically(Path(path), page)
        return page


@dataclass(frozen=True, eq=False, repr=False)
class StoreExplanation(StoreExplanationData):
    """Explanations of all graphs of a store; see :class:`StoreExplanationData` for the fields.

    ``len``, iteration and ``explanations[i]`` give single :class:`Explanation` objects, whose tensors are views.
    """

    def __iter__(self) -> Iterator[Explanation]:
        return (self[graph] for graph in range(len(self)))

    def __getitem__(self, graph: int) -> Explanation:
        if not -len(self) <= graph < len(self):
            raise ArgumentError("StoreExplanation", "graph", f"be from 0 to {len(self) - 1}", graph)
        graph %= len(self)
        n = slice(*self.node_ptr[graph : graph + 2].tolist())
        e = slice(*self.edge_ptr[graph : graph + 2].tolist())
        levels = []
        for number, iterations in enumerate(self.iterations):
            graph_iterations, adjacency = (
                iterations[:, n] if number == 0 else iterations[:, graph],
                self.adjacency[number],
            )
            levels.append(
                ExplainedLevel(
                    assignment=graph_iterations[-1],
                    iterations=graph_iterations,
                    lengths=self.lengths[number][graph],
                    adjacency=None if adjacency is None else adjacency[graph],
                    contributions=self.contributions[number][n if number == 0 else graph],
                    residual_contributions=self.residual_contributions[number][graph],
                    mean_coefficients=None
                    if self.mean_coefficients is None
                    else self.mean_coefficients[number],
                    groups=None if number or self.groups is None else self.groups[n] - n.start,
                )
            )
        true_class = -1 if self.true_class is None else int(self.true_class[graph])

        def rows(values: Tensor | None, span: slice) -> Tensor | None:
            return None if values is None else values[span]

        return Explanation(
            graph=graph,
            class_names=self.class_names,
            class_scores=self.class_scores[graph],
            probabilities=self.probabilities[graph],
            predicted=int(self.probabilities[graph].argmax()),
            target=int(self.target[graph]),
            true_class=None if true_class < 0 else true_class,
            edges=self.edges[:, e],
            node_labels=rows(self.node_labels, n),
            levels=tuple(levels),
            node_scores=self.node_scores[n],
            edge_scores=self.edge_scores[e],
            reconstruction_error=rows(self.reconstruction_error, e),
            nodes=rows(self.nodes, n),
            elements=rows(self.elements, n),
            bonds=rows(self.bonds, e),
            featurizer=self.featurizer,
            smiles=None if self.smiles is None else self.smiles[graph],
            member_node_scores=None if self.member_node_scores is None else self.member_node_scores[:, n],
            member_predicted=None if self.member_predicted is None else self.member_predicted[:, graph],
            part_names=self.part_names,
            network_share=None if self.network_share is None else float(self.network_share[graph]),
        )


def _group(entries: list[dict[str, Any]], parents: list[int], count: int) -> list[list[dict[str, Any]]]:
    """The entries of each of ``count`` parents, sorted by descending contribution, or weight for nodes."""
    groups: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for entry, parent in zip(entries, parents, strict=True):
        groups[parent].append(entry)
    return [sorted(group, key=lambda entry: -entry.get("contribution", entry["weight"])) for group in groups]


def _rest(level: ExplainedLevel, parents: list[int]) -> list[dict[str, float]]:
    """What adds to each output capsule beside the capsules listed under it: other capsules, and the residual."""
    listed = torch.nn.functional.one_hot(torch.tensor(parents), level.contributions.size(-1)).bool()
    elsewhere = level.contributions.double().masked_fill(listed, 0.0).sum(0).tolist()
    pairs = zip(elsewhere, level.residual_contributions.tolist(), strict=True)
    return [
        {"other_contributions": _round(other), "residual_contribution": _round(residual)}
        for other, residual in pairs
    ]


def _to_list(values: Tensor | None) -> Any:
    return None if values is None else _round_nested(values.tolist())


def _round_nested(value: Any) -> Any:
    if isinstance(value, list):
        return [_round_nested(item) for item in value]
    return _round(value) if isinstance(value, float) else value


def _round(value: float) -> float:
    return float(f"{value:.6g}")
