"""Invalid TU data sets: the message of each error, and any damage gives a message."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcaps.data.readers.tu import read_tu
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError, GraphcapsError

# Two graphs: a path of three nodes, and an edge.
GOOD = {
    "A": b"1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n",
    "graph_indicator": b"1\n1\n1\n2\n2\n",
    "graph_labels": b"1\n-1\n",
    "node_labels": b"0\n1\n0\n2\n2\n",
    "node_attributes": b"0.5, 1.0\n1.5, 2.0\n2.5, -3.0\n3.5, 4e2\n4.5, 5.0\n",
    "edge_labels": b"0\n0\n1\n1\n2\n2\n",
    "edge_attributes": b"0.1\n0.1\n0.2\n0.2\n0.3\n0.3\n",
}


def write(folder: Path, files: dict[str, bytes | None]) -> Path:
    folder.mkdir(exist_ok=True)
    for table, content in files.items():
        if content is not None:
            (folder / f"T_{table}.txt").write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("table", "content", "message"),
    [
        ("graph_indicator", None, ": file not found. Every TU data set has this file."),
        (
            "A",
            b"1, 2\n1, 4\n",
            ", line 2: expected two nodes of one graph, found node 1 of graph 1 and node 4 of graph 2.",
        ),
        ("A", b"1, 2\n0, 1\n", ", line 2: expected node ids from 1 to 5, found 0."),
        ("A", b"1, 2\n2, 1\n2, 6\n", ", line 3: expected node ids from 1 to 5, found 6."),
        ("A", b"1, 2\n2, -1\n", ", line 2: expected node ids from 1 to 5, found -1."),
        ("A", b"1, 2\n2, one\n", ", line 2: expected two node ids, found 'one'."),
        ("A", b"1, 2\n2, 1.0\n", ", line 2: expected two node ids, found '1.0'."),
        ("A", b"1, 2\n2,\n", ", line 2: expected two node ids, found an incomplete row, '2,'."),
        ("A", b"1\n2\n", ", line 1: expected two node ids, found an incomplete row, '1'."),
        ("A", b"1, 2, 3\n", ", line 1: expected two node ids, found 3 numbers, '1, 2, 3'."),
        ("A", b"", ", line 1: expected two node ids, found an empty file."),
        ("A", b"1, 2\n\x00\x8f\n", ", line 2: expected two node ids, found a byte that is not text (0x00)."),
        (
            "A",
            b"1, 2\n1, 99999999999999999999\n",
            ", line 2: expected two node ids, found a number that is too large, '99999999999999999999'.",
        ),
        ("A", b"1, 2\n1, 9999999999\n", ", line 2: expected node ids from 1 to 5, found 9999999999."),
        (
            "graph_indicator",
            b"1\n1\n2\n1\n2\n",
            ", line 4: expected graph 2 or a later one, found graph 1 (numbers must not decrease).",
        ),
        ("graph_indicator", b"0\n0\n0\n1\n1\n", ", line 1: expected graph numbers from 1, found graph 0."),
        ("graph_indicator", b"", ", line 1: expected one graph number, found an empty file."),
        ("graph_indicator", b"1\n1\n1\n2\n2.5\n", ", line 5: expected one graph number, found '2.5'."),
        ("graph_labels", b"1\n", ", line 2: expected 2 rows, one per graph, found 1."),
        ("graph_labels", b"1\nyes\n", ", line 2: expected one class, an integer, found 'yes'."),
        ("graph_labels", b"1\n0.5\n", ", line 2: expected one class, an integer, found '0.5'."),
        ("graph_labels", b"", ", line 1: expected one class, an integer, found an empty file."),
        ("node_labels", b"0\n1\n0\n2\n", ", line 5: expected 5 rows, one per node, found 4."),
        ("node_labels", b"0\n1\n0\n2\n2\n2\n", ", line 6: expected 5 rows, one per node, found 6."),
        (
            "node_labels",
            b"0\n1, 1\n0\n2\n2\n",
            ", line 2: expected integer labels, found 2 numbers, '1, 1'.",
        ),
        (
            "node_attributes",
            b"0.5\n1\nNaN\n1\n1\n",
            ", line 3: expected numbers, found 'NaN', which is not a finite number.",
        ),
        (
            "node_attributes",
            b"0.5\n-inf\n1\n1\n1\n",
            ", line 2: expected numbers, found '-inf', which is not a finite number.",
        ),
        ("node_attributes", b"0.5, 1\n1.5\n", ", line 2: expected numbers, found an incomplete row, '1.5'."),
        ("node_attributes", b"0.5\n1.5\n", ", line 3: expected 5 rows, one per node, found 2."),
        ("edge_labels", b"0\n0\n1\n1\n2\n", ", line 6: expected 6 rows, one per row of T_A.txt, found 5."),
        ("edge_attributes", b"0.1\n", ", line 2: expected 6 rows, one per row of T_A.txt, found 1."),
    ],
)
def test_message_of_each_error(tmp_path, table, content, message):
    folder = write(tmp_path / "T", GOOD | {table: content})
    with pytest.raises(DataError) as caught:
        read_tu(folder)
    assert str(caught.value) == f"{folder / f'T_{table}.txt'}{message}"


def test_more_graphs_than_classes(tmp_path):
    folder = write(tmp_path / "T", GOOD | {"graph_indicator": b"1\n1\n1\n9999999999\n9999999999\n"})
    with pytest.raises(
        DataError, match=r"T_graph_labels\.txt, line 3: expected 9999999999 rows, one per graph"
    ):
        read_tu(folder)
    unlabelled = {"graph_indicator": b"1\n1\n1\n9999999999\n9999999999\n", "graph_labels": None}
    with pytest.raises(
        DataError, match=r"indicator\.txt, line 4: expected graph numbers up to 5000, found graph 9"
    ):
        read_tu(write(tmp_path / "U", GOOD | unlabelled))


def test_a_missing_edge_file(tmp_path):
    folder = write(tmp_path / "T", GOOD | {"A": None})
    with pytest.raises(
        DataError, match=r"T: expected a TU data set with a file <NAME>_A\.txt, found 6 \.txt files\.$"
    ):
        read_tu(folder)


@pytest.mark.parametrize(
    ("row", "expected"), [(b"4, 3\n", "two nodes of one graph"), (b"4, 0\n", "node ids")]
)
def test_the_first_wrong_edge_is_named_in_a_long_file(tmp_path, row, expected):
    rows = 1_100_000  # more than is looked at together
    edges = b"1, 2\n" * rows + row
    folder = write(tmp_path / "T", {"A": edges, "graph_indicator": GOOD["graph_indicator"]})
    with pytest.raises(DataError, match=f"line {rows + 1}: expected {expected}"):
        read_tu(folder)


# ---------------------------------------------------------------------- damage
JUNK = st.sampled_from(
    [b"\0", b"\xff", b"\n", b"\r", b",", b" ", b"-", b".", b"0", b"9", b"nan", b"1e400", b"x", b"9" * 20]
)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, bytes | None]:
    """The good files after a few cuts, insertions, lost lines and swapped files."""
    files: dict[str, bytes | None] = dict(GOOD)
    for _ in range(draw(st.integers(1, 3))):
        table = draw(st.sampled_from(sorted(GOOD)))
        content = files[table]
        if content is None:
            continue
        position = draw(st.integers(0, len(content)))
        lines = content.splitlines(keepends=True)
        line = draw(st.integers(0, len(lines)))
        files[table] = draw(
            st.sampled_from(
                [
                    content[:position] + draw(JUNK) + content[position:],
                    content[:position] + draw(JUNK) + content[position + 1 :],
                    content[:position],
                    b"".join(lines[:line] + lines[line + 1 :]),
                    b"".join(lines[:line] + lines[line - 1 :]),
                    GOOD[draw(st.sampled_from(sorted(GOOD)))],
                    draw(st.binary(max_size=20)),
                    None,
                ]
            )
        )
    return files


def store_or_error(path: Path) -> GraphStore | GraphcapsError:
    try:
        return read_tu(path)
    except GraphcapsError as error:
        return error


@settings(max_examples=100)
@given(damaged())
def test_damaged_files_give_a_store_or_a_message(files):
    with tempfile.TemporaryDirectory() as folder:
        outcome = store_or_error(write(Path(folder) / "T", files))
    if isinstance(outcome, GraphcapsError):
        assert ": expected " in str(outcome) or ": file not found." in str(outcome)
        assert str(outcome).count(folder) == 1
    else:
        assert outcome.num_nodes == len(outcome.node_graph)
        sizes = outcome.sizes.repeat_interleave(outcome.sizes).repeat_interleave(outcome.degree)
        assert bool((outcome.neighbours >= 0).all() & (outcome.neighbours < sizes).all())
