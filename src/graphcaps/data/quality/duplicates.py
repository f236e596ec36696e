"""Graphs that are the same up to the order of their nodes: found by colour refinement, then confirmed.

Candidates are graphs that look alike (:mod:`graphcaps.data.quality.weisfeiler_lehman`, with all that is known
of nodes and edges).
Equal forms (:mod:`graphcaps.data.quality.duplicates`) confirm most of them at once. What is left is compared
in pairs by the
VF2 algorithm of networkx within a number of steps; a pair that needs more stays undecided, and is told as such.
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


_WORK = 100_000_000  # edge entries and nodes looked at for one graph
_OWN = np.uint64(0x2545F4914F6CDD1D)
_RANK = np.uint64(0x9E6C63D0876A9A47)
_Colours = NDArray[np.uint64]


class CanonicalForms:
    """CanonicalForms of the graphs of a store, of their structure and all that is known of nodes and edges.

    Args:
        store (GraphStore): The graphs.
        work (int): Edge entries and nodes that are looked at for one graph before it is given up.
    """

    def __init__(self, store: GraphStore, work: int = _WORK) -> None:
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

    def of(self, graph: int) -> bytes | None:
        """A digest of the form of a graph; ``None`` where the search was given up."""
        begin, end = int(self._ptr[graph]), int(self._ptr[graph + 1])
        entries = slice(int(self._edge_ptr[begin]), int(self._edge_ptr[end]))
        one = _Graph(
            self._edge_ptr[begin : end + 1] - self._edge_ptr[begin],
            self._neighbours[entries],
            None if self._edges is None else self._edges[entries],
        )
        colours = one.distinct(self._nodes[begin:end], self.work)
        if colours is None:
            return None
        order = np.argsort(colours)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        listed = place[one.source] * len(order) + place[one.neighbours]
        rows = np.argsort(listed)
        digest = hashlib.sha256(np.int64(len(order)).tobytes() + listed[rows].tobytes())
        if one.codes is not None:
            digest.update(one.codes[rows].tobytes())
        for table in self._tables:
            digest.update(np.ascontiguousarray(table[begin:end][order]).tobytes())
        return digest.digest()


class _Graph:
    """One graph in rows of neighbours."""

    def __init__(self, ptr: NDArray[np.int64], neighbours: NDArray[np.int32], codes: _Colours | None) -> None:
        self.ptr, self.neighbours, self.codes = ptr, neighbours, codes
        self.source = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))

    def distinct(self, start: _Colours, work: int) -> _Colours | None:
        """A colour of its own for every node, or ``None`` where that takes too long."""
        n, left = len(start), work
        colours, kinds, spent = self._refine(start)
        left -= spent
        if kinds < n:
            colours, kinds, spent = self._refine(self._part_twins(colours))
            left -= spent
        while kinds < n:
            if left <= 0:
                return None
            values, first, counts = np.unique(colours, return_index=True, return_counts=True)
            shared = np.flatnonzero(counts > 1)
            smallest = shared[np.argmin(counts[shared])]  # of equal ones the least colour
            colours = colours.copy()
            colours[first[smallest]] = mix64(values[smallest : smallest + 1] + _OWN)[0]
            colours, kinds, spent = self._refine(colours)
            left -= spent
        return colours

    def _refine(self, colours: _Colours) -> tuple[_Colours, int, int]:
        """Colours that no further round would split, their number, and the work it took."""
        kinds, rounds = count_distinct(colours), 0
        while kinds < len(colours):
            colours = mix64(colours + mix64(self._sums(mix64(colours))))
            rounds += 1
            before, kinds = kinds, count_distinct(colours)
            if kinds == before:
                break
        return colours, kinds, (rounds + 1) * (len(self.neighbours) + len(colours))

    def _part_twins(self, colours: _Colours) -> _Colours:
        """Different colours for nodes of one colour with the same neighbours, apart from each other."""
        own = mix64(np.arange(len(colours), dtype=np.uint64))
        around = self._sums(own)
        keys = [around] if self.codes is not None else [around, around + own]
        for key in keys:
            order = np.lexsort((key, colours))
            new = np.ones(len(order), bool)
            new[1:] = (np.diff(colours[order]) != 0) | (np.diff(key[order]) != 0)
            starts = np.flatnonzero(new)
            rank = np.empty(len(order), np.uint64)
            rank[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
            colours = mix64(colours + rank * _RANK)
        return colours

    def _sums(self, values: _Colours) -> _Colours:
        """Sum over the neighbours of each node, modulo 2⁶⁴; what is known of an edge is mixed into its term."""
        terms = values[self.neighbours]
        if self.codes is not None:
            terms = mix64(terms + self.codes)
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        sums: _Colours = running[self.ptr[1:]] - running[self.ptr[:-1]]
        return sums


_STEPS = 50_000  # pairs of nodes that VF2 may try for one pair of graphs
_NODES = 400  # of a graph that VF2 is asked about: it calls itself once per node
_Graphs = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Groups of equal graphs of a store.

    Args:
        num_graphs (int): Graphs of the store, G.
        groups (tuple): Two or more graphs each that are the same up to the order of nodes, confirmed.
        undecided (tuple): Two or more graphs each that look alike and could not be told apart or confirmed within
            the limits; a graph of ``groups`` may stand here too, beside others.
    """

    num_graphs: int
    groups: tuple[_Graphs, ...]
    undecided: tuple[_Graphs, ...] = ()

    @property
    def num_duplicates(self) -> int:
        """Graphs that have a confirmed copy."""
        return sum(len(group) for group in self.groups)

    def group_ids(self, *, undecided: bool = True) -> _Graphs:
        """A number per graph, ``[G]``, equal for copies; also, unless left out, for what is not decided.

        Numbers count up from 0 by the first graph of each group, so that a graph without a copy has its own.
        """
        first = np.arange(self.num_graphs)
        for group in self.groups:
            first[group] = group[0]
        for group in self.undecided if undecided else ():
            members = np.isin(first, first[group])
            first[members] = first[members].min()
        ids: _Graphs = np.unique(first, return_inverse=True)[1].reshape(-1)
        return ids

    def conflicts(self, y: Tensor | NDArray) -> tuple[tuple[_Graphs, ...], int]:
        """Confirmed groups with more than one class, and how many graphs every method must get wrong."""
        classes = np.asarray(y)
        split = tuple(group for group in self.groups if len(np.unique(classes[group])) > 1)
        lost = sum(len(group) - int(np.bincount(classes[group]).max()) for group in split)
        return split, lost


