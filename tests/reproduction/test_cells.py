"""Cells of the tables: every published result, each training once, unknown names refused."""

from __future__ import annotations

import pytest

from graphcaps.errors import ArgumentError
from graphcaps.reproduction.cells import ABLATIONS, TABLES, VARIANTS, choose_cells, find_variant, trainings
from graphcaps.reproduction.paper_systems import find_system
from graphcaps.reproduction.published import paper_datasets, published, published_hgcn, systems


def test_every_published_accuracy_is_a_cell() -> None:
    cells = {(cell.table, cell.row, cell.dataset, cell.criterion): cell for cell in choose_cells(["all"])}
    count = 0
    for number, table in enumerate(TABLES, 1):
        rule = "C*" if number > 4 else "C"
        for system in systems(number):
            row = "HGCN" if system == "Ours" else system
            for dataset in paper_datasets():
                result = published(number, system, dataset)
                if result is not None:
                    known = find_system(system)
                    criterion = "held-out" if known is not None and known.criterion == "held-out" else rule
                    assert cells[table, row, dataset, criterion].paper == result
                    count += 1
    assert count > 200


def test_every_row_is_a_variant_or_another_system() -> None:
    for cell in choose_cells(["all"]):
        variant = find_variant(cell.row)
        assert cell.variant == variant
        assert (cell.system is None) == (variant is not None)
        if cell.criterion == "held-out" and cell.paper is not None:
            assert cell.system is not None
            assert cell.system.selection in ("validation", "last epoch", "SVM")


def test_tables_5_and_6_hold_all_data_sets_of_the_run_log() -> None:
    cells = choose_cells(["table5", "table6"], rows=["HGCN"])
    assert {cell.dataset for cell in cells} == set(paper_datasets())
    assert all(cell.paper == published_hgcn(cell.dataset, "C*") for cell in cells)


def test_tables_3_and_4_hold_the_ablations_under_both_rules() -> None:
    cells = choose_cells(["table3", "table4"])
    for dataset in paper_datasets():
        rows = {(cell.row, cell.criterion) for cell in cells if cell.dataset == dataset}
        expected = {"A1", "A2", "A3", "HGCN", "K=2", "K=8", "R=1", "R=2", "R=4", "R=5"}
        assert {row for row, rule in rows if rule == "C"} == expected
        assert {row for row, rule in rows if rule == "held-out"} == {*ABLATIONS, "HGCN"}


def test_a_training_serves_several_cells() -> None:
    """C of table 1 and C* of table 5 come from one training."""
    needed = trainings(
        choose_cells(["table1", "table5"], rows=["HGCN"], datasets=["DD"], criteria=["C", "C*"])
    )
    assert [(each.dataset, each.variant.name, each.protocol) for each in needed] == [("DD", "hgcn", "paper")]


def test_the_longest_training_comes_first() -> None:
    needed = trainings(choose_cells(["table1", "table2"], rows=["HGCN"], criteria=["C"]))
    assert {each.dataset for each in needed[:3]} <= {"REDDIT-BINARY", "COLLAB", "DD", "NCI1", "NCI109"}
    assert needed[-1].dataset in ("IMDB-BINARY", "MUTAG", "PTC_MR")


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_variant_changes_only_its_arguments(variant) -> None:  # type: ignore[no-untyped-def]
    plain, changed = find_variant("hgcn").config("MUTAG"), variant.config("MUTAG", epochs=7, precision="tf32")  # type: ignore[union-attr]
    assert changed.model_arguments == plain.model_arguments | variant.changes
    assert (changed.training.epochs, changed.training.precision) == (7, "tf32")
    assert variant.formulation == changed.model_arguments["formulation"]


def test_names_match_regardless_of_case_and_punctuation() -> None:
    (cell,) = choose_cells(["table3"], rows=["k=2"], datasets=["ptc-mr"], criteria=["c"])
    assert (cell.row, cell.dataset, cell.criterion) == ("K=2", "PTC_MR", "C")


@pytest.mark.parametrize(
    ("table", "chosen", "message"),
    [
        ("table7", {}, "be one of table1"),
        ("table1", {"rows": ["HGNC"]}, "HGCN"),
        ("table1", {"datasets": ["MUTAGG"]}, "MUTAG"),
        ("table1", {"criteria": ["D"]}, "held-out"),
        ("table1", {"datasets": ["COLLAB"]}, "none of its cells"),
    ],
)
def test_unknown_names_are_refused(table: str, chosen: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        choose_cells([table], **chosen)
