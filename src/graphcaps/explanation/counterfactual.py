"""Counterfactuals of a graph as users handle them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphcaps.explanation.graph_edits import EditKind

__all__ = ["Counterfactual", "Counterfactuals"]


@dataclass(frozen=True)
class Counterfactual:
    """An edit of a graph that changes the class that the model predicts.

    Args:
        kind (str): ``"removal"`` or ``"replacement"`` of the nodes.
        nodes (tuple): The nodes, ascending, counted from 0.
        groups (tuple): Level, counted from 1, and capsule, counted from 0, of the group; two pairs if two groups change
            together, or if the nodes are in two groups.
        whole (bool): Whether the nodes are whole groups, and not a part of them.
        replaced_by (str): What takes the place of the nodes; "" for a removal.
        predicted (int): Class of the edited graph.
        class_name (str): Its name.
        probability (float): Its probability.
        smiles (str, optional): The edited molecule, for molecules; in data sets without SMILES with the hydrogens and
            charges that RDKit's valences ask for.
    """

    kind: EditKind
    nodes: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    whole: bool
    replaced_by: str
    predicted: int
    class_name: str
    probability: float
    smiles: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON values; nodes and capsules are counted from 1, as on the command line."""
        return {
            "kind": self.kind,
            "nodes": [node + 1 for node in self.nodes],
            "groups": [{"level": level, "capsule": capsule + 1} for level, capsule in self.groups],
            "whole_groups": self.whole,
            "replaced_by": self.replaced_by or None,
            "class": self.class_name,
            "probability": float(f"{self.probability:.6g}"),
            "smiles": self.smiles,
        }


@dataclass(frozen=True)
class Counterfactuals:
    """The counterfactuals of one graph, smallest first.

    Args:
        found (tuple): At most three, each of another set of nodes and with another molecule as result: fewest nodes
            first, then the highest probability.
        edits (int): Number of edited graphs that the model classified.
        invalid (int): Number of edits that give no valid molecule, or labels that no training graph has.
        note (str): Why nothing could be edited, in a sentence; else "".
    """

    found: tuple[Counterfactual, ...]
    edits: int
    invalid: int
    note: str = ""

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Counterfactual]:
        return iter(self.found)

    def __getitem__(self, index: int) -> Counterfactual:
        return self.found[index]

    @property
    def sentence(self) -> str:
        """How many edits were tried, and what came of them."""
        if self.note:
            return self.note
        invalid = f"; {self.invalid} more give no valid molecule, or unseen labels" if self.invalid else ""
        tried = f"{self.edits} edit{'' if self.edits == 1 else 's'}"
        return (
            f"{tried} classified by the model{invalid}."
            if self.found
            else f"No counterfactual: none of {tried} changes the class{invalid}."
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON values: ``found``, ``edits``, ``invalid``."""
        return {
            "found": [one.as_dict() for one in self.found],
            "edits": self.edits,
            "invalid": self.invalid,
            "note": self.note or None,
        }
