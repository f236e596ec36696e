"""The program that times the options of HGCN: its options, its weighted graphs, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from benchmarks.measure_option_speed import OPTIONS, PLAIN, main, option_store

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.models.builder import model_factory
from graphcaps.presets import load_preset


def test_every_option_is_one_of_the_model() -> None:
    for name, options in OPTIONS.items():
        config = load_preset("paper", "MUTAG").with_model(**options)
        assert model_factory(config, 4, 2)(()) is not None, name


def test_weights_are_equal_in_both_directions() -> None:
    store = option_store(planted_parts(num_graphs=6), "edge-weights")
    assert option_store(store, PLAIN) is store
    assert store.edge_weight is not None
    assert len(store.edge_weight.unique()) > 1
    first = store.node_ptr[:-1].repeat_interleave(store.sizes)
    node = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    other = store.neighbours + first[node]
    weights = torch.zeros(store.num_nodes, store.num_nodes)
    weights[node, other] = store.edge_weight
    assert torch.equal(weights, weights.T)


@pytest.mark.slow  # three trainings
def test_ratios_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tu(planted_parts(num_graphs=60), tmp_path / "MUTAG.zip")
    words = [
        "--dataset",
        "MUTAG",
        "--root",
        str(tmp_path),
        "--device",
        "cpu",
        "--warm-up",
        "1",
        "--timed",
        "1",
    ]
    main([*words, "--options", PLAIN, "two-levels", "edge-weights", "--out", str(tmp_path / "out.json")])
    rows = {row["what"]: row["value"] for row in json.loads((tmp_path / "out.json").read_text())}
    assert rows["option plain: times the plain step"] == 1
    assert {"option two-levels: times the plain step", "option edge-weights: times the plain step"} <= set(
        rows
    )
    assert "Error" not in capsys.readouterr().out
