"""Quality report of a data set: what ``graphcaps data check`` prints.

It covers class balance, graph structure, the edge list, node columns, duplicates, and test graphs that have a duplicate
in the training set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.chemistry.featurizers import find_featurizer
from graphcaps.data.class_names import classes_alike, describe_quantities, numbers_beside_text
from graphcaps.data.quality.duplicates import Duplicates, find_duplicates, fold_leakage
from graphcaps.data.quality.weisfeiler_lehman import wl_indistinguishable
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, count_noun
from graphcaps.ops.edges import EdgeReport

__all__ = ["Finding", "QualityReport", "basic_findings", "quality_report"]

Severity = Literal["note", "warning"]

_NUM_FOLDS = 10  # of the usual cross-validation
_WARNING_FRACTION = 0.05  # of graphs or nodes, from which a note becomes a warning
_IMBALANCED = 0.8  # fraction of the largest class
_LARGE_ATTRIBUTE = 1e4
_LARGE_GRAPH = 10  # times the median number of nodes
_MAX_LISTED = 10  # graphs listed in a finding
_ALL_COLUMNS = ("node_labels", "node_attributes", "edge_labels", "edge_attributes", "edge_weight")


@dataclass(frozen=True)
class Finding:
    """One finding of a quality report.

    Args:
        kind (str): Fixed identifier for programs, such as ``"small-classes"``.
        severity (str): ``"warning"`` if results may mislead or training may fail, else ``"note"``.
        sentence (str): The finding in words, with numbers.
        count (int): Number of classes, graphs, nodes, edges or columns concerned.
        graphs (tuple): The first ten graphs concerned, counted from 0; empty where the finding is not about graphs.
    """

    kind: str
    severity: Severity
    sentence: str
    count: int
    graphs: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The finding in JSON types."""
        return asdict(self) | {"graphs": list(self.graphs)}


@dataclass(frozen=True, eq=False)
class QualityReport:
    """Findings about a data set.

    Args:
        findings (tuple): Findings, warnings first.
        duplicates (Duplicates): Duplicates among the graphs.
        ceiling (float, optional): Upper bound on the accuracy of any classifier, because of duplicates with different
            classes; ``None`` without class labels.
        leakage (tuple, optional): For each of ten folds, the fraction of test graphs with a duplicate in the training
            set; ``None`` if there are too few graphs for ten folds.
    """

    findings: tuple[Finding, ...]
    duplicates: Duplicates
    ceiling: float | None
    leakage: tuple[float, ...] | None

    def as_dict(self) -> dict[str, Any]:
        """The report in JSON types."""
        leakage = None
        if self.leakage is not None:
            fractions = [round(fraction, 4) for fraction in self.leakage]
            mean = round(float(np.mean(self.leakage)), 4)
            leakage = {"folds": len(fractions), "mean": mean, "min": min(fractions), "max": max(fractions)}
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
    """The findings of :func:`basic_findings`, with duplicates and their effect on cross-validation.

    WL-indistinguishable graphs are reported only where they differ from the duplicates: where edges have labels,
    attributes or weights, which the published model does not read.

    Args:
        store (GraphStore): The graphs.
        seconds (float, optional): Time limit for finding duplicates, see
            :func:`graphcaps.data.quality.duplicates.find_duplicates`.
    """
    store = store.to("cpu")
    duplicates = find_duplicates(store, seconds=seconds)
    findings = list(basic_findings(store))
    if _same_groups(wl_indistinguishable(store), duplicates.groups):
        findings = [one for one in findings if one.kind not in ("look-alikes", "conflicting-classes")]
    ceiling = leakage = None
    if store.y is not None:
        ceiling = 1 - duplicates.conflicts(store.y)[1] / max(len(store), 1)
        leakage = _leakage(store, duplicates)
    findings += [
        *_duplicate_findings(store, duplicates),
        *_conflict_findings(store, duplicates),
        *_leakage_findings(leakage),
    ]
    return QualityReport(_warnings_first(findings), duplicates, ceiling, leakage)


def basic_findings(store: GraphStore) -> tuple[Finding, ...]:
    """Findings about classes, structure, edge list, node columns and WL-indistinguishable graphs, warnings first."""
    store = store.to("cpu")
    findings = [
        *_class_findings(store),
        *_structure_findings(store),
        *_edge_findings(store.report),
        *_column_findings(store),
        *_indistinguishable_findings(store),
    ]
    return _warnings_first(findings)


