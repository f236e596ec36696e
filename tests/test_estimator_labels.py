"""Node labels of graphs to classify that are not those of the graphs that were learned from."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest

from graphcaps import HGCNClassifier
from graphcaps.data.coerce import coerce_graphs
from graphcaps.data.label_encoding import text_code
from graphcaps.errors import ArgumentError


def graphs(labels: Sequence[Any] | None) -> list[nx.Graph]:
    made = []
    for number in range(12):
        graph = nx.cycle_graph(5 + number % 3) if number % 2 else nx.path_graph(5 + number % 3)
        for node in graph if labels is not None else ():
            graph.nodes[node]["label"] = labels[node % len(labels)]  # type: ignore[index]
        made.append(graph)
    return made


@cache
def fitted(labels: tuple[Any, ...] | None) -> HGCNClassifier:
    model = HGCNClassifier(
        capsule_dim=8, num_capsules=3, num_factors=2, epochs=1, device="cpu", random_state=0
    )
    return model.fit(graphs(labels), [number % 2 for number in range(12)])


@pytest.mark.parametrize("labels", [(0, 1), ("a", "b"), ("1", "2"), ("a", 1)])
def test_labels_for_a_model_without_any_are_refused_alike(labels: tuple[Any, ...]) -> None:
    with pytest.raises(
        ArgumentError, match="must have no node label columns, as the graphs that the model was"
    ):
        fitted(None).predict(graphs(labels))


def test_a_text_that_training_never_saw_is_read_as_zeros() -> None:
    model = fitted(("a", "b"))
    with pytest.warns(UserWarning, match="not seen in training|encoded as zeros") as told:
        found = model.predict_proba(graphs(("a", "z")))
    number = text_code("z")
    assert [str(one.message).partition(":")[2] for one in told] == [
        f" node labels not seen in training: 'z' (as {number}).",
        f" labels that have no input column are encoded as zeros: {number} on 32 nodes, first on node 1 of graph 0 of "
        "graphs.",
    ]
    with pytest.warns(UserWarning, match="not seen in training|encoded as zeros"):
        other = model.predict_proba(graphs(("a", "y")))
    assert np.array_equal(found, other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.array_equal(found, model.predict_proba(graphs(("a", "b"))))


def test_unseen_text_may_be_refused() -> None:
    model = HGCNClassifier(unseen="refuse")
    model.__dict__ |= {key: value for key, value in vars(fitted(("a", "b"))).items() if key != "unseen"}
    with (
        pytest.warns(UserWarning, match="not seen in training: 'z'"),
        pytest.raises(ArgumentError, match="input column"),
    ):
        model.predict(graphs(("a", "z")))


def test_a_number_is_not_mistaken_for_the_code_of_a_text() -> None:
    with pytest.warns(UserWarning, match="not seen in training|encoded as zeros"):
        assert (
            min(coerce_graphs(graphs((0, 1)), codes={"a": 0, "b": 1}).store.node_labels.flatten()) > 1 << 32
        )


def test_numbers_of_numpy_are_numbers() -> None:
    read = coerce_graphs(graphs(("red", np.int64(2), np.int8(3))), codes={})
    assert read.store.node_labels[:3].flatten().tolist() == [text_code("red"), 2, 3]


def test_text_is_numbered_as_in_files_for_a_model_that_knows_numbers() -> None:
    read = coerce_graphs(graphs(("red", "2", 3)), codes={})
    assert read.store.node_labels[:3].flatten().tolist() == [text_code("red"), 2, 3]
    assert read.codes == {}


@pytest.mark.parametrize("label", [0.5, {}, None])
def test_what_is_no_label_is_refused_in_a_sentence(label: object) -> None:
    for codes in ({"a": 0}, {}, None):
        with pytest.raises(ArgumentError, match=r"^from_networkx: 'label' must be .* of graph 0\.$"):
            coerce_graphs(graphs(("a", label)), codes=codes)
