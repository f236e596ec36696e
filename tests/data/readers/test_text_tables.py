"""CSV and Parquet tables of molecules: delimiters, byte-order marks, lines in messages, split and id columns."""

from __future__ import annotations

import pytest

from graphcaps.data.readers.molecules import read_molecule_table
from graphcaps.data.readers.text_tables import open_table
from graphcaps.errors import DataError, MissingExtraError

pytest.importorskip("rdkit.Chem")
TEXT = "name,smiles,active,part\nethanol,CCO,no,train\nphenol,Oc1ccccc1,yes,test\n"


@pytest.fixture
def write(tmp_path):
    def make(text, name="own.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return make


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("first", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_delimiters_and_line_ends(write, mark, first, end):
    read = read_molecule_table(
        write(first + TEXT.replace(",", mark).replace("\n", end)), label="active", split="part", id="name"
    )
    assert read.store.class_names == ("no", "yes")
    assert read.store.sizes.tolist() == [3, 7]
    assert (read.store.name, read.metadata.ids, read.metadata.split) == (
        "own",
        ("ethanol", "phenol"),
        ("train", "test"),
    )
    assert read.store.smiles == ("CCO", "Oc1ccccc1")


def test_case_of_column_names_is_ignored(write):
    read = read_molecule_table(write("SMILES,Active\nCC,1\nCO,0\n"), label="active")
    assert (read.store.y.tolist(), read.metadata.ids, read.metadata.split) == ([1, 0], ("2", "3"), None)
    assert read_molecule_table(write("smiles\nCC\n")).store.y is None


def test_a_complete_id_column_is_used(write):
    assert read_molecule_table(write("ID,smiles\nM1,CC\nM2,CO\n")).metadata.ids == ("M1", "M2")
    assert read_molecule_table(write("id,smiles\nM1,CC\n,CO\n")).metadata.ids == ("2", "3")
    assert read_molecule_table(write("id,smiles\nM1,CC\nM1,CO\n")).metadata.ids == ("2", "3")
    assert read_molecule_table(write("id,smiles,other\nM1,CC,x\n"), id="other").metadata.ids == ("x",)


def test_quoted_entries_and_empty_lines_keep_their_lines(write):
    path = write('smiles,note,y\nCC,"two\nlines, with ""quotes""",a\n\nC(,,b\n')
    assert open_table(path).lines == (2, 5)
    with pytest.raises(DataError, match=r"own.csv, line 5: expected a molecule in SMILES, found 'C\('"):
        read_molecule_table(path, label="y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "own.csv, line 1: expected the column names, found an empty file."),
        ("smiles,active\n", "own.csv: expected at least one row below the column names, found none."),
        (
            "smile,active\nC,1\n",
            "own.csv, line 1: expected a column 'smiles', found the columns 'smile', 'active'.",
        ),
        (
            "smiles,act\nC,1\n",
            "own.csv, line 1: expected a column 'active', found the columns 'smiles', 'act'.",
        ),
        (
            "smiles,active\nC,1\nCC\n",
            "own.csv, line 3: expected 2 entries, as in the first line, found 1 entry.",
        ),
        (
            "smiles,active\nC,1\nCC,\n",
            "own.csv, line 3: expected a label in column 'active', found an empty entry.",
        ),
        ("smiles,smiles\nC,1\n", "own.csv, line 1: expected distinct column names, found 'smiles' twice."),
        (b"smiles,active\nC,\xff\n", "own.csv, line 2: expected text in UTF-8, found other bytes."),
        (b"PK\0\0", "own.csv: expected a table of text, found binary data."),
        (
            'smiles,active\n"C,1\n',
            "own.csv, line 2: expected a row of a CSV file, found 'unexpected end of data'.",
        ),
    ],
)
def test_errors_name_file_and_line(write, text, message):
    with pytest.raises(DataError) as caught:
        read_molecule_table(path := write(text), label="active")
    assert str(caught.value).startswith(f"{path.parent}/{message}")


def test_skipped_rows_are_noted_and_the_others_keep_their_columns(write):
    path = write("smiles,y,part\nC(,a,train\nCO,b,test\nCC,a,train\n")
    rows = read_molecule_table(path, label="y", split="part", bad="skip").metadata
    assert (rows.ids, rows.split) == (("3", "4"), ("test", "train"))
    assert rows.all_notes == ("1 row holds no valid molecule and was left out: line 2.",)


def test_parquet_entries_that_python_cannot_hold_are_refused(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    binary = arrow.array([b"CC", b"C\xcf"], arrow.binary())
    text = arrow.StringArray.from_buffers(len(binary), *binary.buffers()[1:])  # not checked to be UTF-8
    for column in (text, arrow.array([0, 2**60], arrow.timestamp("ms"))):
        parquet.write_table(arrow.table({"smiles": column}), tmp_path / "own.parquet")
        with pytest.raises(DataError, match=r"own.parquet: expected entries that can be read, found '.+'\."):
            open_table(tmp_path / "own.parquet")


def test_parquet(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "own.parquet"
    parquet.write_table(arrow.table({"smiles": ["CC", "CO"], "active": [1.0, 0.0]}), path)
    assert read_molecule_table(path, label="active").store.class_names == ("0", "1")
    parquet.write_table(arrow.table({"smiles": ["CC", "CO"], "active": [1.0, None]}), path)
    with pytest.raises(DataError, match=r"own.parquet, line 2: expected a label in column 'active'"):
        read_molecule_table(path, label="active")
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="a Parquet file"):
        read_molecule_table(path)


def test_without_pyarrow_the_message_has_the_install_command(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"Parquet files needs pyarrow: .*'graphcaps\[tables\]'"):
        read_molecule_table(tmp_path / "own.parquet")


@pytest.mark.parametrize("missing", ["nan", "NaN", "<NA>"])
def test_a_missing_class_is_rejected(tmp_path, missing):
    path = tmp_path / "m.csv"
    path.write_text(f"smiles,y\nCCO,1\nCCN,{missing}\n")
    with pytest.raises(DataError, match=rf"m.csv, line 3: expected a label in column 'y', found '{missing}'"):
        read_molecule_table(path, label="y")
    path.write_text("smiles,y\nCCO,Nan Goldin\nCCN,süß 1\n")
    assert read_molecule_table(path, label="y").store.class_names == ("Nan Goldin", "süß 1")
