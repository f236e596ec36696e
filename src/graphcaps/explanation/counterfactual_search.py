"""Counterfactuals: the smallest groups of a graph whose removal or replacement changes the predicted class.

Candidates are the groups of the explanation (:mod:`graphcaps.explanation.node_groups`) at all levels; if none of them
changes the class, pairs of groups of the lowest level; if none of these does, single nodes and pairs of neighbours,
which are parts of groups. The model classifies every edited graph. Of molecules, only edits count that give one valid
molecule: RDKit sanitises it, and it has no more fragments than before. Edits that give a graph with labels that no
training graph has do not count, unless the graph itself has such labels.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Sequence
from itertools import combinations, islice
from typing import Any, get_args

import numpy as np
import torch

from graphcaps.chemistry.rdkit_pool import call_rdkit
from graphcaps.data.concatenation import concat_stores
from graphcaps.data.datasets.element_labels import EDGE_LABEL_BONDS, NODE_LABEL_ELEMENTS
from graphcaps.data.features.compatibility import CheckedGraphs
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.explanation.counterfactual import Counterfactual, Counterfactuals
from graphcaps.explanation.explainer import class_probabilities, explain_store
from graphcaps.explanation.explanation import StoreExplanation
from graphcaps.explanation.graph_edits import Edit, EditKind, edit_graph
from graphcaps.explanation.model_inputs import encode_for_model
from graphcaps.explanation.molecule_drawings import describe_molecules
from graphcaps.explanation.node_groups import find_groups
from graphcaps.inference.fitted_model import FittedModel

__all__ = ["counterfactuals", "find_counterfactuals"]

MAX_RESULTS = 3
"""Number of counterfactuals of a graph."""
_NUM_ROUNDS = 3  # groups, pairs of groups, nodes and pairs of neighbours
_MAX_EDITS = 128  # of one graph in a round
_MAX_PAIRED = 24  # groups of which pairs are tried, the smallest
_MAX_NODES = 200_000  # of all edited copies of one graph in a round
_CHUNK_NODES = 100_000  # of the edited graphs that are classified together
_PURPOSE = "Editing molecules"

Groups = dict[tuple[int, ...], tuple[tuple[int, int], ...]]
"""Level and capsule of the groups that make up a set of nodes, by the set; levels count from 1."""


def counterfactuals(model: FittedModel, graph: Any) -> Counterfactuals:
    """The smallest groups of one graph whose removal or replacement changes its class, checked by the model.

    A replacement puts one node in the place of the group: a carbon in molecules, else a node with the most frequent
    labels of the graph. It counts only if the removal of the same group does not change the class.

    Args:
        model (FittedModel): A fitted HGCN or a committee of them.
        graph: One graph, as in :func:`graphcaps.explain`.

    Raises:
        ArgumentError: If the model has no capsules, or ``graph`` is not one graph that the model can read.

    Example:
        >>> for change in counterfactuals(model, "CCOCC(F)F"):           # doctest: +SKIP
        ...     print(change.kind, change.nodes, change.class_name, change.smiles)
    """
    if not isinstance(model, FittedModel):
        fix = "Pass a model from graphcaps.load or HGCNClassifier."
        raise ArgumentError("counterfactuals", "model", "be a fitted model", type(model).__name__, fix)
    checked = model.check(graph, owner="counterfactuals")
    if len(checked.store) != 1:
        raise ArgumentError("counterfactuals", "graph", "be one graph", f"{len(checked.store)} graphs")
    checked.require()
    (result,) = find_counterfactuals(model, checked, explain_store(model, checked.without_warnings()))
    return result


def find_counterfactuals(
    model: FittedModel,
    graphs: CheckedGraphs,
    explanations: StoreExplanation,
    *,
    indices: Sequence[int] | None = None,
) -> list[Counterfactuals]:
    """As :func:`counterfactuals`, of many graphs; their edited copies are classified together.

    Args:
        model (FittedModel): The model.
        graphs (CheckedGraphs): Graphs that ``FittedModel.check`` returned.
        explanations (StoreExplanation): Explanations of all of them.
        indices (sequence, optional): Graphs to edit. (default: all)

    Returns:
        list: One entry per index.
    """
    store = graphs.store.to("cpu")
    if len(store) != len(explanations):
        raise ShapeError("find_counterfactuals", "explanations", f"be {len(store)}", len(explanations))
    listed = list(range(len(store)) if indices is None else indices)
    levels = [find_groups(explanations, level) for level in range(len(explanations.assignments) - 1)]
    bounds = [np.searchsorted(groups.graph, np.arange(len(store) + 1)) for groups in levels]
    searches: dict[int, _Search] = {}
    for graph in listed:
        first = int(explanations.node_ptr[graph])
        single: Groups = {}
        for number, (groups, ends) in enumerate(zip(levels, bounds, strict=True), start=1):
            for row in range(ends[graph], ends[graph + 1]):
                nodes = tuple((groups.nodes[groups.ptr[row] : groups.ptr[row + 1]] - first).tolist())
                single.setdefault(nodes, ((number, int(groups.capsule[row])),))
        size = int(explanations.node_ptr[graph + 1]) - first
        original = int(explanations.predicted[graph])
        truncated = size < int(store.sizes[graph])
        unseen = graph in graphs.others or graph in graphs.unseen
        searches[graph] = _Search(model, store, graph, original, size, truncated, unseen, single)
    _run_rounds(model, list(searches.values()))
    return [searches[graph].result() for graph in listed]


class _Search:
    """Edits of one graph and what the model predicts for them."""

    def __init__(
        self,
        model: FittedModel,
        store: GraphStore,
        graph: int,
        original: int,
        size: int,
        truncated: bool,
        unseen: bool,
        single: Groups,
    ) -> None:
        self.unseen = unseen
        self.model, self.own, self.original, self.size = model, store[graph], original, size
        self.smiles = None if store.smiles is None else store.smiles[graph]
        self.has_rdkit = importlib.util.find_spec("rdkit") is not None
        self.note = ""
        if truncated:
            self.note = "No counterfactuals: the model reads only some of the nodes of this graph."
        elif self.smiles is not None and not self.has_rdkit:
            self.note = "No counterfactuals: RDKit, which checks molecules, is not installed."
        elif size < 2:
            self.note = "No counterfactuals: the graph has less than two nodes."
        self.rounds: list[Groups] = [single]
        self.found: dict[tuple[int, ...], Counterfactual] = {}
        self.edits, self.invalid = 0, 0

    def listed(self, number: int) -> list[Edit]:
        """The edits of a round, smallest first; none if the search is over."""
        if self.note or self.found:
            return []
        if number:
            self.rounds.append(self._pairs() if number == 1 else self._small_sets())
        sets = sorted((nodes for nodes in self.rounds[number] if len(nodes) < self.size), key=_by_size)
        edits = [Edit(kind, nodes) for nodes in sets for kind in get_args(EditKind)]
        if self.own.node_labels is None and self.own.node_attributes is None:
            # One node in the place of one node is the same graph.
            edits = [edit for edit in edits if edit.kind == "removal" or len(edit.nodes) > 1]
        return edits[: min(_MAX_EDITS, max(1, _MAX_NODES // self.size))]

    def _pairs(self) -> Groups:
        """Two groups of the lowest level together, unless they are a group of a higher level, which was tried."""
        single = self.rounds[0]
        lowest = sorted((nodes for nodes, ((level, _), *_) in single.items() if level == 1), key=_by_size)
        pairs = {
            tuple(sorted(one + two)): (*single[one], *single[two])
            for one, two in combinations(lowest[:_MAX_PAIRED], 2)
        }
        return {nodes: groups for nodes, groups in pairs.items() if nodes not in single}

    def _small_sets(self) -> Groups:
        """Nodes and pairs of neighbours that are no whole groups, with the groups of the lowest level they are in."""
        lowest = {nodes: group for nodes, (group, *_) in self.rounds[0].items() if group[0] == 1}
        group_of = {node: group for nodes, group in lowest.items() for node in nodes}
        source = np.repeat(np.arange(self.size), np.diff(self.own.edge_ptr.numpy()))
        neighbours = zip(source.tolist(), self.own.neighbours.tolist(), strict=True)
        sets = [*((node,) for node in range(self.size)), *((a, b) for a, b in neighbours if a < b)]
        tried = {*self.rounds[0], *self.rounds[1]}
        return {
            nodes: tuple(dict.fromkeys(group_of[node] for node in nodes))
            for nodes in sets
            if nodes not in tried
        }

    @property
    def dataset(self) -> str | None:
        """The data set whose labels are elements and bonds, if the graph is a molecule without SMILES."""
        name = self.own.name
        known = name in NODE_LABEL_ELEMENTS and name in EDGE_LABEL_BONDS
        has_labels = self.own.node_labels is not None and self.own.node_labels.size(1) == 1
        return name if known and has_labels and self.own.edge_labels is not None and self.has_rdkit else None

    def edited(self, edits: Sequence[Edit]) -> GraphStore:
        """Copies of a graph that is not read from SMILES."""
        if self.dataset is None:
            return edit_graph(self.own, edits)
        return edit_graph(
            self.own,
            edits,
            node_label=NODE_LABEL_ELEMENTS[self.dataset].index("C"),
            edge_label=EDGE_LABEL_BONDS[self.dataset].index("single"),
        )

    @property
    def replaced_by(self) -> str:
        return "one carbon" if self.smiles is not None or self.dataset is not None else "one node"

    def record(self, edit: Edit, number: int, probabilities: np.ndarray, smiles: str | None) -> None:
        """Keeps an edit if it changes the class; of a set of nodes the removal, if that does."""
        self.edits += 1
        predicted = int(probabilities.argmax())
        if predicted == self.original:
            return
        if edit.nodes in self.found and edit.kind == "replacement":
            return
        self.found[edit.nodes] = Counterfactual(
            kind=edit.kind,
            nodes=edit.nodes,
            groups=self.rounds[number][edit.nodes],
            whole=number < 2,
            replaced_by="" if edit.kind == "removal" else self.replaced_by,
            predicted=predicted,
            class_name=self.model.class_names[predicted],
            probability=float(probabilities[predicted]),
            smiles=smiles,
        )

    def result(self) -> Counterfactuals:
        smallest = sorted(self.found.values(), key=lambda one: (len(one.nodes), -one.probability, one.nodes))
        # Different edits may give one molecule.
        distinct = {one.smiles or one.nodes: one for one in reversed(smallest)}
        kept = [one for one in smallest if distinct[one.smiles or one.nodes] is one]
        return Counterfactuals(tuple(kept[:MAX_RESULTS]), self.edits, self.invalid, self.note)


def _by_size(nodes: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return len(nodes), nodes


def _run_rounds(model: FittedModel, searches: Sequence[_Search]) -> None:
    """Single groups of all graphs first, then larger and smaller sets where none of them changes the class."""
    for number in range(_NUM_ROUNDS):
        chunk: list[tuple[_Search, list[Edit]]] = []
        nodes = 0
        for search in searches:
            edits = search.listed(number)
            if not edits:
                continue
            chunk.append((search, edits))
            nodes += search.size * len(edits)
            if nodes > _CHUNK_NODES:
                _classify(model, chunk, number)
                chunk, nodes = [], 0
        if chunk:
            _classify(model, chunk, number)


def _classify(model: FittedModel, chunk: Sequence[tuple[_Search, list[Edit]]], number: int) -> None:
    """Edits the graphs of a chunk, classifies the copies, and records what changes the class."""
    molecules = [entry for entry in chunk if entry[0].smiles is not None]
    requests = [
        json.dumps(
            {"smiles": search.smiles, "edits": [[edit.nodes, edit.kind == "replacement"] for edit in edits]}
        )
        for search, edits in molecules
    ]
    answers = call_rdkit("edit-smiles", requests, purpose=_PURPOSE) if requests else []
    listed: list[tuple[_Search, Edit, str | None]] = []
    texts: list[str] = []
    for (search, edits), answer in zip(molecules, answers, strict=True):
        smiles = [""] * len(edits) if answer.problem else answer.texts
        for edit, text in zip(edits, smiles, strict=True):
            if text:
                listed.append((search, edit, text))
                texts.append(text)
            else:
                search.invalid += 1
    if texts:
        _record(model, texts, listed, number)
    others = [(search, edits) for search, edits in chunk if search.smiles is None]
    stores = [search.edited(edits) for search, edits in others]
    valid = _valid_copies([search for search, _ in others], stores)
    plain: list[tuple[_Search, Edit, str | None]] = []
    selected: list[int] = []
    first = 0  # of the copies of a graph, among all
    for (search, edits), copies in zip(others, valid, strict=True):
        search.invalid += len(edits) - len(copies)
        plain += [(search, edits[index], smiles) for index, smiles in copies.items()]
        selected += [first + index for index in copies]
        first += len(edits)
    if selected:
        _record(model, concat_stores(stores)[selected], plain, number)


def _valid_copies(searches: Sequence[_Search], stores: Sequence[GraphStore]) -> list[dict[int, str | None]]:
    """For each graph the copies that count, by their index, with their SMILES if they are molecules of a data set.

    All molecules are checked in one call of RDKit.

    Args:
        searches (sequence): Those of graphs that are not read from SMILES.
        stores (sequence): The edited copies of each.
    """
    items: list[str] = []
    for search, store in zip(searches, stores, strict=True):
        if search.dataset is not None:  # the molecule itself, then its copies
            items += describe_molecules(search.own, search.dataset)
            items += describe_molecules(store, search.dataset)
    answers = iter(call_rdkit("check-valences", items, purpose=_PURPOSE) if items else ())
    valid: list[dict[int, str | None]] = []
    for search, store in zip(searches, stores, strict=True):
        if search.dataset is None:
            valid.append(dict.fromkeys(range(len(store))))
            continue
        before, *copies = islice(answers, 1 + len(store))
        if before.problem:
            search.note = "No counterfactuals: RDKit finds impossible valences in this molecule as it is."
            valid.append({})
            continue
        known = before.texts[0]
        valid.append(
            {
                index: copy.texts[0]
                for index, copy in enumerate(copies)
                if not copy.problem
                and copy.texts[0].count(".") <= known.count(".")
                and copy.texts[0] != known
            }
        )
    return valid


def _record(
    model: FittedModel, graphs: Any, listed: Sequence[tuple[_Search, Edit, str | None]], number: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # values that only an edited graph has; each was said of the graph itself
        checked = model.check(graphs, unseen="ignore", owner="counterfactuals")
        refused = {
            *checked.errors,
            *(i for i in (*checked.others, *checked.unseen) if not listed[i][0].unseen),
        }
        for index in refused:
            listed[index][0].invalid += 1
        readable = [index for index in range(len(listed)) if index not in refused]
        if not readable:
            return
        kept = checked.select(torch.tensor(readable))
        probabilities = class_probabilities(model, encode_for_model(model, kept))
    for index, row in zip(readable, probabilities.numpy(), strict=True):
        search, edit, smiles = listed[index]
        search.record(edit, number, row, smiles)
