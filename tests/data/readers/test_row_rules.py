"""Rows of tables of molecules: missing labels, several fragments and repeated molecules."""

from __future__ import annotations

from pathlib import Path

import pytest

import graphcaps
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.readers.graph_metadata import ReadingWarning
from graphcaps.data.readers.molecules import from_smiles
from graphcaps.data.readers.row_rules import (
    RepeatedMolecules,
    describe_copies_across,
    describe_copies_in_folds,
    describe_fragments,
    describe_parents,
    find_repeated,
    largest_fragment,
    select_duplicates,
)
from graphcaps.errors import ArgumentError, DataError

pytest.importorskip("rdkit", reason="molecules need the extra chem")

ROWS = (
    "CCO,1",
    "CC(=O)[O-].[Na+],0",
    "CCN,",
    "OCC,1.0",  # the first molecule again
    "c1ccccc1,0",
    "CCC,NA",
    "C1=CC=CC=C1,1",  # benzene again, with another label
    "CC(=O)[O-],0",
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mols.csv"
    path.write_text("smiles,active\n" + "\n".join(ROWS) + "\n")
    return path


def test_a_missing_label_is_refused_with_line_column_and_the_way_out(table):
    with pytest.raises(DataError) as caught:
        open_dataset(table, label="active")
    assert str(caught.value) == (
        f"{table}, line 4: expected a label in column 'active', found an empty entry (2 such rows). "
        "Add the label, or leave such rows out with bad='skip'."
    )
    table.write_text("smiles,active\nCCO,1\nCCN,NaN\n")
    with pytest.raises(DataError, match=r"line 3: expected a label in column 'active', found 'NaN'\. Add"):
        open_dataset(table, label="active")


def test_rows_without_a_label_are_left_out_and_counted(table):
    loaded = open_dataset(table, label="active", bad="skip")
    assert len(loaded.store) == 6
    assert loaded.store.class_names == ("0", "1")
    assert loaded.store.y.tolist() == [1, 0, 1, 0, 1, 0]
    assert loaded.metadata.ids == ("2", "3", "5", "6", "8", "9")
    assert [(row.line, row.kind) for row in loaded.metadata.skipped] == [(4, "label"), (7, "label")]
    assert loaded.metadata.all_notes[0] == "2 rows without a label were left out: lines 4, 7."


def test_missing_labels_and_invalid_molecules_are_counted_apart(table):
    table.write_text("smiles,active\nC1CC,\nC1CC,1\nCCO,1\nCCN,0\n")
    loaded = open_dataset(table, label="active", bad="skip")
    assert loaded.metadata.row_indices == (2, 3)
    assert loaded.metadata.all_notes == (
        "1 row holds no valid molecule and was left out: line 3.",
        "1 row without a label was left out: line 2.",
    )


def test_no_label_in_any_row(table):
    table.write_text("smiles,active\nCCO,\nCCN,NA\n")
    with pytest.raises(DataError, match="expected a label in column 'active', found none in any row"):
        open_dataset(table, label="active", bad="skip")


def test_labels_that_are_not_needed_may_be_missing(table):
    loaded = open_dataset(table, label="active", unlabelled="keep")
    assert loaded.store.y is None
    assert loaded.metadata.classes == ("1", "0", "", "1", "0", "", "1", "0")
    table.write_text("smiles,active\nCCO,1\nCCN,0\n")
    assert open_dataset(table, label="active", unlabelled="keep").store.y.tolist() == [1, 0]


def test_missing_labels_in_parquet(tmp_path):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(
        {"smiles": ["CCO", "CCN", "CCC", "CCS"], "active": [1.0, None, 0.0, float("nan")]}
    )
    frame.to_parquet(tmp_path / "mols.parquet")
    with pytest.raises(DataError, match=r"line 2: expected a label in column 'active', found an empty entry"):
        open_dataset(tmp_path / "mols.parquet", label="active")
    loaded = open_dataset(tmp_path / "mols.parquet", label="active", bad="skip")
    assert (loaded.store.class_names, loaded.store.y.tolist()) == (("0", "1"), [1, 0])


def test_fragments_are_counted_and_recorded(table):
    loaded = open_dataset(table, label="active", bad="skip")
    sentence = "1 of 6 molecules has several fragments (salts, mixtures)"
    assert f"{sentence}; --fragments largest keeps the largest of each." in loaded.metadata.row_notes
    assert loaded.store.fragments == "all"
    largest = open_dataset(table, label="active", bad="skip", fragments="largest")
    assert f"{sentence}; the largest of each was kept." in largest.metadata.row_notes
    assert largest.store.fragments == "largest"
    assert largest.store.smiles[1] == "CC(=O)[O-]"
    assert largest.store.num_nodes == loaded.store.num_nodes - 1
    assert describe_fragments(0, 6, "all") == ""


def test_repeated_molecules_are_counted(table):
    loaded = open_dataset(table, label="active", bad="skip")
    assert loaded.metadata.row_notes[-1] == (
        "2 molecules are in more than one row (2 further rows), 1 of them with different labels; all rows are kept. "
        "--duplicates first keeps one row of each, --duplicates drop-contradicting leaves those out."
    )
    # Without the sodium, the third salt is the last molecule again.
    largest = open_dataset(table, label="active", bad="skip", fragments="largest")
    assert largest.metadata.row_notes[-1].startswith("3 molecules are in more than one row (3 further rows)")


@pytest.mark.parametrize(
    ("policy", "rows", "sentence"),
    [
        ("keep", (0, 1, 3, 4, 6, 7), "all rows are kept."),
        ("first", (0, 1, 4, 7), "1 of them with different labels; the first row of each was kept."),
        (
            "drop-contradicting",
            (0, 1, 3, 7),
            "1 of them with different labels; the 2 rows of these were left out.",
        ),
    ],
)
def test_repeated_molecules_can_be_left_out(table, policy, rows, sentence):
    loaded = open_dataset(table, label="active", bad="skip", duplicates=policy)
    assert loaded.metadata.row_indices == rows
    assert sentence in loaded.metadata.row_notes[-1]
    assert len(loaded.store) == len(loaded.metadata.ids) == len(rows)
    assert len(loaded.metadata.skipped) == len(loaded.metadata.skipped_ids) == len(ROWS) - len(rows)
    kinds = [row.kind for row in loaded.metadata.skipped]
    assert kinds.count("duplicate") == 6 - len(rows)


def test_a_class_without_rows_is_no_class(table):
    table.write_text("smiles,active\nCCO,1\nOCC,2\nCCN,0\nCCC,1\n")
    loaded = open_dataset(table, label="active", duplicates="drop-contradicting")
    assert (loaded.store.class_names, loaded.store.y.tolist()) == (("0", "1"), [0, 1])
    table.write_text("smiles,active\nCCO,1\nOCC,2\n")
    with pytest.raises(DataError, match="expected a molecule without contradicting labels, found none"):
        open_dataset(table, label="active", duplicates="drop-contradicting")


def test_an_unknown_policy_is_refused(table):
    with pytest.raises(
        ArgumentError, match="'duplicates' must be 'keep' or 'drop-contradicting' or 'first', got 'last'"
    ):
        open_dataset(table, duplicates="last")


def test_copies_are_counted_without_labels():
    assert find_repeated(["C", "C", "N", "C"]) == RepeatedMolecules(1, 2)
    assert select_duplicates(["C", "C", "N", "C"], None, "first") == [0, 2]
    assert select_duplicates(["C", "C", "N", "C"], None, "drop-contradicting") == [0, 1, 2, 3]
    assert RepeatedMolecules(1, 2).describe("keep") == (
        "1 molecule is in more than one row (2 further rows); all rows are kept. "
        "--duplicates first keeps one row of each."
    )


def test_copies_in_several_parts_and_folds():
    smiles, labels = ["C", "N", "C", "O", "N", "S"], [0, 0, 0, 0, 1, 1]
    parts = [[0, 1, 3], [5], [2, 4]]
    equal = (
        "1 molecule is in more than one part of the split with one label, so that results on validation and test "
        "parts are too good; --duplicates first keeps one row of each."
    )
    different = (
        "1 molecule is in more than one part of the split with different labels, so that a model that has learned a "
        "row is wrong on another; --duplicates drop-contradicting leaves these rows out."
    )
    assert describe_copies_across(smiles, labels, parts) == f"{equal} {different}"
    assert describe_copies_across(smiles, [0] * 6, parts) == equal.replace("1 molecule is", "2 molecules are")
    assert describe_copies_across(smiles, labels, [[0, 2], [1, 4], [3, 5]]) == ""
    assert describe_copies_across(None, None, [[0], [1]]) == ""
    assert describe_copies_in_folds(smiles) == (
        "Copies of 2 molecules may be in different folds; --groups copies keeps them in one."
    )
    assert describe_copies_in_folds(["C", "N"]) == describe_copies_in_folds(None) == ""


def test_load_dataset_warns_once_of_each_note(table):
    with pytest.warns(ReadingWarning) as caught:
        graphcaps.load_dataset(table, label="active", bad="skip")
    assert [str(warning.message) for warning in caught] == [
        "load_dataset: 2 rows without a label were left out: lines 4, 7.",
        "load_dataset: 1 of 6 molecules has several fragments (salts, mixtures); fragments='largest' keeps the largest "
        "of each.",
        "load_dataset: 2 molecules are in more than one row (2 further rows), 1 of them with different labels; all "
        "rows are kept. duplicates='first' keeps one row of each, duplicates='drop-contradicting' leaves those out.",
    ]
    assert {Path(warning.filename).name for warning in caught} == {Path(__file__).name}


def test_salts_whose_parent_has_another_label_are_counted() -> None:
    smiles = ["CCN", "CCN.Cl", "CCCN", "CCCN.[Cl-].[Na+]", "CCO"]
    sentence = describe_parents(smiles, ["a", "b", "a", "a", "b"])
    assert sentence.startswith(
        "1 row of several fragments (salts, mixtures): other rows have the same largest"
    )
    assert describe_parents(smiles, ["a", "a", "a", "a", "b"]) == ""
    assert describe_parents(smiles, None) == ""


def test_a_table_with_such_salts_is_read_with_the_note(tmp_path: Path) -> None:
    (tmp_path / "salts.csv").write_text("smiles,label\nCCN,a\nCCN.Cl,b\nCCO,b\n")
    notes = open_dataset(tmp_path / "salts.csv", label="label").all_notes
    assert any("other rows have the same largest fragment with another label" in note for note in notes)


@pytest.mark.parametrize(
    ("smiles", "parent"),
    [
        ("CCN.Cl", "CCN"),
        ("Cl.[2H]O[2H]", "Cl"),
        ("CC.ClBr", "CC"),
        ("[Na+].O=C([O-])c1ccccc1", "O=C([O-])c1ccccc1"),
    ],
)
def test_the_largest_fragment_is_the_one_that_is_kept(smiles: str, parent: str) -> None:
    assert largest_fragment(smiles) == parent
    kept = from_smiles([smiles], fragments="largest").smiles
    assert kept == from_smiles([parent]).smiles


def test_invalid_molecules_are_counted_in_the_error() -> None:
    with pytest.raises(DataError, match=r"\(2 of 4 rows hold no valid molecule\)") as caught:
        from_smiles(["C", "C(", "CC", "x"])
    assert caught.value.line == 2
    with pytest.raises(DataError) as single:
        from_smiles(["C", "C("])
    assert "rows" not in str(single.value).partition("Correct")[0]
