"""Tables of a comparison: order, upper bounds, significance, failures, Markdown and LaTeX."""

from __future__ import annotations

from dataclasses import replace

from graphcaps.comparison.comparison import Comparison, ComparisonCell
from graphcaps.comparison.comparison_tables import (
    dataset_table,
    explanations,
    latex,
    learning_warnings,
    markdown,
    matrix_tables,
    rank_sentence,
    record_notes,
)
from graphcaps.evaluation import Ledger
from tests.comparison.test_comparison import GIN, HGCN, MAJORITY, comparison, made
from tests.evaluation.records import measured_record, record


def test_rows_are_sorted_by_held_out_accuracy_and_tested() -> None:
    table = dataset_table(
        comparison({("A", "hgcn"): HGCN, ("A", "gin"): GIN, ("A", "majority"): MAJORITY}), "A"
    )
    assert table.head == ("model", "held-out", "± folds", "twin-free", "vs hgcn", "p", "seconds", "memory GB")
    assert [row[0] for row in table.rows] == ["gin", "hgcn", "majority"]
    assert table.rows[0][1:4] == ("90.00", "4.08", "–")
    assert table.rows[0][4] == "+11.25*"
    assert table.rows[1][4:6] == ("–", "–")
    assert table.rows[2][4] == "-28.75*"


def test_both_protocols_seeds_and_memory_have_columns() -> None:
    held_out = replace(measured_record(0), metric="loss", class_weight=None, curves=record(0).curves)
    second = replace(held_out, key=replace(held_out.key, seed=1))
    ledger = Ledger((held_out, second, record(0, "paper")))
    found = Comparison([ComparisonCell("MUTAG", "hgcn", ledger)])
    table = dataset_table(found, "MUTAG")
    assert table.head[1:5] == ("held-out", "± folds", "± seeds", "twin-free")
    assert any(
        "over all folds together, since one may have few such graphs, where held-out is the mean over folds."
        in each
        for each in explanations(found)
    )
    assert {"C, upper bound", "C*, upper bound"} <= {*table.head}
    assert table.rows[0][-1] == "1.00"
    assert ledger.twin_free is not None
    assert table.rows[0][4] == f"{ledger.twin_free.mean:.2f}"
    assert any("upper bounds" in sentence for sentence in explanations(found))
    text = markdown(found)
    assert "C\\*, upper bound" in text


def test_failures_are_listed_with_their_reason() -> None:
    cells = [
        ComparisonCell("A_1", "hgcn", Ledger((made("A_1", "hgcn", HGCN),))),
        ComparisonCell("A_1", "wl", None, "too large"),
        ComparisonCell("B", "hgcn", Ledger((made("B", "hgcn", HGCN),))),
    ]
    found = Comparison(cells)
    assert dataset_table(found, "A_1").failures == (("wl", "too large"),)
    (matrix,) = matrix_tables(found)
    assert matrix.rows == (("hgcn", "78.75", "78.75"), ("wl", "failed", "–"))
    assert "wl: too large" in markdown(found)
    tex = latex(found)
    assert r"\caption{A\_1}" in tex
    assert r"wl & \multicolumn{" in tex
    assert tex.count(r"\begin{table}") == 3


def test_ranks_are_said_with_the_models_left_out() -> None:
    cells = {(name, model): right for name in "AB" for model, right in (("hgcn", HGCN), ("gin", GIN))}
    sentence = rank_sentence(comparison(cells | {("A", "majority"): MAJORITY}))
    assert sentence.startswith("Mean ranks over 2 data sets: gin 1.00, hgcn 2.00.")
    assert "Left out, since they lack a data set: majority." in sentence
    assert rank_sentence(comparison({("A", "hgcn"): HGCN})) == ""


def test_an_overview_of_several_data_sets_has_ranks_twin_free_accuracies_and_c() -> None:
    measured = replace(measured_record(0), metric="loss", class_weight=None, curves=record(0).curves)
    cells = []
    for dataset in "AB":
        records = [
            replace(each, key=replace(each.key, dataset=dataset)) for each in (measured, record(0, "paper"))
        ]
        ledger = Ledger(tuple(records))
        cells.append(ComparisonCell(dataset, "hgcn", ledger))
        cells.append(ComparisonCell(dataset, "gin", Ledger((made(dataset, "gin", GIN[:3]),))))
    held_out, twin_free, upper = matrix_tables(Comparison(cells))
    assert held_out.head == ("model", "A", "B", "mean rank")
    assert [row[0] for row in held_out.rows] == [row[0] for row in twin_free.rows] == ["gin", "hgcn"]
    assert ledger.twin_free is not None
    assert ledger.C is not None
    assert twin_free.rows[1] == ("hgcn", *[f"{ledger.twin_free.mean:.2f}"] * 2)
    assert twin_free.rows[0] == ("gin", "–", "–")
    assert upper.rows[1] == ("hgcn", *[f"{ledger.C.mean:.2f}"] * 2)


def test_models_that_have_hardly_learned_are_named_above_the_tables_and_marked() -> None:
    warning = "A: hgcn has hardly learned."
    cells = [
        ComparisonCell(
            name, model, Ledger((made(name, model, right),)), warning=warning if name in warned else ""
        )
        for model, right, warned in (("hgcn", HGCN, "ABCD"), ("gin", GIN, "A"), ("wl", MAJORITY, ""))
        for name in "ABCD"
    ]
    found = Comparison(cells)
    assert learning_warnings(found) == [warning] * 5
    assert record_notes(found) == ["A note."]
    assert learning_warnings(found) == [warning] * 5
    assert dict(dataset_table(found, "A").marks) == {"hgcn": "hardly learned", "gin": "hardly learned"}
    assert dict(dataset_table(found, "B").marks) == {"hgcn": "hardly learned"}
    marks = {"hgcn": "hardly learned on 4 data sets", "gin": "hardly learned on A"}
    assert dict(matrix_tables(found)[0].marks) == marks
    paragraphs = markdown(Comparison(cells[:1] + cells[8:9])).split("\n\n")
    assert paragraphs[0] == f"**Caution.** {warning}"
    assert paragraphs[1] == "### A"
    assert "| hgcn (hardly learned) | 78.75 |" in paragraphs[2]
    assert warning not in "".join(paragraphs[1:])
    assert "hgcn (hardly learned) & 78.75" in latex(found)


def test_notes_of_several_models_are_one_sentence() -> None:
    sentence = "Labels are not used by {}, and not by wl-oa."
    records = [
        replace(made("A", model, HGCN), notes=(sentence.format(model), "Seen by all."))
        for model in ("wl", "gk")
    ]
    found = Comparison([ComparisonCell("A", each.key.variant, Ledger((each,))) for each in records])
    assert record_notes(found) == [sentence.format("wl, gk"), "Seen by all."]
    assert sentence.format("wl, gk") in markdown(found)
