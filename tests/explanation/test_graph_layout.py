"""Node positions: apart, scaled, the same every time, and fast for thousands of nodes."""

from __future__ import annotations

import time

import networkx as nx
import numpy as np
import pytest

from graphcaps.explanation.graph_layout import MAX_KAMADA_KAWAI_NODES, layout_nodes, separate_discs


def edges_of(graph: nx.Graph) -> np.ndarray:
    return np.array(nx.convert_node_labels_to_integers(graph).edges, dtype=int).reshape(-1, 2).T


def test_positions_are_apart_and_scaled() -> None:
    clique = np.array([(a, b) for a in range(8) for b in range(a)]).T
    positions = layout_nodes(8, clique)
    apart = np.linalg.norm(positions[:, None] - positions[None], axis=-1) + 9 * np.eye(8)
    assert apart.min() > 0.3
    assert np.abs(positions).max() == pytest.approx(1)
    for edges in (np.empty((2, 0), dtype=int), np.array([[0], [1]])):
        assert np.isfinite(layout_nodes(2, edges)).all()
    assert layout_nodes(1, np.empty((2, 0), dtype=int)).shape == (1, 2)


def test_large_graphs_keep_neighbours_near() -> None:
    """In a grid of 20 by 20, an edge is short and opposite corners are far apart; positions do not vary."""
    edges = edges_of(nx.grid_2d_graph(20, 20))
    assert MAX_KAMADA_KAWAI_NODES < 400
    positions = layout_nodes(400, edges)
    assert np.array_equal(positions, layout_nodes(400, edges))
    lengths = np.linalg.norm(positions[edges[0]] - positions[edges[1]], axis=1)
    assert lengths.max() < 0.25
    assert np.linalg.norm(positions[0] - positions[399]) > 1
    apart = np.linalg.norm(positions[:, None] - positions[None], axis=-1) + 9 * np.eye(400)
    assert apart.min() > 0.2 * lengths.mean()


def test_components_do_not_overlap() -> None:
    sizes = [150, 60, *[3] * 20, *[1] * 5]
    graph = nx.disjoint_union_all([nx.cycle_graph(n) if n > 1 else nx.empty_graph(1) for n in sizes])
    positions = layout_nodes(len(graph), edges_of(graph))
    assert np.isfinite(positions).all()
    assert np.abs(positions).max() == pytest.approx(1)
    component = np.repeat(np.arange(len(sizes)), sizes)
    apart = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    inside = apart[(component[:, None] == component) & ~np.eye(len(graph), dtype=bool)].min()
    assert apart[component[:, None] != component].min() > 0.5 * inside


def test_five_thousand_nodes_take_seconds() -> None:
    """A spring layout of them took minutes."""
    start = time.process_time()
    positions = layout_nodes(5000, edges_of(nx.star_graph(4999)))
    assert time.process_time() - start < 15
    assert len(np.unique(positions.round(6), axis=0)) == 5000  # no node hides another


def test_discs_are_moved_apart_inside_the_square() -> None:
    radii = np.full(9, 0.15)
    moved = separate_discs(np.zeros((9, 2)), radii)
    distances = np.hypot(*(moved[:, None] - moved[None]).transpose(2, 0, 1)) + 2 * np.eye(9)
    assert distances.min() >= 0.3
    assert np.abs(moved).max() <= 0.85 + 1e-9
    apart = np.array([[-0.5, 0.0], [0.5, 0.2]])
    assert np.array_equal(separate_discs(apart, np.full(2, 0.1)), apart)
