"""Candidates of the context are compared by validation losses only, the most telling first."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from benchmarks.measure_comparison import Cell
from benchmarks.measure_context import (
    CANDIDATES,
    GROUPS,
    accuracies_table,
    candidate_config,
    choosing_table,
    main,
    plan_cells,
    rows,
    validation_losses,
)

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.evaluation import ResultsStore
from graphcaps.evaluation.epoch_selection import smooth
from graphcaps.nn import HGCN
from graphcaps.presets import load_preset


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the records of two candidates on thirty graphs, after two epochs."""
    root = tmp_path_factory.mktemp("data")
    write_tu(planted_parts(num_graphs=30), root / "TINY.zip")
    run(root / "out", root)
    return root / "out"


def run(out: Path, root: Path, *words: str) -> None:
    fixed = ["--sets", "TINY", "--candidates", "none", "gin-1", "--epochs", "2", "--device", "cpu"]
    main([*fixed, "--root", str(root), "--out", str(out), *words])


def test_every_candidate_is_a_group_member_and_a_model() -> None:
    assert sorted(CANDIDATES) == sorted(name for group in GROUPS for name in group)
    for name in CANDIDATES:
        config = candidate_config(name)
        HGCN(4, 2, **{key: value for key, value in config.model_arguments.items() if key != "edge_labels"})
        assert (config.features.edge_labels == "messages") == name.endswith("edges")
    assert candidate_config("none") == load_preset("default")


def test_order_of_cells_and_edge_labels() -> None:
    cells = plan_cells(["NCI1", "MUTAG"], ["none", "gin-2", "gin-1", "edges"], 2)
    assert cells[:6] == [
        Cell("MUTAG", "none", "held-out", 1),
        Cell("MUTAG", "gin-2", "held-out", 1),
        Cell("NCI1", "none", "held-out", 1),
        Cell("NCI1", "gin-2", "held-out", 1),
        Cell("MUTAG", "gin-1", "held-out", 1),
        Cell("NCI1", "gin-1", "held-out", 1),
    ]
    assert cells[6] == Cell("MUTAG", "edges", "held-out", 1)  # NCI1 has no edge labels
    assert {cell.seeds for cell in cells[7:]} == {2}


def test_accuracies_are_those_of_the_test_folds(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = ResultsStore(measured)
    means = {ledger.variant: ledger.held_out.mean for ledger in results.ledgers()}
    difference = means["gin-1"] - means["none"]
    line = f"| TINY | gin-1 | 1 | {means['none']:.2f} | {means['gin-1']:.2f} | {difference:+.2f} |"
    assert accuracies_table(results).splitlines()[2:] == [
        line,
        f"| mean of 1 | gin-1 | | | | {difference:+.2f} |",
    ]
    main(["--accuracies", "--out", str(measured)])
    assert line in capsys.readouterr().out


def test_losses_are_those_of_the_selected_epochs(measured: Path) -> None:
    listed = list(csv.DictReader((measured / "candidates.csv").read_text("utf-8").splitlines()))
    assert [(row["dataset"], row["candidate"]) for row in listed] == [("TINY", "none"), ("TINY", "gin-1")]
    losses = {}
    for ledger in ResultsStore(measured).ledgers():
        curves = ledger.records[0].curves
        assert (curves.num_folds, curves.num_epochs) == (10, 2)
        losses[ledger.variant] = smooth(1e-5 * curves.validation_loss).min(1)
        assert validation_losses(ledger) == pytest.approx(losses[ledger.variant])
        assert curves.test_graphs.sum() == 30  # test accuracies are in the record
    delta = 100 * (losses["gin-1"] - losses["none"]) / losses["none"].mean()
    assert float(listed[1]["difference in %"]) == pytest.approx(delta.mean(), abs=1e-3)
    expected = delta.std(ddof=1) / np.sqrt(10)
    assert float(listed[1]["standard error in %"]) == pytest.approx(expected, abs=1e-3)
    assert not any("accuracy" in column or "test" in column for column in listed[0])


def test_cells_with_records_are_left_out_and_merged(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "two", measured.parent, "--done", str(measured))
    assert "0 of 2 cells to measure" in capsys.readouterr().out
    main(["--merge", str(measured), "--out", str(tmp_path / "all")])
    shown = capsys.readouterr().out
    assert "2 added" in shown
    assert "| candidate | TINY | better | mean |" in shown
    assert rows(ResultsStore(tmp_path / "all")) == rows(ResultsStore(measured))


def test_a_cell_stops_at_the_end_of_the_budget(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, measured.parent, "--budget", "0")
    assert capsys.readouterr().out.count("not started") == 3
    assert not (tmp_path / "records.zip").exists()


def test_the_table_counts_data_sets_with_a_lower_loss() -> None:
    values = {("MUTAG", "gin-2"): -2.0, ("NCI1", "gin-2"): 1.0, ("MUTAG", "edges"): -0.5}
    listed = [
        {"dataset": name, "candidate": candidate, "difference in %": value}
        for (name, candidate), value in values.items()
    ]
    lines = choosing_table(listed).splitlines()
    assert lines[2:] == [
        "| gin-2 | -2.00 | +1.00 | 1 of 2 | -0.50 |",
        "| edges | -0.50 |  | 1 of 1 | -0.50 |",
    ]
