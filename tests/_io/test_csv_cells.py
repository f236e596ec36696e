"""Text that spreadsheets could read as formulas."""

from __future__ import annotations

import csv
import io

import pytest

from graphcaps._io.csv_cells import csv_text, escape_formula


@pytest.mark.parametrize(
    "text", ['=HYPERLINK("x")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1"]
)
def test_a_formula_gets_an_apostrophe(text: str) -> None:
    assert escape_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "-1", "+1", "-0.5", "-1e-05", "+.5", "CCO", "a=1", "'=1", "[Na+]"])
def test_numbers_and_other_text_stay(text: str) -> None:
    assert escape_formula(text) == text


def test_rows_as_csv() -> None:
    rows = [["id", "=class"], ["=1+1", -1.5]]
    assert list(csv.reader(io.StringIO(csv_text(rows)))) == [["id", "'=class"], ["'=1+1", "-1.5"]]
    assert list(csv.reader(io.StringIO(csv_text(rows, raw_text=True)))) == [
        ["id", "=class"],
        ["=1+1", "-1.5"],
    ]
