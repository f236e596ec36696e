"""Duplicates: isomorphic graphs with equal labels and attributes.

Candidates are WL-indistinguishable graphs (:mod:`graphcaps.data.quality.weisfeiler_lehman`), with labels, attributes
and weights of nodes and edges. Equal canonical forms (:class:`CanonicalForms`) confirm most of them. The others are
compared in pairs by the VF2 algorithm of networkx with a limit on its steps; a pair above the limit is reported as
undecided.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.data.quality.weisfeiler_lehman import (
    count_distinct,
    edge_colours,
    initial_node_colours,
    mix64,
    wl_indistinguishable,
)
from graphcaps.data.splits.folds import Folds
from graphcaps.data.store import GraphStore

__all__ = ["CanonicalForms", "Duplicates", "find_duplicates", "fold_leakage"]

_MAX_STEPS = 50_000  # pairs of nodes that VF2 may try for one pair of graphs
_MAX_NODES = 400  # of a graph that VF2 compares: it recurses once per node
_MAX_WORK = 100_000_000  # edge entries and nodes visited for the canonical form of one graph
_INDIVIDUALISED = np.uint64(0x2545F4914F6CDD1D)  # added to the colour of an individualised node
_RANK = np.uint64(0x9E6C63D0876A9A47)  # multiplies the rank of a node among its equivalent nodes
_Indices = NDArray[np.int64]
_Colours = NDArray[np.uint64]


# ---------------------------------------------------------------------- groups of duplicates
@dataclass(frozen=True, eq=False)
class Duplicates:
    """Groups of duplicates of a store.

    Args:
        num_graphs (int): Number of graphs G of the store.
        groups (tuple): Groups of two or more graphs that are confirmed to be isomorphic.
        undecided (tuple): Groups of two or more WL-indistinguishable graphs whose isomorphism was not decided within
            the limits; a graph of ``groups`` may be among them.
    """

    num_graphs: int
    groups: tuple[_Indices, ...]
    undecided: tuple[_Indices, ...] = ()

    @property
    def num_duplicates(self) -> int:
        """Number of graphs with a confirmed duplicate."""
        return sum(len(group) for group in self.groups)

    def group_ids(self, *, undecided: bool = True) -> _Indices:
        """Group index of each graph, ``[G]``, equal for duplicates; a graph without duplicates has its own.

        Groups are numbered from 0 by their first graph.

        Args:
            undecided (bool): Whether undecided graphs count as duplicates. (default: True)
        """
        first = np.arange(self.num_graphs)
        for group in self.groups:
            first[group] = group[0]
        for group in self.undecided if undecided else ():
            members = np.isin(first, first[group])
            first[members] = first[members].min()
        ids: _Indices = np.unique(first, return_inverse=True)[1].reshape(-1)
        return ids

    def conflicts(self, y: Tensor | NDArray) -> tuple[tuple[_Indices, ...], int]:
        """Confirmed groups with more than one class, and the number of graphs every classifier must get wrong."""
        classes = np.asarray(y)
        mixed = tuple(group for group in self.groups if len(np.unique(classes[group])) > 1)
        errors = sum(len(group) - int(np.bincount(classes[group]).max()) for group in mixed)
        return mixed, errors


def find_duplicates(
    store: GraphStore,
    *,
    edges: bool = True,
    steps: int = _MAX_STEPS,
    max_nodes: int = _MAX_NODES,
    seconds: float | None = None,
) -> Duplicates:
    """Finds isomorphic graphs with exactly equal labels, attributes and weights of nodes and edges.

    Args:
        store (GraphStore): Graphs.
        edges (bool): Whether edge labels, attributes and weights count; the published model does not read them.
            (default: True)
        steps (int): Pairs of nodes that VF2 may try for a pair of graphs. (default: 50,000)
        max_nodes (int): Largest graph, in nodes, that VF2 compares. (default: 400)
        seconds (float, optional): Time limit, after which the remaining candidates are undecided.
            (default: no limit)
    """
    store = store.to("cpu")
    if not edges:
        store = replace(store, edge_labels=None, edge_attributes=None, edge_weight=None)
    deadline = None if seconds is None else time.monotonic() + seconds
    forms = CanonicalForms(store)
    groups: list[_Indices] = []
    undecided: list[_Indices] = []
    for candidates in wl_indistinguishable(store, edges=True):
        if deadline is not None and time.monotonic() > deadline:
            undecided.append(candidates)
            continue
        classes, open_pairs = _isomorphism_classes(store, forms, candidates, steps, max_nodes)
        groups += [np.array(sorted(members)) for members in classes if len(members) > 1]
        if open_pairs:
            undecided.append(np.array(sorted(open_pairs)))
    return Duplicates(len(store), tuple(sorted(groups, key=lambda group: int(group[0]))), tuple(undecided))


def fold_leakage(folds: Folds, group_ids: _Indices) -> tuple[float, ...]:
    """For each fold, the fraction of its test graphs with a graph of the same group in the other folds."""
    fractions = []
    for fold in range(folds.num_folds):
        split = folds.paper(fold)
        train_groups = group_ids[split.train.numpy()]
        fractions.append(float(np.isin(group_ids[split.test.numpy()], train_groups).mean()))
    return tuple(fractions)


# ---------------------------------------------------------------------- isomorphism
def _isomorphism_classes(
    store: GraphStore, forms: CanonicalForms, candidates: _Indices, steps: int, max_nodes: int
) -> tuple[list[list[int]], list[int]]:
    """Partitions candidates into isomorphism classes; also the graphs of pairs that were not decided."""
    by_form: dict[object, list[int]] = {}
    for graph in candidates.tolist():
        form = forms.digest(graph)
        by_form.setdefault(form if form is not None else ("none", graph), []).append(graph)
    classes: list[list[int]] = []
    undecided: set[int] = set()
    for members in by_form.values():
        for other in classes:
            isomorphic = _isomorphic(store, other[0], members[0], steps, max_nodes)
            if isomorphic:
                other += members
                break
            if isomorphic is None:
                undecided |= {other[0], members[0]}
        else:
            classes.append(list(members))
    return classes, sorted(undecided)


def _isomorphic(store: GraphStore, a: int, b: int, steps: int, max_nodes: int) -> bool | None:
    """Whether two graphs are isomorphic by VF2; ``None`` above the limits."""
    if int(store.sizes[a]) > max_nodes:
        return None
    from networkx.algorithms.isomorphism import GraphMatcher

    class LimitedMatcher(GraphMatcher):
        steps_taken = 0

        def syntactic_feasibility(self, one: Any, other: Any) -> bool:
            self.steps_taken += 1
            if self.steps_taken > steps:
                raise _StepLimitError
            return bool(super().syntactic_feasibility(one, other))

    first, second = (_without_truth(to_networkx(store, graph)) for graph in (a, b))
    matcher = LimitedMatcher(first, second, node_match=_equal, edge_match=_equal)
    try:
        return bool(matcher.is_isomorphic())
    except _StepLimitError:
        return None


class _StepLimitError(Exception):
    """VF2 has used up its steps."""


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one == other


def _without_truth(graph: Any) -> Any:
    """A networkx graph without the ground truth of its nodes."""
    for _, entry in graph.nodes(data=True):
        for key in [key for key in entry if key.startswith("truth_")]:
            del entry[key]
    return graph


# ---------------------------------------------------------------------- canonical forms
class CanonicalForms:
    """Canonical forms of the graphs of a store: equal forms prove that two graphs are isomorphic.

    Nodes are ordered by refined colours, made distinct by individualisation: structurally equivalent nodes (same
    colour, same neighbours) are ranked in any order, then one node of the smallest colour class at a time gets its own
    colour. The search does not backtrack, so isomorphic graphs may have different forms.

    Args:
        store (GraphStore): The graphs.
        work (int): Edge entries and nodes that may be visited for one graph.
    """

    def __init__(self, store: GraphStore, work: int = _MAX_WORK) -> None:
        self.store = store.to("cpu")
        self.work = work
        self._nodes, self._edges = initial_node_colours(self.store), edge_colours(self.store)
        self._tables = [
            table.reshape(table.size(0), -1).double().numpy() + 0.0
            if table.is_floating_point()
            else table.reshape(table.size(0), -1).long().numpy()
            for table in (self.store.node_labels, self.store.node_attributes)
            if table is not None
        ]
        self._ptr, self._edge_ptr = self.store.node_ptr.numpy(), self.store.edge_ptr.numpy()
        self._neighbours = self.store.neighbours.numpy()

    def digest(self, graph: int) -> bytes | None:
        """SHA-256 of the canonical form of a graph; ``None`` above the work limit."""
        begin, end = int(self._ptr[graph]), int(self._ptr[graph + 1])
        entries = slice(int(self._edge_ptr[begin]), int(self._edge_ptr[end]))
        refinement = _Refinement(
            self._edge_ptr[begin : end + 1] - self._edge_ptr[begin],
            self._neighbours[entries],
            None if self._edges is None else self._edges[entries],
        )
        colours = refinement.distinct_colours(self._nodes[begin:end], self.work)
        if colours is None:
            return None
        order = np.argsort(colours)
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        pairs = position[refinement.source] * len(order) + position[refinement.neighbours]
        rows = np.argsort(pairs)
        digest = hashlib.sha256(np.int64(len(order)).tobytes() + pairs[rows].tobytes())
        if refinement.edge_colours is not None:
            digest.update(refinement.edge_colours[rows].tobytes())
        for table in self._tables:
            digest.update(np.ascontiguousarray(table[begin:end][order]).tobytes())
        return digest.digest()


class _Refinement:
    """Colour refinement with individualisation of one graph.

    Args:
        ptr (ndarray): Index of the first edge entry of each node, then the number of entries, ``[n + 1]``.
        neighbours (ndarray): Neighbours of all nodes.
        edge_colours (ndarray, optional): Colour of each edge entry.
    """

    def __init__(
        self, ptr: NDArray[np.int64], neighbours: NDArray[np.int32], edge_colours: _Colours | None
    ) -> None:
        self.ptr, self.neighbours, self.edge_colours = ptr, neighbours, edge_colours
        self.source = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))

    def distinct_colours(self, start: _Colours, work: int) -> _Colours | None:
        """A different colour for every node, ``[n]``; ``None`` above the work limit."""
        n, remaining = len(start), work
        colours, distinct, spent = self._refine(start)
        remaining -= spent
        if distinct < n:
            colours, distinct, spent = self._refine(self._rank_equivalent_nodes(colours))
            remaining -= spent
        while distinct < n:
            if remaining <= 0:
                return None
            values, first, counts = np.unique(colours, return_index=True, return_counts=True)
            shared = np.flatnonzero(counts > 1)
            smallest = shared[np.argmin(counts[shared])]  # ties go to the smallest colour
            colours = colours.copy()
            colours[first[smallest]] = mix64(values[smallest : smallest + 1] + _INDIVIDUALISED)[0]
            colours, distinct, spent = self._refine(colours)
            remaining -= spent
        return colours

    def _refine(self, colours: _Colours) -> tuple[_Colours, int, int]:
        """Colours that another round would not split, the number of distinct ones, and the work it took."""
        distinct, rounds = count_distinct(colours), 0
        while distinct < len(colours):
            colours = mix64(colours + mix64(self._neighbour_sums(mix64(colours))))
            rounds += 1
            before, distinct = distinct, count_distinct(colours)
            if distinct == before:
                break
        return colours, distinct, (rounds + 1) * (len(self.neighbours) + len(colours))

    def _rank_equivalent_nodes(self, colours: _Colours) -> _Colours:
        """Gives different colours to nodes of one colour with the same neighbours, apart from each other."""
        node_hash = mix64(np.arange(len(colours), dtype=np.uint64))
        open_neighbourhood = self._neighbour_sums(node_hash)
        keys = [open_neighbourhood]
        if self.edge_colours is None:  # closed neighbourhoods: equivalent nodes that are adjacent
            keys.append(open_neighbourhood + node_hash)
        for key in keys:
            order = np.lexsort((key, colours))
            new = np.ones(len(order), bool)
            new[1:] = (np.diff(colours[order]) != 0) | (np.diff(key[order]) != 0)
            starts = np.flatnonzero(new)
            rank = np.empty(len(order), np.uint64)
            rank[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
            colours = mix64(colours + rank * _RANK)
        return colours

    def _neighbour_sums(self, values: _Colours) -> _Colours:
        """Sum over the neighbours of each node, modulo 2⁶⁴, with the colour of the edge mixed into each term."""
        terms = values[self.neighbours]
        if self.edge_colours is not None:
            terms = mix64(terms + self.edge_colours)
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        sums: _Colours = running[self.ptr[1:]] - running[self.ptr[:-1]]
        return sums
