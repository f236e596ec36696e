"""Out-of-distribution graphs get a reason; graphs like the training graphs do not."""

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
from graphcaps.data.readers.molecules import from_smiles
from graphcaps.errors import ArgumentError
from graphcaps.inference.applicability import MIN_THRESHOLD, TrainingProfile
from tests.small_models import labelled, planted


def profile() -> TrainingProfile:
    return TrainingProfile.from_store(labelled())


def test_training_graphs_are_in_distribution():
    store = labelled()
    scores = profile().scores(store)
    assert (scores <= profile().threshold).mean() >= 0.99
    assert profile().threshold >= MIN_THRESHOLD
    assert sum(map(bool, profile().reasons(store))) <= 1


def test_new_graphs_of_the_same_distribution_are_in_distribution():
    new = planted_parts(num_graphs=60, seed=9)
    trained = TrainingProfile.from_store(planted_parts(num_graphs=120))
    assert sum(map(bool, trained.reasons(new))) <= 3


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (nx.path_graph(900), "900 nodes (90 % of the training graphs: 3"),
        (nx.complete_graph(35), "mean degree 34 (90 % of the training graphs:"),
        (nx.star_graph(34), "largest degree 34 (90 % of the training graphs:"),
    ],
)
def test_the_reason_names_the_statistic(graph, expected):
    store = from_networkx([graph], [0])
    (reason,) = TrainingProfile.from_store(planted()).reasons(store)
    assert expected in reason


def test_reasons_of_labels_and_attributes():
    store = labelled()
    other = replace(store, node_labels=torch.full_like(store.node_labels, 3))
    assert all("frequencies of node labels" in reason for reason in profile().reasons(other))
    foreign = replace(store, node_labels=torch.full_like(store.node_labels, 77))
    for reason in profile().reasons(foreign):
        assert re.fullmatch(
            r"frequencies of node labels( in column \d)? differ by 100% \(90 % of the training graphs: up to \d+%; "
            r"most: node label 77, 100% of the nodes here, 0% in training\)",
            reason,
        )
    moved = store.node_attributes.clone()
    moved[:, 1] += 50
    reasons = profile().reasons(replace(store, node_attributes=moved))
    assert all(re.match(r"mean of attribute 1 is (49|50)", reason) for reason in reasons)


def test_both_ends_of_the_range_of_the_largest_degree_are_given():
    """A graph whose largest degree is too low is not described by an upper end alone."""
    store = from_networkx([nx.star_graph(n) for n in range(20, 41)], [0] * 21)
    statistics = TrainingProfile.from_store(store)
    low = replace(statistics, quantiles={"max_degree": statistics.quantiles["max_degree"]})
    assert low.reasons(from_networkx(nx.path_graph(30), [0])) == (
        "largest degree 2 (90 % of the training graphs: 21 to 39)",
    )


def test_a_reason_names_the_column_of_a_featurizer():
    pytest.importorskip("rdkit")
    store = from_smiles(["CCCCO", "CCCCN", "CCCCCO", "CCCO"], featurizer="elements")
    reason = TrainingProfile.from_store(store).reasons(from_smiles(["CSSSSSC"], featurizer="elements"))[0]
    assert reason.startswith("frequencies of 'element' differ by 7")
    assert reason.endswith("most: element S, 71% of the nodes here, 0% in training)")


def test_distances_computed_by_hand():
    """Sizes 10 to 30: the median is 20; the 5 and 95 % quantiles lie at 11 and 29."""
    store = from_networkx([nx.path_graph(n) for n in range(10, 31)], [0] * 21)
    low, middle, high = np.log([11, 20, 29])
    fitted = TrainingProfile.from_store(store)
    np.testing.assert_allclose(fitted.quantiles["nodes"], [low, middle, high])
    new = from_networkx([nx.path_graph(80), nx.path_graph(2)], [0, 0])
    expected = [(np.log(80) - middle) / (high - middle), (middle - np.log(2)) / (middle - low)]
    np.testing.assert_allclose(fitted.distances(new)["nodes"], expected)


def test_json_round_trip():
    again = TrainingProfile.from_dict(json.loads(json.dumps(profile().to_dict())))
    assert again == profile()
    np.testing.assert_array_equal(again.scores(labelled()), profile().scores(labelled()))


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": "high"},
        {"quantiles": {"nodes": [1, 2, 3]}},
        {"quantiles": {"nodes": [1, 2], "mean_degree": [1, 2, 3]}},
        {"label_frequencies": [[[1, 2], [0.5]]]},
        {"label_frequencies": [[[], []]]},
        {"label_frequencies": [[[2, 1], [0.5, 0.5]]]},
        {"label_frequencies": [[[10**30], [1.0]]]},
        {"label_frequencies": [[[float("inf")], [1.0]]]},
        {"threshold": 10**400},
        {"ranges": {}},
        {"more": 1},
    ],
)
def test_invalid_values_are_rejected(change):
    with pytest.raises(ArgumentError, match=r"be the output of TrainingProfile\.to_dict"):
        TrainingProfile.from_dict(profile().to_dict() | change)
