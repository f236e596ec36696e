"""The check of new graphs against a fitted recipe, made once between conversion and encoding.

A recipe encodes a graph if it has as many label and attribute columns as the training graphs, its attributes are
finite, and its labels have an input column. Labels without one are an error, or are encoded as zeros on request.

Attributes are matched by name where the training graphs and the new ones have names (networkx graphs, files of
networks, tables of nodes): other names are an error, and attributes in another order are put in that of the training
graphs. Without names (TU files, arrays, torch-geometric) they are matched by position. Names of label columns are not
compared: readers look for the attribute that held the labels of the training graphs
(:func:`graphcaps.data.coercion.reader_defaults`).

Molecules with the featurizer of the training graphs are always encoded: a value that no training molecule has becomes
the value "other" of its column, and is reported. It is encoded as zeros if no training molecule has "other" either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from graphcaps.chemistry.featurizers import find_featurizer
from graphcaps.data.datasets.element_labels import atom_names, describe_labels
from graphcaps.data.features.label_columns import (
    LabelBlocks,
    edge_label_columns,
    find_values,
    label_indices,
    node_label_columns,
)
from graphcaps.data.features.truncate import TruncationWarning
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, warn_user
from graphcaps.types import EdgeLabelUse

__all__ = [
    "CheckedGraphs",
    "InputColumns",
    "UnseenPolicy",
    "UnseenValueWarning",
    "check_further",
    "check_graphs",
    "describe_others",
    "non_finite_attributes",
    "replace_unseen",
]

UnseenPolicy = Literal["refuse", "ignore"]
"""Handling of labels without an input column: an error, or zeros with a warning."""

_UNSEEN = "not seen in training"
_MAX_NAMES = 10  # attributes in a sentence
_MAX_FLOAT32 = 1e15  # largest attribute in float32; the square of 1.8e19 is the largest number of that type


class UnseenValueWarning(UserWarning):
    """Molecules have values that no training molecule has; they are read as "other"."""


class InputColumns(Protocol):
    """The columns that a fitted :class:`graphcaps.data.FeatureRecipe` reads."""

    @property
    def attributes(self) -> bool: ...
    @property
    def labels(self) -> bool: ...
    @property
    def edge_labels(self) -> EdgeLabelUse | None: ...
    @property
    def num_attributes(self) -> int | None: ...
    @property
    def label_values(self) -> LabelBlocks | None: ...
    @property
    def edge_label_values(self) -> LabelBlocks | None: ...
    @property
    def fragments(self) -> Literal["all", "largest"] | None: ...
    @property
    def featurizer(self) -> str | None: ...
    @property
    def attribute_std(self) -> tuple[float, ...] | None: ...
    @property
    def source_columns(self) -> Mapping[str, tuple[str, ...]]: ...


@dataclass(frozen=True, eq=False)
class CheckedGraphs:
    """Graphs that were checked against a recipe.

    Args:
        store (GraphStore): The graphs, with the columns of the training graphs in their order. Values of a featurizer
            that no training molecule has are replaced by "other".
        errors (dict): Graphs that cannot be encoded, by index from 0, with the reason in words.
        unseen (dict): Graphs whose labels without an input column are encoded as zeros, likewise.
        others (dict): Molecules with values that no training molecule has, likewise.
        truncated (dict): Graphs with more nodes than the model reads, likewise.
        owner, argument (str): Owner and argument that messages name.
    """

    store: GraphStore
    errors: dict[int, str]
    unseen: dict[int, str]
    owner: str = "FittedModel"
    argument: str = "graphs"
    others: dict[int, str] = field(default_factory=dict)
    truncated: dict[int, str] = field(default_factory=dict)

    def require(self) -> GraphStore:
        """The graphs, all of which must be encodable; warns about labels that are encoded as zeros or as "other", and
        about graphs that are truncated.

        Raises:
            ArgumentError: If a graph cannot be encoded.
        """
        if self.errors:
            graph, reason = next(iter(self.errors.items()))
            more = f" ({len(self.errors)} such graphs)" if len(self.errors) > 1 else ""
            raise ArgumentError(
                self.owner,
                self.argument,
                "hold graphs that the model can read",
                f"graph {graph} of {self.store.name}: {reason}{more}",
                self._fix(reason),
            )
        if self.unseen:
            graph, reason = next(iter(self.unseen.items()))
            count = f"{len(self.unseen)} of {len(self.store)} graphs"
            warn_user(
                f"{self.owner}: unseen labels are encoded as zeros in {count}. Graph {graph}: {reason}."
            )
        if self.others:
            sentence = describe_others(self.others, len(self.store))
            warn_user(f"{self.owner}: {sentence}", UnseenValueWarning)
        if self.truncated:
            graph, reason = next(iter(self.truncated.items()))
            verb = "is" if len(self.truncated) == 1 else "are"
            count = f"{len(self.truncated):,} of {len(self.store):,} graphs {verb} truncated"
            warn_user(f"{self.owner}: {count}. Graph {graph}: {reason}.", TruncationWarning)
        return self.store

    @staticmethod
    def _fix(reason: str) -> str:
        """What to do about a graph that cannot be encoded."""
        if _UNSEEN in reason:
            return "Pass unseen='ignore' to encode unseen labels as zeros."
        if "SMILES" in reason:
            return "Leave such molecules out; FittedModel.check(graphs).errors lists them."
        return ""

    def part(self, start: int, end: int) -> CheckedGraphs:
        """The graphs from ``start`` to ``end`` − 1, with what was found in them."""
        if (start, end) == (0, len(self.store)):
            return self

        def own(found: dict[int, str]) -> dict[int, str]:
            return {graph - start: text for graph, text in found.items() if start <= graph < end}

        return replace(
            self,
            store=self.store[start:end],
            errors=own(self.errors),
            unseen=own(self.unseen),
            others=own(self.others),
            truncated=own(self.truncated),
        )

    def select(self, indices: Tensor) -> CheckedGraphs:
        """Some of the graphs, all of which can be encoded; :meth:`require` then neither raises nor warns."""
        store = self.store if indices.numel() == len(self.store) else self.store[indices]
        return replace(self.without_warnings(), store=store, errors={})

    def without_warnings(self) -> CheckedGraphs:
        """For graphs that the user has been warned about: :meth:`require` then raises errors alone."""
        return replace(self, unseen={}, others={}, truncated={})


def describe_others(others: Mapping[int, str], graphs: int, name: str | None = None) -> str:
    """A sentence on molecules with values that no training molecule has.

    Args:
        others (mapping): The values of each such molecule in words, as in :class:`CheckedGraphs`; not empty.
        graphs (int): Number of all molecules.
        name (str, optional): Name of the first of them. (default: its index)
    """
    first, verb = min(others), "has" if len(others) == 1 else "have"
    return (
        f"{len(others):,} of {graphs:,} molecules {verb} values that no training molecule has, read as 'other'. "
        f"Molecule {first if name is None else name}: {others[first]}."
    )


def check_graphs(
    store: GraphStore,
    recipe: InputColumns,
    *,
    unseen: UnseenPolicy = "refuse",
    dtype: torch.dtype = torch.float32,
    owner: str = "FittedModel",
    argument: str = "graphs",
) -> CheckedGraphs:
    """Checks which graphs a fitted recipe can encode.

    Args:
        store (GraphStore): Graphs.
        recipe (FeatureRecipe): A fitted recipe.
        unseen (str): For labels without an input column: ``"refuse"`` makes them an error of their graph,
            ``"ignore"`` encodes them as zeros. Molecules with the featurizer of the recipe have no such labels.
            (default: ``"refuse"``)
        dtype (torch.dtype): Type in which attributes must be finite. (default: ``torch.float32``)
        owner, argument (str): Owner and argument that messages name.

    Raises:
        ArgumentError: If the graphs have other columns or another featurizer than the training graphs, or ``unseen``
            is invalid.
    """
    if unseen not in ("refuse", "ignore"):
        raise ArgumentError(owner, "unseen", "be 'refuse' or 'ignore'", repr(unseen))
    _check_featurizer(store, recipe, owner, argument)
    store = _match_attributes(store, recipe, owner, argument)
    _check_columns(store, recipe, owner, argument)
    errors: dict[int, list[str]] = {}
    zeroed: dict[int, list[str]] = {}
    if recipe.attributes:
        for graph, reason in non_finite_attributes(store, dtype, recipe.attribute_std):
            errors.setdefault(graph, []).append(reason)
    if store.featurizer is not None:
        store, others = replace_unseen(store, recipe)
        return CheckedGraphs(store, _sentences(errors), {}, owner, argument, _sentences(others))
    labels = errors if unseen == "refuse" else zeroed
    for reasons in (_unseen_node_labels(store, recipe), _unseen_edge_labels(store, recipe)):
        for graph, reason in reasons:
            labels.setdefault(graph, []).append(reason)
    return CheckedGraphs(store, _sentences(errors), _sentences(zeroed), owner, argument)


def check_further(checked: CheckedGraphs, recipe: InputColumns, *, dtype: torch.dtype) -> CheckedGraphs:
    """Checks graphs against a second recipe, of a model that predicts beside the first one.

    Labels that it does not know are no error: the first recipe decides about those.

    Args:
        checked (CheckedGraphs): The result of :func:`check_graphs`.
        recipe (FeatureRecipe): The second fitted recipe.
        dtype (torch.dtype): Type in which attributes must be finite.

    Raises:
        ArgumentError: If the graphs have other columns than the recipe reads.
    """
    owner, argument = checked.owner, checked.argument
    also = check_graphs(checked.store, recipe, unseen="ignore", dtype=dtype, owner=owner, argument=argument)
    return replace(checked, store=also.store, errors=dict(sorted((also.errors | checked.errors).items())))


def _check_featurizer(store: GraphStore, recipe: InputColumns, owner: str, argument: str) -> None:
    """Checks that the label columns of molecules mean the same as those of the training graphs."""
    reads_labels = bool(recipe.label_values or recipe.edge_label_values)
    if store.featurizer is None or store.featurizer == recipe.featurizer or not reads_labels:
        return
    if recipe.featurizer is None:
        expected = (
            "have the labels of the graphs that the model was trained on, which were not read from SMILES"
        )
        raise ArgumentError(owner, argument, expected, f"molecules from SMILES in {store.name}")
    expected = f"be molecules read with featurizer='{recipe.featurizer}', as in training"
    raise ArgumentError(owner, argument, expected, f"featurizer='{store.featurizer}' in {store.name}")


def _match_attributes(store: GraphStore, recipe: InputColumns, owner: str, argument: str) -> GraphStore:
    """The graphs with their attributes in the order of the training graphs, by name where both have names."""
    names, trained = store.column_names("node_attributes"), recipe.source_columns.get("node_attributes")
    if not recipe.attributes or store.node_attributes is None or not names or not trained or names == trained:
        return store
    if set(names) != set(trained):
        missing, other = (
            [name for name in one if name not in another]
            for one, another in ((trained, names), (names, trained))
        )
        problems = [f"no {_quoted(missing)}"] if missing else []
        problems += [f"{_quoted(other)}, which the model does not know"] if other else []
        raise ArgumentError(
            owner,
            argument,
            f"have the node attributes {_quoted(trained)}, as the graphs that the model was trained on",
            f"{' and '.join(problems)} in {store.name}",
        )
    order = torch.tensor([names.index(name) for name in trained], device=store.device)
    return replace(
        store,
        node_attributes=store.node_attributes[:, order],
        source_columns=store.source_columns | {"node_attributes": trained},
    )


def _quoted(names: Sequence[str]) -> str:
    """Up to ten names in quotes."""
    listed = ", ".join(f"'{name}'" for name in names[:_MAX_NAMES])
    return f"{listed}, …" if len(names) > _MAX_NAMES else listed


def _check_columns(store: GraphStore, recipe: InputColumns, owner: str, argument: str) -> None:
    """Checks that the graphs have as many label and attribute columns as the training graphs."""
    # Graphs without nodes have no labels and attributes, and graphs without edges no edge labels.
    has_nodes, has_edges = bool(store.num_nodes), bool(store.neighbours.numel())
    counts = {
        "node label": (recipe.labels and has_nodes, len(recipe.label_values or ()), store.node_labels),
        "node attribute": (
            recipe.attributes and has_nodes,
            recipe.num_attributes or 0,
            store.node_attributes,
        ),
        "edge label": (
            recipe.edge_labels is not None and has_edges,
            len(recipe.edge_label_values or ()),
            store.edge_labels,
        ),
    }
    for kind, (used, expected, table) in counts.items():
        got = 0 if table is None else table.size(1)
        if used and expected != got:
            raise ArgumentError(
                owner,
                argument,
                f"have {_columns_in_words(expected, kind)}, as the graphs that the model was trained on",
                f"{_columns_in_words(got, kind)} in {store.name}",
            )


def _columns_in_words(count: int, kind: str) -> str:
    return f"{count or 'no'} {kind} column{'' if count == 1 else 's'}"


def non_finite_attributes(
    store: GraphStore, dtype: torch.dtype, deviation: tuple[float, ...] | None = None
) -> Iterator[tuple[int, str]]:
    """Yields each graph with an attribute that a model cannot compute with, and its first such attribute in words.

    That is an attribute that is not finite in ``dtype``, or above 1e15 in float32, where squares of sums over columns
    and nodes, which models compute, could exceed the range.

    Args:
        store (GraphStore): Graphs.
        dtype (torch.dtype): Type of the input columns.
        deviation (tuple, optional): Standard deviation of each attribute in the training graphs, in units of which the
            model reads it; 0 for one that it does not read. (default: 1 for all)
    """
    if store.node_attributes is None:
        return
    values = store.node_attributes.cpu()
    scale = torch.tensor(deviation or (1.0,), dtype=torch.float64)
    limit = (_MAX_FLOAT32 if dtype == torch.float32 else torch.inf) * torch.where(scale > 0, scale, torch.inf)
    wrong = ~torch.isfinite(values) | (values.double().abs() > limit)
    if not bool(wrong.any()):
        return
    rows, columns = wrong.numpy().nonzero()
    graph_of = store.node_graph.cpu().numpy()
    for index in np.unique(graph_of[rows], return_index=True)[1]:
        row, column = int(rows[index]), int(columns[index])
        graph = int(graph_of[row])
        value = float(values[row, column])
        problem = "too large to compute with" if np.isfinite(value) else "which is not a finite number"
        node = row - int(store.host_node_ptr[graph])
        names = store.column_names("node_attributes")
        name = column if names is None else f"'{names[column]}'"
        yield graph, f"attribute {name} of node {node} is {value}, {problem}"


def _unseen_node_labels(store: GraphStore, recipe: InputColumns) -> Iterator[tuple[int, str]]:
    """Node labels without an input column, for each graph and label column."""
    blocks = recipe.label_values or ()
    columns = node_label_columns(store) if recipe.labels else []
    # Graphs without nodes have no label columns: zip stops early.
    for column, (values, labels) in enumerate(zip(blocks, columns, strict=False)):
        rows = np.flatnonzero(~find_values(values, labels)[1])
        where = f" in label column {column}" if len(blocks) > 1 else ""
        for graph, members in _by_graph(rows, store.host_node_ptr.numpy()):
            words = describe_labels(store, column, np.unique(labels[members]))
            yield graph, f"{words}{where}, on {_count(len(members), 'node')}, {_UNSEEN}"


def _unseen_edge_labels(store: GraphStore, recipe: InputColumns) -> Iterator[tuple[int, str]]:
    """Edge labels without an input column, for each graph and label column."""
    blocks = recipe.edge_label_values or ()
    # Graphs without edges have no label columns: zip stops early.
    for column, (values, labels) in enumerate(zip(blocks, edge_label_columns(store), strict=False)):
        rows = np.flatnonzero(~find_values(values, labels)[1])
        for graph, members in _by_graph(rows, store.host_entry_ptr.numpy()):
            words = describe_labels(store, column, np.unique(labels[members]), kind="edge")
            count = _count(len(members) // 2, "edge")  # an edge has two entries
            yield graph, f"{words}, on {count}, {_UNSEEN}"


# ---------------------------------------------------------------------- molecules
def replace_unseen(store: GraphStore, recipe: InputColumns) -> tuple[GraphStore, dict[int, list[str]]]:
    """Molecules with "other" for values that no training molecule has, and these values of each molecule in words.

    Args:
        store (GraphStore): Graphs; those that are not molecules with a featurizer are returned as they are.
        recipe (FeatureRecipe): A fitted recipe.
    """
    others: dict[int, list[str]] = {}
    node_labels = _replace_in_columns(store, "node", recipe.label_values, others)
    edge_labels = _replace_in_columns(store, "edge", recipe.edge_label_values, others)
    if not others:
        return store, others
    return replace(store, node_labels=node_labels, edge_labels=edge_labels), others


def _replace_in_columns(
    store: GraphStore, kind: str, blocks: LabelBlocks | None, others: dict[int, list[str]]
) -> Tensor | None:
    """The labels of nodes or edges with "other" for values outside ``blocks``, which are entered into ``others``."""
    table = store.node_labels if kind == "node" else store.edge_labels
    first_rows = store.host_node_ptr if kind == "node" else store.host_entry_ptr
    if table is None or store.featurizer is None:
        return table
    features = find_featurizer(store.featurizer).columns(kind)
    unknown = label_indices(blocks or (), table) < 0
    if not unknown.any():
        return table
    for column in np.flatnonzero(unknown.any(0)).tolist():
        labels, rows = table[:, column].cpu().long().numpy(), np.flatnonzero(unknown[:, column])
        for graph, members in _by_graph(rows, first_rows.numpy()):
            others.setdefault(graph, []).append(_unseen_values(store, kind, column, labels, members))
        other = features[column].other
        if other is not None:
            table = table.clone()  # of the caller's store
            table[torch.from_numpy(rows).to(table.device), column] = other
    return table


def _unseen_values(store: GraphStore, kind: str, column: int, labels: np.ndarray, rows: np.ndarray) -> str:
    """The values of some atoms or bond entries of a molecule in words, such as "element Si on 1 atom"."""
    words = describe_labels(store, column, np.unique(labels[rows]), kind=kind)
    if kind == "edge":
        return f"{words} on {_count(len(rows) // 2, 'bond')}"  # a bond has two entries
    elements = store.truth.get("element")
    if not column and elements is not None:  # by name, where the vocabulary has only "other"
        words = f"element {', '.join(atom_names(np.unique(elements.cpu().numpy()[rows])))}"
    return f"{words} on {_count(len(rows), 'atom')}"


def _by_graph(rows: np.ndarray, first_rows: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Ascending rows of each graph, whose first rows are ``first_rows``."""
    if not len(rows):
        return []
    graph_of_rows = np.searchsorted(first_rows, rows, side="right") - 1
    graphs, starts = np.unique(graph_of_rows, return_index=True)
    return [(int(graph), members) for graph, members in zip(graphs, np.split(rows, starts[1:]), strict=True)]


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _sentences(reasons: dict[int, list[str]]) -> dict[int, str]:
    return {graph: "; ".join(reasons[graph]) for graph in sorted(reasons)}