def find_duplicates(
    store: GraphStore,
    *,
    edges: bool = True,
    steps: int = _STEPS,
    max_nodes: int = _NODES,
    seconds: float | None = None,
) -> Duplicates:
    """Finds the graphs of a store that are the same up to the order of nodes.

    Structure, node labels, node attributes, edge labels, edge attributes and weights must all agree, exactly.

    Args:
        store (GraphStore): Graphs.
        edges (bool): Whether what is known of edges counts; the published model does not read it. (default: True)
        steps (int): Pairs of nodes that VF2 may try for a pair of graphs. (default: 50,000)
        max_nodes (int): Nodes up to which VF2 is asked at all. (default: 400)
        seconds (float, optional): Time after which what is left stays undecided. (default: no limit)
    """
    store = store.to("cpu")
    if not edges:
        store = replace(store, edge_labels=None, edge_attributes=None, edge_weight=None)
    until = None if seconds is None else time.monotonic() + seconds
    forms = CanonicalForms(store)
    groups: list[_Graphs] = []
    unsure: list[_Graphs] = []
    for candidates in wl_indistinguishable(store, edges=True):
        if until is not None and time.monotonic() > until:
            unsure.append(candidates)
            continue
        classes, undecided = _classes(store, forms, candidates, steps, max_nodes)
        groups += [np.array(sorted(members)) for members in classes if len(members) > 1]
        if undecided:
            unsure.append(np.array(sorted(undecided)))
    return Duplicates(len(store), tuple(sorted(groups, key=lambda group: int(group[0]))), tuple(unsure))


def fold_leakage(folds: Folds, group_ids: _Graphs) -> tuple[float, ...]:
    """Of each fold's test graphs, the share with a copy among the graphs of the other folds."""
    shares = []
    for fold in range(folds.num_folds):
        split = folds.paper(fold)
        known = group_ids[split.train.numpy()]
        shares.append(float(np.isin(group_ids[split.test.numpy()], known).mean()))
    return tuple(shares)


def _classes(
    store: GraphStore, forms: CanonicalForms, candidates: _Graphs, steps: int, max_nodes: int
) -> tuple[list[list[int]], list[int]]:
    """Graphs that look alike, parted into classes of equal ones, and those of which a pair is undecided."""
    by_form: dict[object, list[int]] = {}
    for graph in candidates.tolist():
        form = forms.of(graph)
        by_form.setdefault(form if form is not None else ("none", graph), []).append(graph)
    classes: list[list[int]] = []
    undecided: set[int] = set()
    for members in by_form.values():
        for known in classes:
            same = _isomorphic(store, known[0], members[0], steps, max_nodes)
            if same:
                known += members
                break
            if same is None:
                undecided |= {known[0], members[0]}
        else:
            classes.append(list(members))
    return classes, sorted(undecided)


def _isomorphic(store: GraphStore, a: int, b: int, steps: int, max_nodes: int) -> bool | None:
    """Whether two graphs are the same up to the order of nodes; ``None`` where the limits were met."""
    if int(store.sizes[a]) > max_nodes:
        return None
    from networkx.algorithms.isomorphism import GraphMatcher

    class Bounded(GraphMatcher):
        tried = 0

        def syntactic_feasibility(self, one: Any, other: Any) -> bool:
            self.tried += 1
            if self.tried > steps:
                raise _TooLongError
            return bool(super().syntactic_feasibility(one, other))

    first, second = (_plain(to_networkx(store, graph)) for graph in (a, b))
    matcher = Bounded(first, second, node_match=_equal, edge_match=_equal)
    try:
        return bool(matcher.is_isomorphic())
    except _TooLongError:
        return None


class _TooLongError(Exception):
    """The steps are spent."""


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one == other


def _plain(graph: Any) -> Any:
    """A graph without what is known and not shown to a model."""
    for _, entry in graph.nodes(data=True):
        for key in [key for key in entry if key.startswith("truth_")]:
            del entry[key]
    return graph
