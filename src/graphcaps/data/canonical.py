"""A form of a graph that does not depend on the order of its nodes, as far as a quick search finds one.

Nodes are ordered by colour refinement. Where several keep one colour, twins (nodes with the same neighbours) are
put in any order, which changes nothing; then one node of the smallest class gets a colour of its own, and
refinement goes on, until all colours differ. Two graphs with equal forms are the same graph in another order: the
forms are those graphs, written out node by node. The reverse does not hold, since the search never goes back:
different forms prove nothing.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from graphcaps.data.lookalikes import count_colours, edge_codes, mix, node_colours
from graphcaps.data.store import GraphStore

__all__ = ["Forms"]

_WORK = 100_000_000  # edge entries and nodes looked at for one graph
_OWN = np.uint64(0x2545F4914F6CDD1D)
_RANK = np.uint64(0x9E6C63D0876A9A47)
_Colours = NDArray[np.uint64]


class Forms:
    """Forms of the graphs of a store, of their structure and all that is known of nodes and edges.

    Args:
        store (GraphStore): The graphs.
        work (int): Edge entries and nodes that are looked at for one graph before it is given up.
    """

    def __init__(self, store: GraphStore, work: int = _WORK) -> None:
        self.store = store.to("cpu")
        self.work = work
        self._nodes, self._edges = node_colours(self.store), edge_codes(self.store)
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
            colours[first[smallest]] = mix(values[smallest : smallest + 1] + _OWN)[0]
            colours, kinds, spent = self._refine(colours)
            left -= spent
        return colours

    def _refine(self, colours: _Colours) -> tuple[_Colours, int, int]:
        """Colours that no further round would split, their number, and the work it took."""
        kinds, rounds = count_colours(colours), 0
        while kinds < len(colours):
            colours = mix(colours + mix(self._sums(mix(colours))))
            rounds += 1
            before, kinds = kinds, count_colours(colours)
            if kinds == before:
                break
        return colours, kinds, (rounds + 1) * (len(self.neighbours) + len(colours))

    def _part_twins(self, colours: _Colours) -> _Colours:
        """Different colours for nodes of one colour with the same neighbours, apart from each other."""
        own = mix(np.arange(len(colours), dtype=np.uint64))
        around = self._sums(own)
        keys = [around] if self.codes is not None else [around, around + own]
        for key in keys:
            order = np.lexsort((key, colours))
            new = np.ones(len(order), bool)
            new[1:] = (np.diff(colours[order]) != 0) | (np.diff(key[order]) != 0)
            starts = np.flatnonzero(new)
            rank = np.empty(len(order), np.uint64)
            rank[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
            colours = mix(colours + rank * _RANK)
        return colours

    def _sums(self, values: _Colours) -> _Colours:
        """Sum over the neighbours of each node, modulo 2⁶⁴; what is known of an edge is mixed into its term."""
        terms = values[self.neighbours]
        if self.codes is not None:
            terms = mix(terms + self.codes)
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        sums: _Colours = running[self.ptr[1:]] - running[self.ptr[:-1]]
        return sums
