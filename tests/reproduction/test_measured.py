"""Other systems of tables 1 and 2: measured where there are records, with the protocol of the paper's value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphcaps.evaluation import RecordKey, ResultsStore
from graphcaps.reproduction.cells import choose_cells
from graphcaps.reproduction.measured import CellResult, MeasuredLedgers, cell_results
from graphcaps.reproduction.table_formats import lines, markdown, system_notes
from tests.evaluation.records import record


@pytest.fixture
def found(tmp_path: Path) -> list[CellResult]:
    """GIN is measured on MUTAG and PTC_MR, GCN on PTC_MR, which the paper does not report; GK is not measured."""
    results = ResultsStore(tmp_path)
    for dataset, model in (("MUTAG", "gin"), ("PTC_MR", "gin"), ("PTC_MR", "gcn")):
        for protocol in ("held-out", "paper"):
            made = record(0, protocol, dataset)  # type: ignore[arg-type]
            results.add(replace(made, key=RecordKey(dataset, model, protocol, 0)))
    cells = choose_cells(["table1", "table2"], rows=["GIN", "GCN", "GK"])
    empty = MeasuredLedgers(ResultsStore(tmp_path / "none"), 1)
    return cell_results(cells, empty, compared=MeasuredLedgers(results, 1))


def test_measured_rows_stand_beside_the_paper(found: list[CellResult]) -> None:
    measured = {
        (each.cell.row, each.cell.dataset, each.cell.criterion): each
        for each in found
        if each.ours is not None
    }
    assert {key[2] for key in measured} == {"C", "held-out"}
    assert measured["GIN", "MUTAG", "C"].difference is not None
    assert measured["GCN", "PTC_MR", "C"].cell.paper is None
    # What is neither measured nor published is left out.
    assert all(each.ours is not None or each.cell.paper is not None for each in found)
    _, rows = lines(found, "table1")
    assert {line.what for line in rows if line.row == "GIN" and line.criterion == "C"} == {
        "paper",
        "ours",
        "difference",
    }
    assert {line.title for line in rows if line.row == "GK"} == {"reported (SVM)"}
    assert "| GIN | C | paper (C) | 89.40 ± 5.60 |" in markdown(found)
    entry = measured["GIN", "MUTAG", "C"].as_dict()
    assert entry["model"] == "gin"
    assert entry["paper_protocol"].startswith("C: one epoch for all folds")


def test_the_selection_of_the_paper_and_its_slip_are_said(found: list[CellResult]) -> None:
    notes = system_notes(found, "table2")
    assert any(
        "GK: support vector machine, parameters chosen inside the training part." in note for note in notes
    )
    assert notes[-1] == "† GK on REDDIT-BINARY: the value repeats that of IMDB-BINARY; its source has 77.34."
    assert "65.87 ± 0.98†" in markdown(found)
    slips = [each.as_dict() for each in found if "paper_slip" in each.as_dict()]
    assert [(entry["row"], entry["dataset"]) for entry in slips] == [("GK", "REDDIT-BINARY")]


def test_a_value_that_no_test_data_selected_stands_beside_our_held_out_accuracy(tmp_path: Path) -> None:
    results = ResultsStore(tmp_path)
    made = record(0, "held-out", "MUTAG")
    results.add(replace(made, key=RecordKey("MUTAG", "wl", "held-out", 0)))
    cells = choose_cells(["table1"], rows=["WL"], datasets=["MUTAG"])
    empty = MeasuredLedgers(ResultsStore(tmp_path / "none"), 1)
    (found,) = cell_results(cells, empty, compared=MeasuredLedgers(results, 1))
    assert (found.cell.criterion, found.cell.paper is not None) == ("held-out", True)
    assert found.difference is not None
