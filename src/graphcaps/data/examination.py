"""A data set looked over with its copies found: what ``graphcaps data check`` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphcaps.data.doctor import MANY, Finding, examine
from graphcaps.data.duplicates import Duplicates, find_duplicates, fold_leakage
from graphcaps.data.lookalikes import look_alikes
from graphcaps.data.splits import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["Examination", "examine_with_copies"]

_SHOWN = 10


@dataclass(frozen=True, eq=False)
class Examination:
    """What was found.

    Args:
        findings (tuple): Things to know, warnings first.
        duplicates (Duplicates): Copies among the graphs.
        ceiling (float, optional): Share of graphs that any method can tell right at most, given copies with
            different classes; ``None`` without classes.
        leakage (tuple, optional): For each of ten folds, the share of test graphs with a copy among the others;
            ``None`` where there are no such folds.
    """

    findings: tuple[Finding, ...]
    duplicates: Duplicates
    ceiling: float | None
    leakage: tuple[float, ...] | None

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        leakage = None
        if self.leakage is not None:
            shares = [round(share, 4) for share in self.leakage]
            mean = round(float(np.mean(self.leakage)), 4)
            leakage = {"folds": len(shares), "mean": mean, "min": min(shares), "max": max(shares)}
        return {
            "duplicates": {
                "graphs": self.duplicates.num_duplicates,
                "groups": len(self.duplicates.groups),
                "unsure_graphs": sum(len(group) for group in self.duplicates.unsure),
                "unsure_groups": len(self.duplicates.unsure),
            },
            "ceiling": None if self.ceiling is None else round(self.ceiling, 4),
            "leakage": leakage,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def examine_with_copies(store: GraphStore, *, seconds: float | None = None) -> Examination:
    """:func:`graphcaps.data.doctor.examine`, with copies confirmed, their classes compared, and the leak they make.

    Look-alikes are told of only where they are others than the copies: where edges have labels, which count for a
    copy and which the published model does not read.

    Args:
        store (GraphStore): The graphs.
        seconds (float, optional): Time for confirming copies, see
            :func:`graphcaps.data.duplicates.find_duplicates`.
    """
    store = store.to("cpu")
    found = find_duplicates(store, seconds=seconds)
    findings = list(examine(store))
    if _same(look_alikes(store), found.groups):
        findings = [one for one in findings if one.kind not in ("look-alikes", "conflicting-classes")]
    ceiling = leakage = None
    if store.y is not None:
        ceiling = 1 - found.conflicts(store.y)[1] / max(len(store), 1)
        leakage = _leakage(store, found)
    findings += [*_copies(store, found), *_conflicts(store, found), *_leak(leakage)]
    ordered = tuple(sorted(findings, key=lambda finding: finding.severity != "warning"))
    return Examination(ordered, found, ceiling, leakage)


def _copies(store: GraphStore, found: Duplicates) -> Iterator[Finding]:
    known = ["node_labels", "node_attributes", "edge_labels", "edge_attributes", "edge_weight"]
    same = ["structure"] + [what.replace("_", " ") for what in known if getattr(store, what) is not None]
    listed = ", ".join(same[:-1]) + " and " + same[-1] if len(same) > 1 else same[0]
    if found.groups:
        number, total = found.num_duplicates, len(store)
        said = (
            f"{number:,} of {total:,} graphs have a copy, in {_count(len(found.groups), 'group')} (the same {listed} "
            "up to the order of nodes; confirmed)."
        )
        severity = "warning" if number >= MANY * total else "note"
        yield Finding("duplicates", severity, said, number, _first(found.groups))  # type: ignore[arg-type]
    if found.unsure:
        number = sum(len(group) for group in found.unsure)
        said = (
            f"{number:,} graphs in {_count(len(found.unsure), 'group')} look alike (the same {listed}, as far as "
            "colour refinement sees), but comparing them would take too long: copies, or not."
        )
        yield Finding("unsure-duplicates", "note", said, number, _first(found.unsure))


def _conflicts(store: GraphStore, found: Duplicates) -> Iterator[Finding]:
    if store.y is None:
        return
    split, lost = found.conflicts(store.y)
    if split:
        said = (
            f"{_count(len(split), 'group')} of copies with different classes: no method can tell more than "
            f"{1 - lost / len(store):.1%} of the graphs right."
        )
        yield Finding("conflicting-duplicates", "warning", said, len(split), _first(split))


def _leakage(store: GraphStore, found: Duplicates) -> tuple[float, ...] | None:
    try:
        folds = stratified_folds(store.y)
    except ArgumentError:  # too few graphs for ten folds, which other findings tell
        return None
    return fold_leakage(folds, found.group_ids(unsure=False))


def _leak(leakage: tuple[float, ...] | None) -> Iterator[Finding]:
    if leakage is None or not any(leakage):
        return
    mean = float(np.mean(leakage))
    said = (
        f"In ten folds, {mean:.1%} of the test graphs have a copy among the graphs to learn from "
        f"({min(leakage):.1%} to {max(leakage):.1%} in a fold): stratified_folds(y, groups=…) keeps copies together."
    )
    count = sum(share > 0 for share in leakage)
    yield Finding("leakage", "warning" if mean >= MANY else "note", said, count)


def _same(one: Sequence[NDArray], other: Sequence[NDArray]) -> bool:
    return [group.tolist() for group in one] == [group.tolist() for group in other]


def _first(groups: Sequence[NDArray]) -> tuple[int, ...]:
    return tuple(int(graph) for graph in np.sort(np.concatenate(groups))[:_SHOWN])


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
