"""Agreement with a known reason: by hand, and against slow forms with networkx and scikit-learn."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
import torch
from sklearn.metrics import roc_auc_score

from graphcaps.data.convert.networkx_graphs import from_networkx
from graphcaps.data.datasets.ba_motifs import ba_multishapes
from graphcaps.data.store import GraphStore
from graphcaps.explanation.truth_metrics import (
    connected_groups,
    group_agreement,
    partition_shape,
    purity,
    score_auc,
)


def path_and_ring() -> GraphStore:
    """A path of six nodes and a ring of four."""
    return from_networkx([nx.path_graph(6), nx.cycle_graph(4)])


def test_auc_by_hand_and_against_scikit_learn() -> None:
    scores = torch.tensor([3.0, 1, 2, 2, 5, 0, 1])
    deciding = torch.tensor([True, False, True, False, True, True, True])
    ptr = torch.tensor([0, 4, 5, 7])
    # First graph: 3 > 1, 3 > 2, 2 > 1, and 2 = 2 counts half; the others have no or only deciding nodes.
    assert score_auc(scores, deciding, ptr) == pytest.approx(3.5 / 4)
    assert score_auc(scores, torch.zeros(7, dtype=torch.bool), ptr) is None
    store = ba_multishapes(num_graphs=20)
    truth = store.truth["reason"] >= 0
    values = torch.randn(store.num_nodes, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    slow = [
        roc_auc_score(truth[a:b], values[a:b])
        for a, b in pairwise(store.node_ptr.tolist())
        if 0 < int(truth[a:b].sum()) < b - a
    ]
    assert score_auc(values, truth, store.node_ptr) == pytest.approx(sum(slow) / len(slow))


def test_connected_groups_are_those_of_networkx() -> None:
    store = ba_multishapes(num_graphs=6)
    partition = torch.randint(3, (store.num_nodes,), generator=torch.Generator().manual_seed(1))
    found = connected_groups(partition, store)
    groups = {frozenset((found == group).nonzero().flatten().tolist()) for group in found.unique()}
    expected = set()
    source = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    target = store.neighbours.long() + store.node_ptr[store.node_graph[source]]
    graph = nx.Graph()
    graph.add_nodes_from(range(store.num_nodes))
    graph.add_edges_from(zip(source.tolist(), target.tolist(), strict=True))
    for part in range(3):
        nodes = (partition == part).nonzero().flatten().tolist()
        expected |= {frozenset(each) for each in nx.connected_components(graph.subgraph(nodes))}
    assert groups == expected


def test_groups_by_hand() -> None:
    store = path_and_ring()
    # Six nodes of the path with two groups, and four of the ring with one.
    reason = torch.tensor([0, 0, -1, -1, 1, 1, 0, 0, -1, -1])
    partition = torch.tensor([0, 0, 1, 1, 1, 1, 2, 2, 2, 0])
    result = group_agreement(partition, reason, store)
    assert result is not None
    assert (result.groups, result.graphs) == (3, 2)
    # The first group is a part; the second is half of one; the third has two of the three nodes of one.
    assert result.overlap == pytest.approx((1 + 1 / 2 + 2 / 3) / 3)
    assert (result.recall, result.graph_recall) == (1, 1)
    assert result.exact == pytest.approx(1 / 3)
    # Without the cut at node 2 the parts of the path are one connected group of six.
    joined = group_agreement(torch.zeros(10, dtype=torch.long), reason, store)
    assert joined is not None
    assert joined.overlap == pytest.approx((2 / 6 + 2 / 6 + 2 / 4) / 3)
    assert joined.recall == pytest.approx(1 / 3)
    assert joined.graph_recall == pytest.approx(1 / 2)
    assert group_agreement(partition, torch.full((10,), -1), store) is None


def test_two_distant_groups_of_one_capsule_are_two_groups() -> None:
    store = from_networkx([nx.path_graph(6)])
    reason = torch.tensor([0, 0, -1, -1, 1, 1])
    result = group_agreement(torch.tensor([3, 3, 0, 0, 3, 3]), reason, store)
    assert result is not None
    assert result.exact == 1


def test_purity_by_hand() -> None:
    partition, kind = torch.tensor([0, 0, 0, 2, 2]), torch.tensor([1, 1, 0, 0, 0])
    assert purity(partition, kind) == pytest.approx(4 / 5)
    assert purity(kind, kind) == 1
    assert purity(torch.zeros(5, dtype=torch.long), kind) == pytest.approx(3 / 5)


def test_shape_by_hand() -> None:
    store = path_and_ring()
    shape = partition_shape(torch.tensor([0, 1, 0, 2, 2, 2, 5, 5, 5, 5]), store)
    assert shape.parts_per_graph == 2  # three in the path, one in the ring
    assert shape.connected == pytest.approx(3 / 4)  # part 0 of the path is in two pieces
    assert (shape.low, shape.high) == pytest.approx((1.1, 2.9))
