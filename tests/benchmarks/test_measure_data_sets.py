"""Cost of features and of a node limit, on a dozen small graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.measure_data_sets import measure_features, measure_limit

from benchmarks import measure_data_sets
from graphcaps.data.datasets.planted_parts import planted_parts


def test_features_of_the_paper_preset_are_counted() -> None:
    store = replace(planted_parts(num_graphs=12), name="MUTAG")
    row = measure_features(store)
    # A column of ones and three propagations, the degree, and 101 one-hot degrees.
    assert (row["base_columns"], row["columns"], row["attributes"], row["label_columns"]) == (1, 106, 0, 0)
    assert row["mb"] == round(store.num_nodes * 106 * 4 / 1e6, 2)


def test_what_a_node_limit_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    store = planted_parts(num_graphs=12)
    assert measure_limit(store) == {"graphs": 0, "nodes": 0, "edges": 0}
    smallest = int(store.sizes.min())
    monkeypatch.setattr(measure_data_sets, "NODE_LIMIT", smallest)
    removed = measure_limit(store)
    assert removed["graphs"] == int((store.sizes > smallest).sum())
    assert removed["nodes"] == store.num_nodes - 12 * smallest
    assert removed["edges"] > 0
