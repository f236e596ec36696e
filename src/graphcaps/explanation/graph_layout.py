"""Node positions for drawings: Kamada-Kawai for small graphs, pivot MDS with local forces for large ones."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial import cKDTree

__all__ = ["MAX_KAMADA_KAWAI_NODES", "layout_nodes", "separate_discs"]

MAX_KAMADA_KAWAI_NODES = 200
"""Largest graph that Kamada and Kawai's layout is used for; it takes cubic time in the number of nodes."""
_PIVOTS = 50
_ITERATIONS = 80  # of the local forces
_NEIGHBOURS = 8  # nodes that repel a node
_COMPONENT_GAP = 1.5  # in edge lengths


def layout_nodes(num_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Deterministic node positions between −1 and 1, ``[n, 2]``; the longest axis of the graph is horizontal.

    Kamada-Kawai up to 200 nodes, pivot MDS above, a circle for a graph without edges. Pivot MDS (Brandes and Pich,
    2006) takes O(50 E) time; local forces then spread nodes that it puts on one spot. 5,000 nodes take about a second.

    Args:
        num_nodes (int): Number of nodes n.
        edges (ndarray): ``[2, E]``.
    """
    if not edges.size:
        angle = 2 * np.pi * np.arange(num_nodes) / max(num_nodes, 1)
        positions = np.stack([np.cos(angle), np.sin(angle)], 1) if num_nodes > 1 else np.zeros((num_nodes, 2))
    elif num_nodes <= MAX_KAMADA_KAWAI_NODES:
        graph = nx.Graph()
        graph.add_nodes_from(range(num_nodes))
        graph.add_edges_from(edges.T.tolist())
        layout = nx.kamada_kawai_layout(graph)
        positions = _separate(np.array([layout[node] for node in range(num_nodes)], dtype=float), edges)
    else:
        positions = _layout_components(num_nodes, edges)
    centred = positions - positions.mean(0)
    rotated: np.ndarray = (
        centred @ np.linalg.svd(centred, full_matrices=False)[2].T if num_nodes > 2 else centred
    )
    return rotated / max(float(np.abs(rotated).max(initial=0.0)), 1e-9)


def _separate(positions: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Pushes nodes apart that are closer than 0.74 median edge lengths, so that none hides another."""
    min_distance = 0.74 * float(np.median(np.linalg.norm(positions[edges[0]] - positions[edges[1]], axis=1)))
    for _ in range(15):
        difference = positions[:, None] - positions[None]
        length = np.maximum(np.linalg.norm(difference, axis=-1), 1e-9)
        push = np.clip(min_distance - length, 0, None) / length
        np.fill_diagonal(push, 0)
        positions = positions + 0.25 * (push[..., None] * difference).sum(1)
    return positions


def _layout_components(num_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Each connected component by itself, then packed in rows, the largest first."""
    shape = (num_nodes, num_nodes)
    adjacency = coo_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape).tocsr()
    adjacency = adjacency + adjacency.T
    count, component = connected_components(adjacency, directed=False)
    order = np.argsort(component, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(component, minlength=count))[:-1])
    # Forces act on all components at once, which is fast also for thousands of small ones.
    start = _place(members, [_start_positions(adjacency[nodes][:, nodes]) for nodes in members])
    positions = _spread(start, edges)
    return _place(members, [positions[nodes] for nodes in members])


def _start_positions(adjacency: csr_array) -> np.ndarray:
    """Positions of a connected graph, in edge lengths."""
    n = adjacency.shape[0]
    if n <= 2:
        return np.stack([np.arange(n, dtype=float), np.zeros(n)], 1)
    positions = _pivot_mds(adjacency)
    source, target = adjacency.nonzero()
    positions /= max(float(np.linalg.norm(positions[source] - positions[target], axis=1).mean()), 1e-9)
    # Nodes with equal distances to all pivots lie on one spot; the forces need a direction.
    jittered: np.ndarray = positions + np.random.default_rng(0).normal(scale=0.05, size=positions.shape)
    return jittered


def _pivot_mds(adjacency: csr_array) -> np.ndarray:
    """Classical scaling of the distances to pivots, each the farthest node from those before, ``[n, 2]``."""
    n = adjacency.shape[0]
    nearest, distances, pivot = np.full(n, np.inf), [], 0
    for _ in range(min(_PIVOTS, n)):
        distances.append(dijkstra(adjacency, directed=False, indices=pivot, unweighted=True))
        nearest = np.minimum(nearest, distances[-1])
        pivot = int(nearest.argmax())
    squared = np.stack(distances, 1) ** 2
    centred = squared - squared.mean(0) - squared.mean(1, keepdims=True) + squared.mean()
    _, _, axes = np.linalg.svd(centred.T @ centred)
    positions: np.ndarray = centred @ axes[:2].T
    return positions


def _spread(positions: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Springs of length 1 along edges, and repulsion of near nodes within one edge length."""
    n = len(positions)
    neighbours = min(_NEIGHBOURS + 1, n)
    degree = np.maximum(np.bincount(edges.ravel(), minlength=n), 1)[:, None]
    for iteration in range(_ITERATIONS):
        distance, near = cKDTree(positions).query(positions, neighbours)
        away = positions[:, None] - positions[near]
        push = np.clip(1 - distance, 0, None) / np.maximum(distance, 1e-9)
        force = (push[..., None] * away)[:, 1:].sum(1)
        along = positions[edges[1]] - positions[edges[0]]
        length = np.linalg.norm(along, axis=1, keepdims=True)
        pull = along * (length - 1) / np.maximum(length, 1e-9)
        springs = np.zeros_like(positions)
        np.add.at(springs, edges[0], pull)
        np.add.at(springs, edges[1], -pull)
        step = force + springs / degree
        size = np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-9)
        # Long edges contract freely in the first half, then steps become smaller.
        limit = np.inf if iteration < _ITERATIONS // 2 else 2 * (1 - iteration / _ITERATIONS)
        positions = positions + 0.5 * step * np.minimum(1, limit / size)
    return positions


def _place(members: list[np.ndarray], boxes: list[np.ndarray]) -> np.ndarray:
    """Positions of all nodes, ``[n, 2]``: components in rows about as wide as the whole is high, the largest first.

    Args:
        members (list): Nodes of each component.
        boxes (list): Positions of these nodes.
    """
    positions = np.zeros((sum(map(len, members)), 2))
    sizes = [np.ptp(box, axis=0) + _COMPONENT_GAP for box in boxes]
    width = max(math.sqrt(sum(float(size.prod()) for size in sizes)), max(float(size[0]) for size in sizes))
    x = y = row_height = 0.0
    for index in sorted(range(len(boxes)), key=lambda i: -float(sizes[i].prod())):
        if x > 0 and x + sizes[index][0] > width:
            x, y, row_height = 0.0, y + row_height, 0.0
        positions[members[index]] = boxes[index] - boxes[index].min(0) + np.array([x, y])
        x += float(sizes[index][0])
        row_height = max(row_height, float(sizes[index][1]))
    return positions


def separate_discs(centres: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Moves discs apart until none overlaps another, then inside the square from −1 to 1.

    Args:
        centres (ndarray): Centres of K discs, ``[K, 2]``.
        radii (ndarray): Their radii, ``[K]``.

    Returns:
        ndarray: New centres, ``[K, 2]``.
    """
    points = centres.astype(float).copy()
    count = len(points)
    for _ in range(100):
        moved = False
        for a in range(count):
            for b in range(a + 1, count):
                step = points[b] - points[a]
                if not step.any():
                    step = np.array([np.cos(a + 1.0), np.sin(a + 1.0)]) * 1e-6
                distance, least = float(np.hypot(*step)), 1.1 * float(radii[a] + radii[b])
                if distance < least * (1 - 1e-9):
                    push = (least - distance) / 2 / distance * step
                    points[a] -= push
                    points[b] += push
                    moved = True
        points = points.clip(radii[:, None] - 1, 1 - radii[:, None])
        if not moved:
            break
    return points
