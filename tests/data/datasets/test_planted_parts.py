"""The embedded data set: frozen, with matched degrees across classes and correct ground truth."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from graphcaps.data.datasets.motifs import build_motif
from graphcaps.data.datasets.planted_parts import LEVELS, MOTIF_KINDS, NUM_PROFILES, planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

CHECKSUMS = {
    "easy": "5ded08b52b8902d8db4ce65073bb4b5ce15b65c38e26e17620079bafd8523217",
    "medium": "0bb2ba4879e25c62fd15f4ebc9a3d62e3764456c69a620c61cf57d515d29e39d",
    "hard": "3bce05f3edef748d8190a000b8af31a18ada4059f9cdf18adf5bc349fcfa6cdc",
}


@pytest.fixture(scope="module", params=list(LEVELS))
def level(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def store(level) -> GraphStore:
    return planted_parts(level)


def arrays(store: GraphStore) -> list[np.ndarray]:
    columns = [store.node_ptr, store.edge_ptr, store.neighbours, store.y]
    columns += [store.truth["part"], store.truth["kind"]]
    return [column.numpy().astype("<i8") for column in columns]


def to_graphs(store: GraphStore) -> list[nx.Graph]:
    """networkx graphs with ``part`` and ``kind`` on their nodes."""
    ptr, edge_ptr = store.node_ptr.tolist(), store.edge_ptr.tolist()
    part, kind = store.truth["part"].tolist(), store.truth["kind"].tolist()
    graphs = []
    for first, end in pairwise(ptr):
        graph = nx.Graph()
        for row in range(first, end):
            graph.add_node(row - first, part=part[row], kind=MOTIF_KINDS[kind[row]])
        for row in range(first, end):
            around = store.neighbours[edge_ptr[row] : edge_ptr[row + 1]].tolist()
            graph.add_edges_from((row - first, other) for other in around)
        graphs.append(graph)
    return graphs


def degree_histograms(store: GraphStore) -> torch.Tensor:
    """Nodes of each degree in each graph, ``[G, largest degree + 1]``."""
    width = int(store.degree.max()) + 1
    key = store.node_graph * width + store.degree
    return torch.bincount(key, minlength=len(store) * width).reshape(len(store), width)


def gaps_between_parts(graph: nx.Graph) -> dict[tuple[int, int], int]:
    """Shortest way from part to part, in edges, over nodes of no part alone."""
    part = dict(graph.nodes(data="part"))
    gaps: dict[tuple[int, int], int] = {}
    for start in sorted(set(part.values()) - {-1}):
        edge_count, seen = 0, {v for v in graph if part[v] == start}
        ring = seen
        while ring:
            edge_count += 1
            ring = {u for v in ring for u in graph[v]} - seen
            seen = seen | ring
            for other in {part[v] for v in ring} - {-1}:
                gaps.setdefault((min(start, other), max(start, other)), edge_count)
            ring = {v for v in ring if part[v] == -1}
    return gaps


# ---------------------------------------------------------------------- frozen
def test_level_is_frozen(level, store):
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays(store))).hexdigest()
    assert digest == CHECKSUMS[level], "planted-parts is frozen: figures are quoted for these arrays"


def test_same_seed_same_arrays_and_fewer_graphs_are_the_first_of_more(level, store):
    small = planted_parts(level, num_graphs=45)
    for ours, theirs in zip(arrays(small), arrays(store[list(range(45))]), strict=True):
        assert np.array_equal(ours, theirs)
    other = planted_parts(level, seed=1, num_graphs=45)
    assert not np.array_equal(arrays(small)[2], arrays(other)[2])


def test_store_has_three_classes_and_only_structure(level, store):
    assert (len(store), store.name) == (360, f"planted-parts-{level}")
    assert store.class_names == ("ring-star", "ring-clique", "ring-ladder")
    assert store.y.dtype == torch.int64
    assert torch.bincount(store.y).tolist() == [120, 120, 120]
    assert store.node_labels is None
    assert store.node_attributes is None
    assert store.edge_labels is None
    assert store.edge_weight is None
    report = store.report.as_dict()
    assert (report.pop("rows"), report.pop("edges")) == (2 * store.num_edges, store.num_edges)
    assert not any(report.values())  # nothing had to be cleaned


# ---------------------------------------------------------------------- matched
def test_sizes_and_degrees_are_matched_exactly(store):
    histograms, edges = (
        degree_histograms(store),
        torch.tensor([g.number_of_edges() for g in to_graphs(store)]),
    )
    for triple in torch.arange(len(store)).reshape(-1, 3):
        assert sorted(store.y[triple].tolist()) == [0, 1, 2]
        assert (store.sizes[triple] == store.sizes[triple[0]]).all()
        assert (edges[triple] == edges[triple[0]]).all()
        assert (histograms[triple] == histograms[triple[0]]).all()
    for profile in range(NUM_PROFILES):  # the same degrees ten times per class, so that few can be remembered
        members = torch.arange(len(store))[torch.arange(len(store)) // 3 % NUM_PROFILES == profile]
        assert (histograms[members] == histograms[members[0]]).all()
        assert torch.bincount(store.y[members]).tolist() == [10, 10, 10]


def test_graphs_of_a_profile_differ_in_structure(level, store):
    # Twins of another class in the training folds would teach a model the wrong answer for the test graph;
    # they would keep the ways between the parts that meet in neither.
    apart = LEVELS[level].spacing[0] + 2
    gaps = [gaps_between_parts(graph) for graph in to_graphs(store[list(range(120))])]
    equal = [
        gaps[g][pair] == gaps[g + 1][pair]
        for g in range(0, 120, 3)
        for pair in gaps[g]
        if min(gaps[g][pair], gaps[g + 1][pair]) >= apart
    ]
    assert len(equal) >= 80
    assert np.mean(equal) < 0.6


def test_order_of_nodes_and_graphs_carries_no_information(store):
    labels = store.y.reshape(-1, 3)
    for position in range(3):
        assert all(25 <= count <= 55 for count in torch.bincount(labels[:, position], minlength=3).tolist())
    kinds = store.truth["kind"]
    at_first = torch.bincount(kinds[store.node_ptr[:-1]], minlength=len(MOTIF_KINDS)) / len(store)
    at_last = torch.bincount(kinds[store.node_ptr[1:] - 1], minlength=len(MOTIF_KINDS)) / len(store)
    share = torch.bincount(kinds, minlength=len(MOTIF_KINDS)) / store.num_nodes
    assert float((at_first - share).abs().max()) < 0.08
    assert float((at_last - share).abs().max()) < 0.08


def test_sizes_and_degrees_do_not_classify(store):
    histograms = degree_histograms(store).double()
    nodes, degree_sum = histograms.sum(1), (histograms * torch.arange(histograms.size(1))).sum(1)
    largest = (histograms > 0).double().mul(torch.arange(histograms.size(1))).amax(1)
    x = torch.cat(
        [histograms, torch.stack([nodes, degree_sum / 2, degree_sum / nodes, largest], 1)], 1
    ).numpy()
    folds = StratifiedKFold(5, shuffle=True, random_state=12345)
    for model in (
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        RandomForestClassifier(n_estimators=50, random_state=0),
    ):
        assert cross_val_score(model, x, store.y.numpy(), cv=folds).mean() < 0.42


# ---------------------------------------------------------------------- true
def test_class_is_determined_by_the_connected_motifs(level, store):
    numbers = LEVELS[level]
    reach, apart = numbers.bridge[1] + 1, numbers.spacing[0] + 2
    assert reach < apart
    for graph, label in zip(to_graphs(store), store.y.tolist(), strict=True):
        assert nx.is_connected(graph)
        gaps = gaps_between_parts(graph)
        meet = {pair for pair, gap in gaps.items() if gap <= reach}
        partner = label + 1  # of the ring, which is part 0
        rest = tuple(sorted({1, 2, 3} - {partner}))
        couple = {(4, 5)} if numbers.distractors == "pair" else set()
        assert meet == {(0, partner), rest} | couple
        assert all(gap >= apart for pair, gap in gaps.items() if pair not in meet)


def test_ground_truth_matches_the_planted_motifs(level, store):
    numbers = LEVELS[level]
    shapes = {
        kind: [nx.Graph(build_motif(kind, size).edges) for size in range(low, high + 1)]
        for kind, (low, high) in numbers.sizes.items()
    }
    blurred = Counter()
    for number, graph in enumerate(to_graphs(store[list(range(90))])):
        parts: dict[int, list[int]] = {}
        for node, (part, kind) in enumerate(
            zip(*(graph.nodes(data=k) for k in ("part", "kind")), strict=True)
        ):
            assert (part[1] == -1) == (kind[1] == "scaffold")
            parts.setdefault(part[1], []).append(node)
        kinds = {p: {graph.nodes[v]["kind"] for v in nodes} for p, nodes in parts.items() if p >= 0}
        assert [kinds[p] for p in range(4)] == [{"ring"}, {"star"}, {"clique"}, {"ladder"}]
        assert len(kinds) == 4 + {"none": 0, "single": 1, "pair": 2}[numbers.distractors]
        for p, names in kinds.items():
            (kind,) = names
            shape = graph.subgraph(parts[p])
            blurred[number] += not any(nx.is_isomorphic(shape, template) for template in shapes[kind])
    assert set(blurred.values()) == {numbers.noise}


def test_reason_is_the_part_of_the_deciding_motifs(store):
    part, reason = store.truth["part"], store.truth["reason"]
    assert torch.equal(reason >= 0, (part >= 0) & (part < 4))
    assert torch.equal(reason[reason >= 0], part[reason >= 0])


def test_every_kind_of_distractor_occurs(level, store):
    kinds = {MOTIF_KINDS[k] for k in store.truth["kind"][store.truth["part"] >= 4].unique().tolist()}
    expected = {"easy": set(), "medium": {"wheel", "grid", "comb"}, "hard": set(MOTIF_KINDS[1:])}
    assert kinds == expected[level]


# ---------------------------------------------------------------------- refused
def test_invalid_arguments_are_rejected():
    with pytest.raises(ArgumentError, match="'level' must be one of easy, medium, hard, got 'simple'"):
        planted_parts("simple")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="'seed' must be 0 or more, got -1"):
        planted_parts(seed=-1)
    for wrong in (0, -3, 100):
        with pytest.raises(ArgumentError, match=f"'num_graphs' must be 3, 6, 9 .*, got {wrong}"):
            planted_parts(num_graphs=wrong)
