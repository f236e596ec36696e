"""Receptive fields on worked examples, and against a plain search from each root."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from graphcaps.data.structures import receptive_fields as module
from graphcaps.data.structures.receptive_fields import (
    ReceptiveFields,
    colour_ranks,
    order_nodes,
    receptive_fields,
)
from graphcaps.errors import ArgumentError
from graphcaps.ops.structure.precomputation import PlainGraph
from tests.coarse_levels import matrix


def plain(graph: nx.Graph) -> PlainGraph:
    return PlainGraph.from_adjacency(matrix(graph))


# A triangle 0 1 2 with a path 2 3 4 5, and an isolated node 6.
#
#   0
#   | \
#   |  2 - 3 - 4 - 5     6
#   | /
#   1
EXAMPLE = nx.Graph([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5)])
EXAMPLE.add_node(6)


def test_colours_of_a_worked_example() -> None:
    # By degree: 2 | 0 1 3 4 | 5 | 6. Of degree 2, nodes 0, 1 and 3 have the neighbours 2 and one of degree 2, and
    # node 4 one of degree 2 and 5: 0 1 3 | 4. Then the second neighbours of 0 and 1 come before that of 3.
    assert colour_ranks(plain(EXAMPLE)).tolist() == [1, 1, 0, 2, 3, 4, 5]
    assert order_nodes(plain(EXAMPLE)).tolist() == [2, 0, 1, 3, 4, 5, 6]


def test_fields_of_a_worked_example() -> None:
    graph = plain(EXAMPLE)
    fields = receptive_fields(graph, order_nodes(graph), num_fields=7, field_size=4)
    assert fields.tolist() == [
        [2, 0, 1, 3],  # the root and its three neighbours
        [0, 2, 1, 3],  # 2 comes before 1 at distance 1; 3 is at distance 2
        [1, 2, 0, 3],
        [3, 2, 4, 0],  # at distance 2 are 0, 1 and 5, of which there is room for one
        [4, 3, 5, 2],
        [5, 4, 3, 2],
        [6, -1, -1, -1],  # nothing else can be reached
    ]
    assert receptive_fields(graph, order_nodes(graph), 2, 1).tolist() == [[2], [0]]


def test_a_level_holds_the_fields() -> None:
    graph = plain(EXAMPLE)
    (level,) = ReceptiveFields(num_fields=20, field_size=3).compute(graph).levels
    assert level.num_nodes == 7
    assert level.member_ptr.tolist() == [0, 3, 6, 9, 12, 15, 18, 19]
    assert level.members[:6].tolist() == [2, 0, 1, 0, 2, 1]
    assert level.members[-1:].tolist() == [6]
    assert level.adjacency.nnz == 0


def _plain_fields(graph: nx.Graph, order: list[int], w: int, k: int) -> list[list[int]]:
    place = {node: index for index, node in enumerate(order)}
    fields = []
    for root in order[:w]:
        distance = nx.single_source_shortest_path_length(graph, root)
        nodes = sorted(distance, key=lambda node: (distance[node], place[node]))[:k]
        fields.append(nodes + [-1] * (k - len(nodes)))
    return fields


@pytest.mark.parametrize("block", [1 << 24, 100])
@pytest.mark.parametrize(
    "graph",
    [nx.gnp_random_graph(40, 0.06, seed=1), nx.gnp_random_graph(30, 0.5, seed=2), nx.star_graph(30)],
    ids=["sparse", "dense", "star"],
)
def test_fields_equal_plain_searches(graph: nx.Graph, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)  # in the second case few roots are searched at a time
    order = order_nodes(plain(graph))
    found = receptive_fields(plain(graph), order, 25, 6)
    assert found.tolist() == _plain_fields(graph, order.tolist(), 25, 6)


def test_colours_do_not_depend_on_the_order_of_nodes() -> None:
    graph = nx.gnp_random_graph(40, 0.08, seed=5)
    shuffled = np.random.default_rng(0).permutation(40)
    other = nx.relabel_nodes(graph, dict(enumerate(shuffled.tolist())))
    assert np.array_equal(colour_ranks(plain(other))[shuffled], colour_ranks(plain(graph)))


def test_colours_are_as_fine_as_colour_refinement() -> None:
    graph = nx.gnp_random_graph(30, 0.08, seed=3)
    nx.set_node_attributes(graph, dict(graph.degree), "degree")
    hashes = nx.weisfeiler_lehman_subgraph_hashes(graph, node_attr="degree", iterations=30)
    classes = {tuple(hashes[node]) for node in graph}
    ranks = colour_ranks(plain(graph))
    assert len(classes) == ranks.max() + 1
    assert len({(*hashes[node], rank) for node, rank in enumerate(ranks.tolist())}) == len(classes)


def test_invalid_sizes_are_refused() -> None:
    graph = PlainGraph.from_adjacency(sparse.csr_array((1, 1)))
    with pytest.raises(ArgumentError, match=r"^receptive_fields: 'field_size' must be at least 1, got 0\.$"):
        receptive_fields(graph, order_nodes(graph), 1, 0)
