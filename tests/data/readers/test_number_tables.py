"""Tables of numbers: the fast parser against a line-by-line reference, and a message for every error."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphcaps.data.readers import number_tables
from graphcaps.data.readers.number_tables import LineReader, read_integers, read_numbers
from graphcaps.errors import DataError

INT64 = st.integers(-(2**63), 2**63 - 1)


def integers(content: bytes, columns: int | None = None, **options: bool) -> list[list[int]]:
    return read_integers(content, "T.txt", "numbers", columns=columns, **options).tolist()


def numbers(content: bytes) -> list[list[float]]:
    return read_numbers(content, "T.txt", "numbers").tolist()


# ---------------------------------------------------------------------- layouts
@pytest.mark.parametrize(
    "content",
    [
        b"1, 2\n-3, 40\n",
        b"1,2\n-3,40\n",
        b"1 2\n-3 40\n",
        b"1\t2\n-3\t40\n",
        b"1, 2\r\n-3, 40\r\n",
        b"1, 2\n-3, 40",
        b"1, 2\n-3, 40\r",
        b"1, 2\n-3, 40\n\n \n\r\n",
        b"\xef\xbb\xbf1, 2\n-3, 40\n",
        b"  1 ,\t2 \n -3   40\t\n",
        b"+1, 002\n-03, +40\n",
    ],
)
def test_every_layout_gives_the_same_table(content):
    assert integers(content) == [[1, 2], [-3, 40]]
    assert numbers(content) == [[1.0, 2.0], [-3.0, 40.0]]


def test_common_layouts_take_the_fast_path():
    for content in (b"1, 2\n-3, 40\n", b"1,2\r\n-3,40\r\n", b"1 2\n3\t4\n"):
        assert number_tables._fast_integers(content, 2) is not None
    assert number_tables._fast_integers(b"1\n2\n", 1).dtype == np.int32
    assert number_tables._fast_integers(b"1\n999999999999999999\n", 1).tolist() == [[1], [999999999999999999]]
    assert number_tables._fast_numbers(b" 1.5, -2e3\n 0.25, 4\n", 2).tolist() == [[1.5, -2000.0], [0.25, 4.0]]


def test_the_full_range_of_int64_is_read():
    assert integers(b"9223372036854775807\n-9223372036854775808\n") == [[2**63 - 1], [-(2**63)]]
    assert integers(b"0" * 6000 + b"7\n") == [[7]]


def test_labels_may_be_written_as_integral_floats():
    assert integers(b"1.0\n-2.\n3e2\n4\n", integral_floats=True) == [[1], [-2], [300], [4]]
    with pytest.raises(DataError, match=r"line 2: expected numbers, found '1\.5'\."):
        integers(b"1.0\n1.5\n", integral_floats=True)
    with pytest.raises(DataError, match=r"line 1: expected numbers, found '1\.0'\."):
        integers(b"1.0\n")


# ---------------------------------------------------------------------- references
@st.composite
def written_tables(draw: st.DrawFn) -> tuple[list[list[int]], bytes]:
    columns = draw(st.integers(1, 4))
    short = st.integers(-(10**6), 10**6)
    rows = st.lists(
        st.lists(draw(st.sampled_from([short, INT64])), min_size=columns, max_size=columns), min_size=1
    )
    table = draw(rows)
    separator = draw(st.sampled_from([",", ", ", " ", "\t", " , "]))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    end = draw(st.sampled_from(["", newline, newline * 3]))
    return table, (newline.join(separator.join(map(str, row)) for row in table) + end).encode()


@given(written_tables(), st.integers(1, 50))
def test_integers_equal_a_line_by_line_reference_for_any_chunks(written, size):
    table, content = written
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    assert read_integers(pieces, "T.txt", "numbers").tolist() == table
    assert integers(content) == table


@given(
    st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1)
)
def test_numbers_equal_what_was_written(table):
    assert numbers("\n".join(", ".join(map(repr, row)) for row in table).encode()) == table
    assert numbers("\n".join("  ".join(map(repr, row)) for row in table).encode()) == table


def scraps(*parts: str) -> st.SearchStrategy[str]:
    """Text that is nearly a table."""
    return st.lists(st.sampled_from(parts), max_size=8).map("".join)


def slow(block: bytes, columns: int, kind: str) -> list | None:
    try:
        return LineReader("T.txt", "numbers", columns, kind=kind).read(block).tolist()
    except DataError:
        return None


@settings(max_examples=100)
@given(
    scraps("1", "20", "-3", ",", ", ", " ", "\t", "\n", "\r\n", "\r", "-", "+", ".", "x"), st.integers(1, 3)
)
@example("5-6", 1)
@example("5-6", 2)
@example("1,,2", 2)
@example("1,\n2", 2)
@example(",1 2", 2)
@example("1 2,", 2)
@example("1\n\n2", 1)
@example("-1\n--2", 1)
def test_the_fast_integer_path_accepts_only_what_the_reference_accepts(line, columns):
    block = line.encode() + b"\n"
    fast = number_tables._fast_integers(block, columns)
    if fast is not None:
        assert fast.tolist() == slow(block, columns, "integer")


@settings(max_examples=100)
@given(
    scraps("1", "2.5", "-3", ",", ", ", " ", "\t", "\n", "\r\n", "\r", "-", ".", "e", "x"), st.integers(1, 3)
)
@example("1\n\n2", 1)
@example("1\r2", 1)
@example("1\r ", 1)
@example("1,\n,2", 2)
@example("1e999", 1)
@example("\n\n", 1)
def test_the_fast_number_path_accepts_only_what_the_reference_accepts(line, columns):
    block = line.encode() + b"\n"
    fast = number_tables._fast_numbers(block, columns)
    if fast is not None:
        assert fast.tolist() == slow(block, columns, "number")


def table_or_error(read: Callable[..., np.ndarray], content: bytes) -> np.ndarray | DataError:
    try:
        return read(content, "T.txt", "numbers")
    except DataError as error:
        return error


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_give_a_data_error(content):
    for read in (read_integers, read_numbers):
        outcome = table_or_error(read, content)
        if isinstance(outcome, DataError):
            assert outcome.line is not None
            assert 1 <= outcome.line <= content.count(b"\n") + 1
        else:
            assert outcome.ndim == 2
            assert outcome.size


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"", 1, "an empty file"),
        (b"\n\n", 1, "an empty file"),
        (b"1, 2\n3\n", 2, "an incomplete row, '3'"),
        (b"1, 2\n3,\n", 2, "an incomplete row, '3,'"),
        (b"1, 2\n,3\n", 2, "an incomplete row, ',3'"),
        (b"1, 2\n3, 4\n5, 6, 7\n", 3, "3 numbers, '5, 6, 7'"),
        (b"1, 2\n\n3, 4\n", 2, "an empty line"),
        (b"\n1, 2\n", 1, "an empty line"),
        (b"1, 2\n\n\n3, 4\n", 2, "an empty line"),
        (b"1, 2\n3, x4\n", 2, "'x4'"),
        (b"1, 2\n3, 1_0\n", 2, "'1_0'"),
        (b"1, 2\n3, --4\n", 2, "'--4'"),
        (b"1, 2\n3, 4\0\n", 2, "a byte that is not text (0x00)"),
        (b"1, 2\n\xff\xfe, 4\n", 2, "a byte that is not text (0xff)"),
        (b"1, 2\r3, 4\n", 1, "a byte that is not text (0x0d)"),
        (b"1, 2\n3, nan\n", 2, "'nan', which is not a finite number"),
        (b"1, 2\n-Infinity, 3\n", 2, "'-Infinity', which is not a finite number"),
    ],
)
def test_errors_name_the_line(content, line, problem):
    for read in (integers, numbers):
        with pytest.raises(DataError) as caught:
            read(content)
        assert str(caught.value) == f"T.txt, line {line}: expected numbers, found {problem}."
        assert caught.value.line == line


@pytest.mark.parametrize("number", [b"9223372036854775808", b"-9223372036854775809", b"9" * 5000])
def test_integers_beyond_int64_are_too_large(number):
    with pytest.raises(
        DataError, match=r"T\.txt, line 2: expected numbers, found a number that is too large, '-?9"
    ):
        integers(b"1\n" + number + b"\n")


def test_numbers_beyond_float64_are_too_large():
    with pytest.raises(
        DataError, match="line 2: expected numbers, found a number that is too large, '1e999'"
    ):
        numbers(b"1.5\n1e999\n")
    with pytest.raises(DataError, match="line 1: expected numbers, found a number that is too large, '1e30'"):
        integers(b"1e30\n", integral_floats=True)
    assert math.isclose(numbers(b"1.7e308\n")[0][0], 1.7e308)


def test_a_given_number_of_columns_is_required_of_the_first_row():
    with pytest.raises(DataError, match=r"line 1: expected numbers, found an incomplete row, '1'\."):
        integers(b"1\n2\n", columns=2)


def test_lines_are_counted_across_blocks(monkeypatch):
    monkeypatch.setattr(number_tables, "BLOCK_BYTES", 64)
    good = b"".join(b"%d, %d\n" % (row, row + 1) for row in range(500))
    assert integers(good) == [[row, row + 1] for row in range(500)]
    for wrong, problem in ((b"7, y\n", "'y'"), (b"\n", "an empty line")):
        with pytest.raises(DataError, match=f"line 501: expected numbers, found {problem}"):
            integers(good + wrong + good)
    assert len(integers(good + b"\n" * 100)) == 500
    with pytest.raises(DataError, match="line 2: expected numbers, found an empty line"):
        read_integers([b"1\n\n", b"2\n"], "T.txt", "numbers")


def test_a_file_without_line_ends_is_not_collected_in_memory(monkeypatch):
    monkeypatch.setattr(number_tables, "MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(DataError, match="line 2: expected lines of numbers, found a line of more than 1 MB"):
        read_integers(iter([b"1\n"] + [b"1" * 4096] * 4096), "T.txt", "numbers")
