"""The benchmark of known reasons: test graphs only, rows that are kept, and the tables of its pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from benchmarks.measure_known_reasons import SETS, add_rows, configuration, measure, read_rows
from benchmarks.pages import known_reasons

from benchmarks import measure_known_reasons as benchmark
from graphcaps.data.datasets.ba_motifs import ba_2motifs
from graphcaps.data.splits.folds import stratified_folds

SETTINGS = {"graphs": 40, "epochs": 2, "width": 8, "learning_rate": 0.01, "methods": None, "sample": 1}


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    for name in ("GNN_EXPLAINER_EPOCHS", "PG_EXPLAINER_EPOCHS", "INTEGRATION_STEPS"):
        monkeypatch.setattr(f"graphcaps.explanation.baselines.{name}", 1)


@pytest.mark.parametrize("model", ["majority", "gin", "hgcn"])
def test_a_row_is_of_the_test_fold(model, monkeypatch):
    store = ba_2motifs(num_graphs=40)
    test = (stratified_folds(store.y).assignment == 1).nonzero().squeeze(-1)
    trained = []
    train = benchmark.train_final
    monkeypatch.setattr(
        benchmark, "train_final", lambda data, *a, **k: trained.append(data) or train(data, *a, **k)
    )
    row, fitted = measure(store, model, 1, SETTINGS, "cpu")
    assert row["test_graphs"] == len(test) == 4
    assert len(trained[0]) == 36
    known = [trained[0][index].neighbours for index in range(36)]
    assert not any(torch.equal(store[int(graph)].neighbours, each) for graph in test for each in known)
    right = fitted.predict_proba(store[test]).argmax(1) == store.y[test].numpy()
    assert row["accuracy"] == 100 * right.mean()
    if model == "majority":
        assert "methods" not in row
        return
    assert row["truth"]["graphs"] == 4
    is_hgcn = model != "gin"
    assert ("capsules" in row["methods"]) == is_hgcn == ("timing" in row)
    assert row["config"]["training"]["epochs"] == 2
    width = "capsule_dim" if is_hgcn else "hidden"
    assert configuration(store, model, SETTINGS).model_arguments[width] == 8


def made_up(dataset: str, model: str, seed: int, accuracy: float, **settings: int) -> dict:
    metrics = {"auc_nodes": 0.9, "auc_edges": 0.8} | dict.fromkeys(known_reasons.CAPSULES, 0.5)
    row = {"dataset": dataset, "model": model, "seed": seed, "settings": SETTINGS | settings}
    row |= {"accuracy": accuracy, "hardware": "2 cores"}
    if model in known_reasons.NETWORKS:
        row["methods"] = {"capsules": metrics, "occlusion": {"auc_nodes": 0.7, "auc_edges": None}}
        row["timing"] = {"ratio": 2.5}
    return row


def test_rows_are_replaced_by_data_set_model_seed_and_settings(tmp_path):
    path = tmp_path / "rows.json"
    assert read_rows(path) == []
    add_rows(path, [made_up("benzene", "hgcn", 0, 50.0), made_up("ba-2motifs", "hgcn", 1, 60.0)])
    add_rows(path, [made_up("benzene", "hgcn", 0, 70.0), made_up("benzene", "hgcn", 0, 80.0, graphs=20)])
    assert [(row["dataset"], row["accuracy"]) for row in read_rows(path)] == [
        ("ba-2motifs", 60.0),
        ("benzene", 70.0),
        ("benzene", 80.0),
    ]
    assert json.loads(path.read_text("utf-8"))["command"].startswith("python -m benchmarks.")


def test_a_spent_budget_starts_nothing_and_files_are_merged(tmp_path, capsys):
    words = ["--sets", "ba-2motifs", "--models", "majority", "--seeds", "1", "--graphs", "40"]
    first, second, both = (tmp_path / f"{name}.json" for name in ("first", "second", "both"))
    benchmark.main([*words, "--budget", "-1", "--out", str(first)])
    assert "ba-2motifs majority 0: not started" in capsys.readouterr().out
    assert not first.exists()
    benchmark.main([*words, "--out", str(first)])
    add_rows(second, [made_up("benzene", "hgcn", 0, 90.0)])
    benchmark.main(["--merge", str(first), str(second), "--out", str(both)])
    assert [row["dataset"] for row in read_rows(both)] == ["ba-2motifs", "benzene"]


def write_pages(root: Path, rows: list[dict]) -> None:
    (root / "results").mkdir()
    (root / "docs").mkdir()
    add_rows(root / "results" / "known-reasons.json", rows)
    sections = {
        "known-reasons.md": ["accuracies"],
        "explaining.md": [
            *(f"areas of {name}" for name in known_reasons.NETWORKS),
            "capsules and reasons",
            "conditions of reasons",
        ],
    }
    for page, names in sections.items():
        text = "".join(f"<!-- generated: {name} -->\n<!-- end -->\n" for name in names)
        (root / "docs" / page).write_text(text, "utf-8")


def test_pages_show_means_over_the_seeds_of_the_largest_runs(tmp_path):
    rows = [
        made_up("benzene", "hgcn", 0, 90.0),
        made_up("benzene", "hgcn", 1, 80.0),
        made_up("benzene", "hgcn", 0, 10.0, graphs=20),  # a smaller run
        made_up("benzene", "gin", 0, 70.0),
        made_up("ba-2motifs", "majority", 0, 50.0),
    ]
    write_pages(tmp_path, rows)
    reasons, explaining = known_reasons.reasons_page(tmp_path), known_reasons.explaining_page(tmp_path)
    assert "| `benzene` | – | – | – | 70.0 | 85.0 |" in reasons
    assert "| `ba-2motifs` | 50.0 | – | – | – | – |" in reasons
    at = 1 + SETS.index("benzene")
    capsules = next(line for line in explaining.splitlines() if line.startswith("| capsules |")).split(" | ")
    assert capsules[at] == "0.90/0.80"
    occlusion = next(line for line in explaining.splitlines() if line.startswith("| occlusion* |")).split(
        " | "
    )
    assert occlusion[at] == "0.70/–"
    assert f"| `benzene` | 85.0 |{' 0.50 |' * len(known_reasons.CAPSULES)} 2.50 |" in explaining
    assert "- `hgcn`: the first 40 graphs, 2 of five seeds, epochs 2, width 8" in explaining