# ---------------------------------------------------------------------- classes
def _class_findings(store: GraphStore) -> Iterator[Finding]:
    if store.y is None:
        yield Finding(
            "no-classes", "note", "No class labels: the graphs can be predicted, not trained on.", len(store)
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
        sentence = f"{count_noun(len(empty), 'class', 'es')} without graphs: {_shorten(empty)}."
        yield Finding("empty-classes", "warning", sentence, len(empty))
    alike = classes_alike(names[index] for index in present)
    if alike:
        shown = _shorten([" and ".join(group) for group in alike])
        sentence = f"Classes that differ in case only, perhaps one class written in several ways: {shown}."
        yield Finding("classes-alike", "warning", sentence, sum(map(len, alike)))
    if (kinds := numbers_beside_text(names[index] for index in present)) is not None:
        numbers, texts = (_shorten(kind) for kind in kinds)
        sentence = f"Numbers and text as classes, perhaps one class written in several ways: {numbers} beside {texts}."
        yield Finding("numbers-beside-text", "warning", sentence, min(map(len, kinds)))
    if quantities := describe_quantities([names[index] for index in present]):
        yield Finding("quantities", "warning", quantities, len(present))
    small = [index for index in present if counts[index] < _NUM_FOLDS]
    if small:
        names_and_counts = _shorten([f"{names[index]} ({counts[index]})" for index in small])
        sentence = (
            f"{count_noun(len(small), 'class', 'es')} with fewer than {_NUM_FOLDS} graphs, too few for {_NUM_FOLDS} "
            f"folds: {names_and_counts}."
        )
        members = [g for index in small for g in _indices(store.y == index)]
        yield Finding("small-classes", "warning", sentence, len(small), tuple(sorted(members)[:_MAX_LISTED]))
    largest = max(present, key=lambda index: counts[index])
    fraction = counts[largest] / len(store)
    imbalanced = fraction >= _IMBALANCED
    listed = _shorten([f"{names[index]} ({counts[index]:,})" for index in present], 12)
    sentence = f"{count_noun(len(present), 'class', 'es')}: {listed}. "
    sentence += f"Always predicting the largest class, {names[largest]}, has an accuracy of {fraction:.1%}"
    sentence += ": also look at balanced accuracy." if imbalanced else "."
    yield Finding("balance", "warning" if imbalanced else "note", sentence, counts[largest])


# ---------------------------------------------------------------------- nodes and edges
def _structure_findings(store: GraphStore) -> Iterator[Finding]:
    empty = store.empty_graphs.tolist()
    if empty:
        sentence = (
            f"{count_noun(len(empty), 'graph')} of {len(store):,} without nodes: training leaves them out, and their "
            "prediction is the most frequent class."
        )
        yield Finding(
            "no-nodes", _severity(len(empty), len(store)), sentence, len(empty), tuple(empty[:_MAX_LISTED])
        )
    entries = store.edge_ptr[store.node_ptr]
    edgeless = (entries[1:] == entries[:-1]) & (store.sizes > 0)
    if bool(edgeless.any()):
        number = int(edgeless.sum())
        sentence = f"{count_noun(number, 'graph')} of {len(store):,} without edges: only their nodes can be compared."
        yield Finding(
            "no-edges",
            _severity(number, len(store)),
            sentence,
            number,
            tuple(_indices(edgeless)[:_MAX_LISTED]),
        )
    # Nodes of graphs without edges are covered by the finding above.
    isolated = (store.degree == 0) & ~edgeless[store.node_graph]
    if bool(isolated.any()):
        number, graphs = int(isolated.sum()), torch.unique(store.node_graph[isolated]).tolist()
        sentence = (
            f"{count_noun(number, 'node')} without neighbours in {count_noun(len(graphs), 'graph')} that "
            f"{'has' if len(graphs) == 1 else 'have'} edges: {'it receives' if number == 1 else 'they receive'} "
            "no messages."
        )
        yield Finding(
            "isolated-nodes",
            _severity(number, store.num_nodes),
            sentence,
            number,
            tuple(graphs[:_MAX_LISTED]),
        )
    median = float(store.sizes.double().median()) if len(store) else 0.0
    large = _indices(store.sizes >= _LARGE_GRAPH * max(median, 1))
    if large:
        sentence = (
            f"{count_noun(len(large), 'graph')} with at least {_LARGE_GRAPH} times the median of {median:,.0f} nodes, "
            f"the largest with {store.max_size:,}: they determine memory and time; --max-nodes truncates them."
        )
        yield Finding("large-graphs", "note", sentence, len(large), tuple(large[:_MAX_LISTED]))


def _edge_findings(report: EdgeReport) -> Iterator[Finding]:
    if report.self_loops:
        sentence = (
            f"{count_noun(report.self_loops, 'self-loop')} in the edge list, removed: the model adds its own."
        )
        yield Finding("self-loops", "note", sentence, report.self_loops)
    if report.repeated:
        sentence = (
            f"{count_noun(report.repeated, 'row')} of {report.rows:,} in the edge list repeated, and merged."
        )
        yield Finding("repeated-edges", "note", sentence, report.repeated)
    if report.one_way:
        everywhere = report.one_way == report.edges
        edges = f"{count_noun(report.one_way, 'edge')} of {report.edges:,}"
        sentence = f"{edges} listed in one direction only, read as undirected"
        sentence += "." if everywhere else ": if direction has a meaning, it is lost."
        yield Finding("one-way-edges", "note" if everywhere else "warning", sentence, report.one_way)
    if report.conflicting_labels:
        number = report.conflicting_labels
        sentence = f"{count_noun(number, 'edge')} listed with different labels: the first label is kept."
        yield Finding("conflicting-edge-labels", "warning", sentence, number)


# ---------------------------------------------------------------------- node columns
def _column_findings(store: GraphStore) -> Iterator[Finding]:
    for kind, values in (("label", store.node_labels), ("attribute", store.node_attributes)):
        if values is None or not values.numel():
            continue
        table = values.reshape(values.size(0), -1)
        num_columns = count_noun(table.size(1), f"node {kind} column")
        wrong = (
            ~torch.isfinite(table) if table.is_floating_point() else torch.zeros_like(table, dtype=torch.bool)
        )
        if bool(wrong.any()):
            graphs = torch.unique(store.node_graph[wrong.any(1)]).tolist()
            number = int(wrong.sum())
            sentence = (
                f"{count_noun(number, f'node {kind}')} not finite (NaN or infinite): training refuses them."
            )
            yield Finding(f"not-finite-{kind}s", "warning", sentence, number, tuple(graphs[:_MAX_LISTED]))
        constant = _indices((table == table[:1]).all(0))
        if constant:
            columns = _shorten([_describe_constant(store, kind, table, column) for column in constant])
            sentence = f"{len(constant)} of {num_columns} with one value: {columns}."
            severity: Severity = "note" if kind == "label" else "warning"
            yield Finding(f"constant-{kind}s", severity, sentence, len(constant))
        if kind == "attribute":
            size = table.abs().double().nan_to_num(0, 0, 0).amax(0)
            large = _indices(size >= _LARGE_ATTRIBUTE)
            if large:
                columns = _shorten([f"{kind}[{column}] up to {size[column]:.3g}" for column in large])
                sentence = (
                    f"{len(large)} of {num_columns} with absolute values of {_LARGE_ATTRIBUTE:,.0f} or more, best "
                    f"scaled before training: {columns}."
                )
                yield Finding("large-attributes", "warning", sentence, len(large))


def _describe_constant(store: GraphStore, kind: str, table: Tensor, column: int) -> str:
    """A column with one value in words: "label[0] is 6", or "aromatic is no" for molecules."""
    if kind == "label" and store.featurizer is not None:
        feature = find_featurizer(store.featurizer).atoms[column]
        return f"{feature.name} is {feature.word(int(table[0, column]))}"
    return f"{kind}[{column}] is {table[0, column].item():g}"


# ---------------------------------------------------------------------- WL-indistinguishable graphs and duplicates
def _indistinguishable_findings(store: GraphStore) -> Iterator[Finding]:
    groups = wl_indistinguishable(store)
    if not groups:
        return
    number, total = sum(len(group) for group in groups), len(store)
    sentence = (
        f"{number:,} of {total:,} graphs are WL-indistinguishable from others, in {count_noun(len(groups), 'group')} "
        f"(equal {_equal_columns(store, _ALL_COLUMNS[:2])}): folds have some of them in training and test set."
    )
    yield Finding("look-alikes", _severity(number, total), sentence, number, _first_graphs(groups))
    if store.y is None:
        return
    classes = store.y.numpy()
    mixed = [group for group in groups if len(np.unique(classes[group])) > 1]
    if mixed:
        errors = sum(len(group) - int(np.bincount(classes[group]).max()) for group in mixed)
        sentence = (
            f"{count_noun(len(mixed), 'group')} of WL-indistinguishable graphs with different classes: message passing "
            f"over nodes and edges has an accuracy of at most {1 - errors / total:.1%}."
        )
        yield Finding("conflicting-classes", "warning", sentence, len(mixed), _first_graphs(mixed))


def _duplicate_findings(store: GraphStore, duplicates: Duplicates) -> Iterator[Finding]:
    columns = _equal_columns(store, _ALL_COLUMNS)
    if duplicates.groups:
        number, total = duplicates.num_duplicates, len(store)
        sentence = (
            f"{number:,} of {total:,} graphs have duplicates, in {count_noun(len(duplicates.groups), 'group')} "
            f"(isomorphic graphs with equal {columns}; confirmed)."
        )
        yield Finding(
            "duplicates", _severity(number, total), sentence, number, _first_graphs(duplicates.groups)
        )
    if duplicates.undecided:
        number = sum(len(group) for group in duplicates.undecided)
        sentence = (
            f"{number:,} graphs in {count_noun(len(duplicates.undecided), 'group')} may be duplicates: they are "
            f"WL-indistinguishable (equal {columns}), but testing for isomorphism would take too long."
        )
        yield Finding("unsure-duplicates", "note", sentence, number, _first_graphs(duplicates.undecided))


def _conflict_findings(store: GraphStore, duplicates: Duplicates) -> Iterator[Finding]:
    if store.y is None:
        return
    mixed, errors = duplicates.conflicts(store.y)
    if mixed:
        sentence = (
            f"{count_noun(len(mixed), 'group')} of duplicates with different classes: no classifier has an accuracy "
            f"above {1 - errors / len(store):.1%}."
        )
        yield Finding("conflicting-duplicates", "warning", sentence, len(mixed), _first_graphs(mixed))


def _leakage(store: GraphStore, duplicates: Duplicates) -> tuple[float, ...] | None:
    try:
        folds = stratified_folds(store.y)
    except ArgumentError:  # too few graphs for ten folds, which is a finding of its own
        return None
    return fold_leakage(folds, duplicates.group_ids(undecided=False))


def _leakage_findings(leakage: tuple[float, ...] | None) -> Iterator[Finding]:
    if leakage is None or not any(leakage):
        return
    mean = float(np.mean(leakage))
    sentence = (
        f"In ten folds, {mean:.1%} of the test graphs have a duplicate in the training set ({min(leakage):.1%} to "
        f"{max(leakage):.1%} per fold): stratified_folds(y, groups=…) keeps duplicates together."
    )
    count = sum(fraction > 0 for fraction in leakage)
    yield Finding("leakage", "warning" if mean >= _WARNING_FRACTION else "note", sentence, count)


# ---------------------------------------------------------------------- words and numbers
def _warnings_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: finding.severity != "warning"))


def _severity(number: int, total: int) -> Severity:
    return "warning" if number >= _WARNING_FRACTION * total else "note"


def _shorten(names: list[str], most: int = 5) -> str:
    """The first names, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _equal_columns(store: GraphStore, columns: Sequence[str]) -> str:
    """As in "structure, node labels and edge labels": the structure and those of the columns that the store has."""
    words = ["structure", *(name.replace("_", " ") for name in columns if getattr(store, name) is not None)]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _indices(mask: Tensor) -> list[int]:
    indices: list[int] = mask.nonzero().reshape(-1).tolist()
    return indices


def _same_groups(first: Sequence[NDArray], second: Sequence[NDArray]) -> bool:
    return [group.tolist() for group in first] == [group.tolist() for group in second]


def _first_graphs(groups: Sequence[NDArray]) -> tuple[int, ...]:
    return tuple(int(graph) for graph in np.sort(np.concatenate(groups))[:_MAX_LISTED])
