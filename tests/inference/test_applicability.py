"""Graphs unlike the training graphs are named, with a reason; those like them are not."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch

from graphcaps.data import from_networkx
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.errors import ArgumentError
from graphcaps.inference.applicability import LEAST, TrainingProfile
from tests.small_models import labelled, planted


def profile() -> TrainingProfile:
    return TrainingProfile.of(labelled())


def test_the_training_graphs_are_like_themselves():
    store = labelled()
    scores = profile().scores(store)
    assert (scores <= profile().threshold).mean() >= 0.99
    assert profile().threshold >= LEAST
    assert sum(map(bool, profile().reasons(store))) <= 1


def test_new_graphs_of_the_same_kind_pass():
    new = planted_parts(num_graphs=60, seed=9)
    known = TrainingProfile.of(planted_parts(num_graphs=120))
    assert sum(map(bool, known.reasons(new))) <= 3


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (nx.path_graph(900), "900 nodes (nine of ten training graphs: 3"),
        (nx.complete_graph(35), "neighbours a node (nine of ten training graphs:"),
        (nx.star_graph(34), "a node with 34 neighbours (nine of ten training graphs: up to"),
    ],
)
def test_the_reason_names_what_is_strange(graph, words):
    store = from_networkx([graph], [0])
    (reason,) = TrainingProfile.of(planted()).reasons(store)
    assert words in reason


def test_labels_and_attributes_count():
    store = labelled()
    other = replace(store, node_labels=torch.full_like(store.node_labels, 3))
    assert all("node labels elsewhere than usual" in reason for reason in profile().reasons(other))
    foreign = replace(store, node_labels=torch.full_like(store.node_labels, 77))
    assert all("100% of its node labels" in reason for reason in profile().reasons(foreign))
    moved = store.node_attributes.clone()
    moved[:, 1] += 50
    reasons = profile().reasons(replace(store, node_attributes=moved))
    assert all(re.match(r"attribute 1 is (49|50)", reason) for reason in reasons)


def test_the_distance_by_hand():
    """Sizes 10 to 30: the median is 20; the 5 and 95 % quantiles lie at 11 and 29."""
    store = from_networkx([nx.path_graph(n) for n in range(10, 31)], [0] * 21)
    low, middle, high = np.log([11, 20, 29])
    found = TrainingProfile.of(store)
    np.testing.assert_allclose(found.sizes["nodes"], [low, middle, high])
    new = from_networkx([nx.path_graph(80), nx.path_graph(2)], [0, 0])
    expected = [(np.log(80) - middle) / (high - middle), (middle - np.log(2)) / (middle - low)]
    np.testing.assert_allclose(found.distances(new)["nodes"], expected)


def test_json_gives_it_back():
    again = TrainingProfile.from_dict(json.loads(json.dumps(profile().to_dict())))
    assert again == profile()
    np.testing.assert_array_equal(again.scores(labelled()), profile().scores(labelled()))


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": "high"},
        {"sizes": {"nodes": [1, 2, 3]}},
        {"sizes": {"nodes": [1, 2], "degree": [1, 2, 3]}},
        {"labels": [[[1, 2], [0.5]]]},
        {"ranges": {}},
        {"more": 1},
    ],
)
def test_what_is_not_sound_is_refused(change):
    with pytest.raises(ArgumentError, match=r"be what TrainingProfile\.to_dict writes"):
        TrainingProfile.from_dict(profile().to_dict() | change)
