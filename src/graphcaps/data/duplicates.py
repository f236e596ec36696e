"""Graphs that are the same up to the order of their nodes: found by colour refinement, then confirmed.

Candidates are graphs that look alike (:mod:`graphcaps.data.lookalikes`, with all that is known of nodes and edges).
Equal forms (:mod:`graphcaps.data.canonical`) confirm most of them at once. What is left is compared in pairs by the
VF2 algorithm of networkx within a number of steps; a pair that needs more stays undecided, and is told as such.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.canonical import Forms
from graphcaps.data.convert_networkx import to_networkx
from graphcaps.data.lookalikes import look_alikes
from graphcaps.data.splits import Folds
from graphcaps.data.store import GraphStore

__all__ = ["Duplicates", "find_duplicates", "fold_leakage"]

_STEPS = 50_000  # pairs of nodes that VF2 may try for one pair of graphs
_NODES = 400  # of a graph that VF2 is asked about: it calls itself once per node
_Graphs = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Groups of equal graphs of a store.

    Args:
        num_graphs (int): Graphs of the store, G.
        groups (tuple): Two or more graphs each that are the same up to the order of nodes, confirmed.
        unsure (tuple): Two or more graphs each that look alike and could not be told apart or confirmed within
            the limits; a graph of ``groups`` may stand here too, beside others.
    """

    num_graphs: int
    groups: tuple[_Graphs, ...]
    unsure: tuple[_Graphs, ...] = ()

    @property
    def num_duplicates(self) -> int:
        """Graphs that have a confirmed copy."""
        return sum(len(group) for group in self.groups)

    def group_ids(self, *, unsure: bool = True) -> _Graphs:
        """A number per graph, ``[G]``, equal for copies; also, unless left out, for what is not decided.

        Numbers count up from 0 by the first graph of each group, so that a graph without a copy has its own.
        """
        first = np.arange(self.num_graphs)
        for group in self.groups:
            first[group] = group[0]
        for group in self.unsure if unsure else ():
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
    forms = Forms(store)
    groups: list[_Graphs] = []
    unsure: list[_Graphs] = []
    for candidates in look_alikes(store, edges=True):
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
    store: GraphStore, forms: Forms, candidates: _Graphs, steps: int, max_nodes: int
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
