"""A data set looked over with its copies found: what ``graphcaps data check`` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.quality.duplicates import Duplicates, find_duplicates, fold_leakage
from graphcaps.data.quality.weisfeiler_lehman import wl_indistinguishable
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.ops.edges import EdgeReport

__all__ = ["Finding", "QualityReport", "basic_findings", "quality_report"]


FOLDS = 10  # of the usual cross-validation
MANY = 0.05  # a share of graphs or nodes from which a note becomes a warning
LOPSIDED = 0.8  # share of the largest class
LARGE = 1e4  # size of an attribute
OUTSIZE = 10  # times the median nodes of a graph
_SHOWN = 10


@dataclass(frozen=True)
class Finding:
    """One thing to know.

    Args:
        kind (str): What it is about, a fixed word for programs, such as ``"small-classes"``.
        severity (str): ``"warning"`` where results may mislead or training may fail, else ``"note"``.
        sentence (str): What was found, with numbers.
        count (int): How many classes, graphs, nodes, edges or columns it is about.
        graphs (tuple): The first ten graphs that it is about, counted from 0; empty where it is about none.
    """

    kind: str
    severity: Literal["note", "warning"]
    sentence: str
    count: int
    graphs: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"graphs": list(self.graphs)}


def basic_findings(store: GraphStore) -> tuple[Finding, ...]:
    """Looks a data set over: classes, edges, attributes, graphs that look alike. Warnings come first.

    A set with nothing to say about gives an empty tuple. Nothing here changes the store.
    """
    store = store.to("cpu")
    found = [*_classes(store), *_structure(store), *_edges(store.report), *_columns(store), *_twins(store)]
    return tuple(sorted(found, key=lambda finding: finding.severity != "warning"))


# ---------------------------------------------------------------------- classes
def _classes(store: GraphStore) -> Iterator[Finding]:
    if store.y is None:
        yield Finding(
            "no-classes", "note", "No classes: the graphs can be predicted, not trained on.", len(store)
        )
        return
    counts = torch.bincount(store.y, minlength=store.num_classes).tolist()
    names = [*store.class_names, *(str(index) for index in range(store.num_classes, len(counts)))]
    present = [index for index, count in enumerate(counts) if count]
    if len(present) < 2:
        yield Finding(
            "one-class", "warning", "Fewer than two classes: there is nothing to learn.", len(present)
        )
        return
    empty = [names[index] for index, count in enumerate(counts) if not count]
    if empty:
        said = f"{_count(len(empty), 'class', 'es')} without a graph: {_listed(empty)}."
        yield Finding("empty-classes", "warning", said, len(empty))
    small = [index for index in present if counts[index] < FOLDS]
    if small:
        shown = _listed([f"{names[index]} ({counts[index]})" for index in small])
        few = _count(len(small), "class", "es")
        said = f"{few} with fewer than {FOLDS} graphs, too few for {FOLDS} folds: {shown}."
        members = [g for index in small for g in _where(store.y == index)]
        yield Finding("small-classes", "warning", said, len(small), tuple(sorted(members)[:_SHOWN]))
    largest = max(present, key=lambda index: counts[index])
    share = counts[largest] / len(store)
    said = f"Always answering the largest class, {names[largest]}, is right for {share:.1%} of the graphs"
    if share >= LOPSIDED:
        said += ": accuracy alone says little here"
    yield Finding("balance", "warning" if share >= LOPSIDED else "note", f"{said}.", counts[largest])


# ---------------------------------------------------------------------- nodes and edges
def _structure(store: GraphStore) -> Iterator[Finding]:
    entries = store.edge_ptr[store.node_ptr]
    bare = entries[1:] == entries[:-1]
    if bool(bare.any()):
        number = int(bare.sum())
        said = f"{_count(number, 'graph')} of {len(store):,} without edges: only the nodes tell anything about them."
        yield Finding("no-edges", _severity(number, len(store)), said, number, tuple(_where(bare)[:_SHOWN]))
    # Nodes of graphs without edges are told already.
    isolated = (store.degree == 0) & ~bare[store.node_graph]
    if bool(isolated.any()):
        number, graphs = int(isolated.sum()), torch.unique(store.node_graph[isolated]).tolist()
        said = (
            f"{_count(number, 'node')} without neighbours in {_count(len(graphs), 'graph')} that "
            f"{'has' if len(graphs) == 1 else 'have'} edges: no message reaches {'it' if number == 1 else 'them'}."
        )
        yield Finding(
            "isolated-nodes", _severity(number, store.num_nodes), said, number, tuple(graphs[:_SHOWN])
        )
    median = float(store.sizes.double().median()) if len(store) else 0.0
    large = _where(store.sizes >= OUTSIZE * max(median, 1))
    if large:
        said = (
            f"{_count(len(large), 'graph')} with {OUTSIZE} times the median of {median:,.0f} nodes and more, the "
            f"largest with {store.max_size:,}: such graphs decide memory and time; --max-nodes cuts them."
        )
        yield Finding("large-graphs", "note", said, len(large), tuple(large[:_SHOWN]))


def _edges(report: EdgeReport) -> Iterator[Finding]:
    if report.self_loops:
        said = f"{_count(report.self_loops, 'self-loop')} in the edge list, removed: the model adds its own."
        yield Finding("self-loops", "note", said, report.self_loops)
    if report.repeated:
        said = f"{_count(report.repeated, 'row')} of {report.rows:,} in the edge list repeated, and merged."
        yield Finding("repeated-edges", "note", said, report.repeated)
    if report.one_way:
        everywhere = report.one_way == report.edges
        said = f"{_count(report.one_way, 'edge')} of {report.edges:,} listed in one direction only, read as undirected"
        said += "." if everywhere else ": if direction has a meaning, it is lost."
        yield Finding("one-way-edges", "note" if everywhere else "warning", said, report.one_way)
    if report.conflicting_labels:
        number = report.conflicting_labels
        said = f"{_count(number, 'edge')} listed with different labels: the first of them is kept."
        yield Finding("conflicting-edge-labels", "warning", said, number)


# ---------------------------------------------------------------------- columns
def _columns(store: GraphStore) -> Iterator[Finding]:
    for what, values in (("label", store.node_labels), ("attribute", store.node_attributes)):
        if values is None or not values.numel():
            continue
        table = values.reshape(values.size(0), -1)
        wrong = (
            ~torch.isfinite(table) if table.is_floating_point() else torch.zeros_like(table, dtype=torch.bool)
        )
        if bool(wrong.any()):
            graphs = torch.unique(store.node_graph[wrong.any(1)]).tolist()
            said = f"{_count(int(wrong.sum()), f'node {what}')} not finite (NaN or infinite): training refuses them."
            yield Finding(f"not-finite-{what}s", "warning", said, int(wrong.sum()), tuple(graphs[:_SHOWN]))
        constant = _where((table == table[:1]).all(0))
        if constant:
            names = _listed([f"{what}[{column}] is {table[0, column].item():g}" for column in constant])
            said = (
                f"{len(constant)} of {_count(table.size(1), f'node {what} column')} with one value: {names}."
            )
            yield Finding(f"constant-{what}s", "note" if what == "label" else "warning", said, len(constant))
        if what == "attribute":
            size = table.abs().double().nan_to_num(0, 0, 0).amax(0)
            large = _where(size >= LARGE)
            if large:
                names = _listed([f"{what}[{column}] up to {size[column]:.3g}" for column in large])
                said = (
                    f"{len(large)} of {_count(table.size(1), 'node attribute column')} with numbers from "
                    f"{LARGE:,.0f} on, best scaled before training: {names}."
                )
                yield Finding("large-attributes", "warning", said, len(large))


# ---------------------------------------------------------------------- look-alikes
def _twins(store: GraphStore) -> Iterator[Finding]:
    groups = wl_indistinguishable(store)
    if not groups:
        return
    number, total = sum(len(group) for group in groups), len(store)
    known = [what for what in ("node_labels", "node_attributes") if getattr(store, what) is not None]
    same = " and ".join(["structure", *known]).replace("_", " ").replace(" and ", ", ", len(known) - 1)
    shown = tuple(int(graph) for graph in np.sort(np.concatenate(groups))[:_SHOWN])
    said = (
        f"{number:,} of {total:,} graphs look alike in {_count(len(groups), 'group')} (the same {same}, as far "
        "as colour refinement sees): folds put some of them on both sides."
    )
    yield Finding("look-alikes", _severity(number, total), said, number, shown)
    if store.y is None:
        return
    classes = store.y.numpy()
    split = [group for group in groups if len(np.unique(classes[group])) > 1]
    if split:
        lost = sum(len(group) - int(np.bincount(classes[group]).max()) for group in split)
        said = (
            f"{_count(len(split), 'group')} of look-alikes with different classes: message passing over nodes and "
            f"edges can tell at most {1 - lost / total:.1%} of the graphs right."
        )
        shown = tuple(int(graph) for graph in np.sort(np.concatenate(split))[:_SHOWN])
        yield Finding("conflicting-classes", "warning", said, len(split), shown)


# ---------------------------------------------------------------------- words
def _severity(number: int, total: int) -> Literal["note", "warning"]:
    return "warning" if number >= MANY * total else "note"


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _where(mask: Tensor) -> list[int]:
    found: list[int] = mask.nonzero().reshape(-1).tolist()
    return found


@dataclass(frozen=True, eq=False)
class QualityReport:
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
                "unsure_graphs": sum(len(group) for group in self.duplicates.undecided),
                "unsure_groups": len(self.duplicates.undecided),
            },
            "ceiling": None if self.ceiling is None else round(self.ceiling, 4),
            "leakage": leakage,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def quality_report(store: GraphStore, *, seconds: float | None = None) -> QualityReport:
    """:func:`graphcaps.data.quality.quality_report.basic_findings`, with copies confirmed, their classes compared,
    and the leak they make.

    Look-alikes are told of only where they are others than the copies: where edges have labels, which count for a
    copy and which the published model does not read.

    Args:
        store (GraphStore): The graphs.
        seconds (float, optional): Time for confirming copies, see
            :func:`graphcaps.data.quality.duplicates.find_duplicates`.
    """
    store = store.to("cpu")
    found = find_duplicates(store, seconds=seconds)
    findings = list(basic_findings(store))
    if _same(wl_indistinguishable(store), found.groups):
        findings = [one for one in findings if one.kind not in ("look-alikes", "conflicting-classes")]
    ceiling = leakage = None
    if store.y is not None:
        ceiling = 1 - found.conflicts(store.y)[1] / max(len(store), 1)
        leakage = _leakage(store, found)
    findings += [*_copies(store, found), *_conflicts(store, found), *_leak(leakage)]
    ordered = tuple(sorted(findings, key=lambda finding: finding.severity != "warning"))
    return QualityReport(ordered, found, ceiling, leakage)


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
    if found.undecided:
        number = sum(len(group) for group in found.undecided)
        said = (
            f"{number:,} graphs in {_count(len(found.undecided), 'group')} look alike (the same {listed}, as far as "
            "colour refinement sees), but comparing them would take too long: copies, or not."
        )
        yield Finding("unsure-duplicates", "note", said, number, _first(found.undecided))


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
    return fold_leakage(folds, found.group_ids(undecided=False))


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
