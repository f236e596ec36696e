r"""Kinds of groups: isomorphism classes of the labelled subgraphs that the groups induce.

Colour refinement inside the groups (as in :mod:`graphcaps.data.quality.weisfeiler_lehman`) hashes all groups at once.
Groups with the same hash are then compared exactly: two groups whose nodes, sorted by colour, have the same labels and
edges are equal, and the others are compared by VF2 (Cordella et al., 2004), where nodes may only correspond if their
colours are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from graphcaps.data.quality.weisfeiler_lehman import count_distinct, mix64
from graphcaps.explanation.node_groups import NodeGroups
from graphcaps.types import ShapeRepr

__all__ = ["MAX_COMPARED", "GroupKinds", "describe_shape", "group_kinds"]

MAX_COMPARED = 40
"""Largest number of nodes of a group that is compared with others; a larger one has no kind."""


@dataclass(frozen=True, repr=False, eq=False)
class GroupKinds(ShapeRepr):
    """The kinds of K groups.

    Args:
        kind (ndarray): Kind of each group, −1 for one with more than :data:`MAX_COMPARED` nodes, ``[K]``. Kinds are
            numbered by their first group.
        first (ndarray): First group of each kind.
    """

    kind: np.ndarray
    first: np.ndarray


def group_kinds(
    groups: NodeGroups, edges: np.ndarray, node_labels: np.ndarray, edge_labels: np.ndarray
) -> GroupKinds:
    """Joins groups by isomorphism class.

    Args:
        groups (NodeGroups): The groups.
        edges (ndarray): Ends of all edges as rows among all nodes, ``[2, E]``.
        node_labels (ndarray): A number for each node, ``[N]``; isomorphic groups have equal ones.
        edge_labels (ndarray): A number for each edge, ``[E]``, likewise.
    """
    compared = groups.sizes <= MAX_COMPARED
    inside = groups.group[edges[0]] == groups.group[edges[1]]
    inside &= compared[groups.group[edges[0]]] if len(groups) else inside
    ends, labels = edges[:, inside], edge_labels[inside]
    colours = _refine(ends, labels, node_labels)
    hashes = _sums(groups.group, mix64(colours), len(groups)) + mix64(groups.sizes.astype(np.uint64))
    edge_group = groups.group[ends[0]]
    order = np.argsort(edge_group, kind="stable")
    bounds = np.searchsorted(edge_group[order], np.arange(len(groups) + 1))
    kind = np.full(len(groups), -1, np.int64)
    first: list[int] = []
    known: dict[tuple[Any, ...], int] = {}
    buckets: dict[int, list[tuple[int, nx.Graph]]] = {}
    for group in np.flatnonzero(compared).tolist():
        nodes = groups.nodes[groups.ptr[group] : groups.ptr[group + 1]]
        rows = order[bounds[group] : bounds[group + 1]]
        ranked = nodes[np.argsort(colours[nodes], kind="stable")]
        place = {node: at for at, node in enumerate(ranked.tolist())}
        listed = sorted(
            (*sorted((place[a], place[b])), label)
            for a, b, label in zip(*ends[:, rows].tolist(), labels[rows].tolist(), strict=True)
        )
        key = (tuple(node_labels[ranked].tolist()), tuple(listed))
        if key not in known:
            graph = _graph(colours[ranked].tolist(), listed)
            bucket = buckets.setdefault(int(hashes[group]), [])
            equal = (number for number, other in bucket if _isomorphic(graph, other))
            found = next(equal, -1)
            if found < 0:
                found = len(first)
                first.append(group)
                bucket.append((found, graph))
            known[key] = found
        kind[group] = known[key]
    return GroupKinds(kind, np.array(first, dtype=np.int64))


def _refine(edges: np.ndarray, labels: np.ndarray, node_labels: np.ndarray) -> np.ndarray:
    """Colours of all nodes by the edges inside groups, until no colour class splits."""
    colours = mix64(node_labels.astype(np.int64).view(np.uint64))
    kinds = mix64(labels.astype(np.int64).view(np.uint64))
    source, target = np.concatenate([edges, edges[::-1]], 1)
    terms, distinct = np.concatenate([kinds, kinds]), count_distinct(colours)
    for _ in range(MAX_COMPARED):
        sums = _sums(source, mix64(mix64(colours)[target] + terms), len(colours))
        colours = mix64(colours + mix64(sums))
        before, distinct = distinct, count_distinct(colours)
        if distinct == before:
            break
    return colours


def _sums(index: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Sums modulo 2⁶⁴ of the values of each index, ``[count]``."""
    totals = np.zeros(count, np.uint64)
    np.add.at(totals, index, values)
    return totals


def _graph(colours: Sequence[int], edges: Sequence[tuple[int, ...]]) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from((node, {"colour": colour}) for node, colour in enumerate(colours))
    graph.add_edges_from((a, b, {"label": label}) for a, b, label in edges)
    return graph


def _isomorphic(one: nx.Graph, other: nx.Graph) -> bool:
    same_node = nx.isomorphism.categorical_node_match("colour", 0)
    same_edge = nx.isomorphism.categorical_edge_match("label", 0)
    return bool(nx.is_isomorphic(one, other, node_match=same_node, edge_match=same_edge))


def describe_shape(num_nodes: int, edges: np.ndarray, noun: str = "node") -> str:
    """The shape of a connected group in words: ``"ring of 6"``, ``"path of 3"``, ``"7 nodes, 9 edges"``.

    Args:
        num_nodes (int): Number of nodes.
        edges (ndarray): Ends of the edges, ``[2, E]``, from 0.
        noun (str): What a node is called. (default: ``"node"``)
    """
    degrees = np.bincount(edges.reshape(-1), minlength=num_nodes) if edges.size else np.zeros(num_nodes, int)
    E, largest = edges.shape[1], int(degrees.max(initial=0))
    if num_nodes == 1:
        return f"single {noun}"
    if num_nodes == 2:
        return "pair"
    if num_nodes - 1 == E:
        if largest == 2:
            return f"path of {num_nodes}"
        return f"star of {num_nodes}" if largest == num_nodes - 1 else f"tree of {num_nodes}"
    if num_nodes * (num_nodes - 1) // 2 == E:
        return f"clique of {num_nodes}" if num_nodes > 3 else "triangle"
    if num_nodes == E and largest == 2:
        return f"ring of {num_nodes}"
    return f"{num_nodes} {noun}s, {E} {'bonds' if noun == 'atom' else 'edges'}"
