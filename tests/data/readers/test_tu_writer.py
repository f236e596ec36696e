"""A written TU folder or zip is read back unchanged; a failure leaves the existing target."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcaps.data.coercion import coerce
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.label_encoding import text_code
from graphcaps.data.readers import tu_writer
from graphcaps.data.readers.tu import read_tu
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.ops.edges import clean_edges
from tests.graphs import tiny_graphs


def assert_same(actual: GraphStore, expected: GraphStore) -> None:
    """Equal in every array, type and name, but for report and catalogue name, which describe what was read."""
    for entry in fields(GraphStore):
        if entry.name == "catalogue_name":
            continue
        a, b = getattr(actual, entry.name), getattr(expected, entry.name)
        if entry.name == "report":
            assert a.as_dict() == dict.fromkeys(a.as_dict(), 0) | {
                "rows": 2 * expected.num_edges,
                "edges": expected.num_edges,
            }
        elif entry.name == "truth":
            assert a.keys() == b.keys()
            assert all(torch.equal(a[key], b[key]) for key in b), entry.name
        elif isinstance(b, torch.Tensor):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), entry.name
            assert torch.equal(a, b), entry.name
        else:
            assert a == b, entry.name


def tiny(**columns: object) -> GraphStore:
    return replace(tiny_graphs().as_store(), name="T", **columns)


# ---------------------------------------------------------------------- round trip
number = st.floats(allow_nan=False, allow_infinity=False, width=32)
label = st.integers(-(2**40), 2**40)
class_name = st.one_of(
    st.integers(-5, 12).map(str),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1, max_size=8)
    .map(str.strip)
    .filter(bool),
)


label_names = st.dictionaries(label, st.text(max_size=8), max_size=4)  # with line breaks, quotes and blanks


@st.composite
def stores(draw: st.DrawFn) -> GraphStore:
    """Small stores with every column there can be, isolated nodes, graphs without edges, unused classes."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda sizes: max(sizes) > 1))
    N, graph = sum(sizes), [g for g, size in enumerate(sizes) for _ in range(size)]
    pairs = [(a, b) for a in range(N) for b in range(a) if graph[a] == graph[b]]
    edges = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=8, unique=True))
    source, target = torch.tensor(edges).T

    def table(rows: int, values: st.SearchStrategy, dtype: torch.dtype) -> torch.Tensor | None:
        width = draw(st.integers(0, 3))
        if not width:
            return None
        flat = draw(st.lists(values, min_size=rows * width, max_size=rows * width))
        return torch.tensor(flat, dtype=dtype).reshape(rows, width)

    E = len(edges)
    weight = table(E, number, torch.float32)
    clean = clean_edges(
        source,
        target,
        N,
        labels=table(E, label, torch.int64),
        attributes=table(E, number, torch.float32),
        weight=None if weight is None else weight[:, 0],
    )
    names = tuple(draw(st.lists(class_name, max_size=4, unique=True)))
    class_indices = st.lists(st.integers(0, len(names) - 1), min_size=len(sizes), max_size=len(sizes))
    y = draw(st.none() | class_indices) if names else None
    truth = {
        key: table(N, label, torch.int64) for key in draw(st.sets(st.sampled_from(["part", "b-2", "_"])))
    }
    return GraphStore.from_clean_edges(
        draw(st.sampled_from(["T", "a b", "IMDB-ÄÖ", "x_A", "T.1"])),
        torch.tensor([0, *sizes]).cumsum(0),
        clean,
        y=None if y is None else torch.tensor(y),
        class_names=names,
        label_names=draw(label_names),
        node_labels=table(N, label, torch.int64),
        node_attributes=table(N, number, torch.float32),
        truth={key: values[:, 0] for key, values in truth.items() if values is not None},
    )


@given(stores(), st.booleans())
def test_a_written_store_is_read_back(store, as_zip):
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / (f"{store.name}.zip" if as_zip else store.name)
        write_tu(store, target)
        assert_same(read_tu(target), store)
        assert os.listdir(folder) == [target.name]


@pytest.mark.parametrize("name", ["planted-parts", "planted-parts-hard"])
@pytest.mark.parametrize("ending", ["", ".zip"])
def test_the_embedded_set(name, ending, tmp_path):
    store = load_dataset(name)
    write_tu(store, tmp_path / f"{name}{ending}")
    assert_same(read_tu(tmp_path / f"{name}{ending}"), store)


@pytest.mark.parametrize("name", ["MUTAG", "ENZYMES", "PROTEINS", "IMDB-BINARY"])
def test_sets_of_the_collection(name, shared_data, tmp_path):
    store = load_dataset(name, shared_data)
    write_tu(store, tmp_path / f"{name}.zip")
    assert_same(read_tu(tmp_path / f"{name}.zip"), store)
    with zipfile.ZipFile(tmp_path / f"{name}.zip") as archive:
        members = {Path(member).name for member in archive.namelist()}
    # Nothing that the collection does not know, where there is no need.
    assert f"{name}_class_names.txt" not in members
    assert f"{name}_label_names.txt" not in members
    assert f"{name}_edge_weights.txt" not in members


def test_text_labels_keep_their_text(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, dict(enumerate(["red", "rötlich, fast", "7"])), "label")
    nx.set_edge_attributes(graph, {(0, 1): 'a "b"\nc', (1, 2): "red"}, "label")
    store = coerce([graph]).store
    assert set(store.label_names.values()) == {"red", "rötlich, fast", 'a "b"\nc'}
    write_tu(store, tmp_path / "T.zip")
    for _ in range(2):  # parsed, then from the cache
        unnamed = replace(store, name="T", source_columns={})  # the format has no names of columns
        assert_same(load_dataset("T", tmp_path, download=False), unnamed)
    write_tu(store, tmp_path / "T")
    lines = (tmp_path / "T" / "T_label_names.txt").read_text("utf-8").splitlines()
    assert f'{text_code("rötlich, fast")}, "rötlich, fast"' in lines
    assert lines == sorted(lines, key=lambda line: int(line.split(",")[0]))


def test_text_of_labels_that_utf_8_cannot_encode(tmp_path):
    store = tiny(label_names={5: "a\ud800", 7: "ä"})
    write_tu(store, tmp_path / "T")
    assert read_tu(tmp_path / "T").label_names == store.label_names


def test_it_is_found_and_cached_under_its_new_name(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    store = load_dataset("planted-parts")
    write_tu(store, tmp_path / "mine.zip")
    for _ in range(2):  # parsed, then from the cache
        assert_same(load_dataset("mine", tmp_path, download=False), replace(store, name="mine"))


def test_numbers_that_two_roundings_would_change():
    """Shortest digits of a float32, read as float64 first, must still give that float32."""
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    special = [0.0, -0.0, 1e-45, 3.4028235e38, 16.362935, 0.1, 1 / 3, 8388608.5, 1.17549435e-38]
    values = np.concatenate([np.array(special, np.float32), bits[np.isfinite(bits)]])
    rows = tu_writer._numbers(torch.from_numpy(values), "values")
    read = np.array([float(line) for piece in rows() for line in piece.split()])
    assert np.abs(read).max() <= np.finfo(np.float32).max  # above it the reader keeps float64
    assert (read.astype(np.float32).view(np.uint32) == values.view(np.uint32)).all()


def test_float64_keeps_its_digits_in_the_file(tmp_path):
    write_tu(tiny(node_attributes=torch.full((7, 1), 1 / 3, dtype=torch.float64)), tmp_path / "T")
    assert (tmp_path / "T" / "T_node_attributes.txt").read_text().splitlines() == ["0.3333333333333333"] * 7
    assert read_tu(tmp_path / "T").node_attributes.dtype == torch.float32


# ---------------------------------------------------------------------- files
def test_the_files(tmp_path):
    write_tu(tiny(node_labels=torch.tensor([[1, -2]] * 7), class_names=("no", "yes")), tmp_path / "own")
    held = {path.name: path.read_text("utf-8") for path in (tmp_path / "own").iterdir()}
    assert set(held) == {
        *("README.txt", "own_A.txt", "own_graph_indicator.txt", "own_graph_labels.txt"),
        *("own_class_names.txt", "own_node_labels.txt"),
    }
    assert held["own_A.txt"] == "1, 2\n1, 3\n2, 1\n2, 3\n3, 1\n3, 2\n3, 4\n4, 3\n5, 6\n6, 5\n"
    assert held["own_graph_indicator.txt"] == "1\n1\n1\n1\n2\n2\n3\n"
    assert held["own_graph_labels.txt"] == "0\n1\n0\n"
    assert held["own_class_names.txt"] == "0, no\n1, yes\n"
    assert held["own_node_labels.txt"] == "1, -2\n" * 7
    assert "3 graphs, 7 nodes, 5 undirected edges" in held["README.txt"]
    assert "Written by graphcaps" in held["README.txt"]


def test_numbers_as_class_names_stay_numbers(tmp_path):
    write_tu(tiny(class_names=("-1", "4")), tmp_path / "T")
    assert (tmp_path / "T" / "T_graph_labels.txt").read_text() == "-1\n4\n-1\n"
    assert not (tmp_path / "T" / "T_class_names.txt").exists()
    write_tu(tiny(class_names=("4", "-1")), tmp_path / "U")
    assert (tmp_path / "U" / "U_class_names.txt").read_text() == "4, 4\n-1, -1\n"
    write_tu(tiny(class_names=()), tmp_path / "V")
    assert read_tu(tmp_path / "V").class_names == ("0", "1")


def test_the_same_store_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_tu(tiny(), tmp_path / f"{name}.zip", name="T")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_many_blocks_are_one_table(tmp_path, monkeypatch):
    store = replace(load_dataset("planted-parts"), name="T")
    monkeypatch.setattr(tu_writer, "_BLOCK_ROWS", 7)
    write_tu(store, tmp_path / "T")
    assert_same(read_tu(tmp_path / "T"), store)


# ---------------------------------------------------------------------- what cannot be written
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"node_attributes": torch.tensor([[1.0]] * 6 + [[torch.nan]])}, "finite numbers, got [nan] in row 6."),
        ({"edge_weight": torch.full((10,), torch.inf)}, "'edge_weight' must hold finite numbers, got [inf] in row 0."),
        ({"truth": {"A": torch.zeros(7)}}, "letters, digits, _ and - that do not end in '_A', got 'A'."),
        ({"truth": {"x_A": torch.zeros(7)}}, "got 'x_A'."),
        ({"truth": {"../x": torch.zeros(7)}}, "got '../x'."),
        ({"truth": {"part": torch.zeros(7)}}, "truth['part']' must hold integers, got torch.float32."),
        ({"class_names": ("a\nb", "c")}, "of one line without blanks at the ends, got 'a\\nb'."),
        ({"class_names": ("a", "a")}, "'class_names' must be distinct, got 'a' twice."),
        ({"class_names": ("a ", "c")}, "got 'a '."),
        ({"class_names": ("a",)}, "'y' must have classes from 0 to 0, one per class name, got 1."),
        ({"y": torch.tensor([0, -1, 0])}, "'y' must have classes from 0 to 1, one per class name, got -1."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", ["T", "T.zip"])
def test_a_store_that_does_not_fit(columns, message, target, tmp_path):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        write_tu(tiny(**columns), tmp_path / target)
    assert os.listdir(tmp_path) == []


def test_a_store_without_edges(tmp_path):
    with pytest.raises(
        ArgumentError, match="'store' must have at least one edge to be a TU data set, got no edge"
    ):
        write_tu(tiny()[2], tmp_path / "T")


@pytest.mark.parametrize("name", ["", " ", ".x", "a/b", "a\\b", "a\nb"])
def test_a_name_that_is_none(name, tmp_path):
    with pytest.raises(
        ArgumentError, match="'name' must be a valid file name that does not start with a dot"
    ):
        write_tu(tiny(), tmp_path / "T", name=name)


# ---------------------------------------------------------------------- what is there already
@pytest.mark.parametrize("target", ["T", "T.zip"])
def test_what_exists_is_overwritten_on_demand_only(target, tmp_path):
    write_tu(tiny(class_names=("old", "older")), tmp_path / target)
    with pytest.raises(ArgumentError, match=re.escape("'target' must not exist yet, got '")):
        write_tu(tiny(), tmp_path / target)
    assert read_tu(tmp_path / target).class_names == ("old", "older")
    write_tu(tiny(), tmp_path / target, overwrite=True)
    assert_same(read_tu(tmp_path / target), tiny())
    assert os.listdir(tmp_path) == [target]


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "T").mkdir()
    write_tu(tiny(), tmp_path / "T")
    assert_same(read_tu(tmp_path / "T"), tiny())


@pytest.mark.parametrize("other", ["thesis.tex", "T_A.csv", "sub"])
def test_a_folder_with_other_files_is_not_replaced(other, tmp_path):
    write_tu(tiny(), tmp_path / "T")
    path = tmp_path / "T" / other
    path.mkdir() if other == "sub" else path.write_text("years of work")
    with pytest.raises(ArgumentError, match=f"must contain only a TU data set .* with '{other}' in it"):
        write_tu(tiny(), tmp_path / "T", overwrite=True)
    assert path.exists()


def test_a_file_is_not_replaced_by_a_folder(tmp_path):
    (tmp_path / "T").write_text("mine")
    with pytest.raises(ArgumentError, match=r"must be a folder or end in .zip, got the existing file '.*T'"):
        write_tu(tiny(), tmp_path / "T", overwrite=True)
    assert (tmp_path / "T").read_text() == "mine"


@pytest.mark.parametrize("target", ["no/T", "no/T.zip"])
def test_a_missing_folder(target, tmp_path):
    with pytest.raises(DataError, match=r"folder .*no does not exist\. Create it"):
        write_tu(tiny(), tmp_path / target)


@pytest.mark.parametrize("target", ["T", "T.zip"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_existing_target(target, error, tmp_path, monkeypatch):
    write_tu(tiny(class_names=("old", "older")), tmp_path / target)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def fails(block):
        raise error

    monkeypatch.setattr(tu_writer, "_lines", fails)
    expected = DataError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected, match="No space left on device" if expected is DataError else None):
        write_tu(tiny(), tmp_path / target, overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert os.listdir(tmp_path) == [target]


def test_a_failed_rename_restores_the_old_folder(tmp_path, monkeypatch):
    write_tu(tiny(class_names=("old", "older")), tmp_path / "T")
    rename = os.replace

    def fails_once_new(source, target):
        if ".new." in str(source):
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "replace", fails_once_new)
    with pytest.raises(DataError, match="folder cannot be written \\(Input/output error\\)"):
        write_tu(tiny(), tmp_path / "T", overwrite=True)
    assert read_tu(tmp_path / "T").class_names == ("old", "older")
    assert os.listdir(tmp_path) == ["T"]


def test_molecules_keep_their_featurizer(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    store = replace(coerce(["C[C@H](N)C(=O)O", "c1ccccc1"]).store, smiles=None, fragments=None, name="M")
    write_tu(store, tmp_path / "M")
    assert (tmp_path / "M" / "M_featurizer.txt").read_text("utf-8") == "standard\n"
    assert store.node_labels is not None
    assert store.edge_labels is not None
    wide = replace(  # the file does not state that a code takes one byte
        store,
        node_labels=store.node_labels.long(),
        edge_labels=store.edge_labels.long(),
        truth={key: values.long() for key, values in store.truth.items()},
    )
    assert_same(read_tu(tmp_path / "M"), wide)


# ---------------------------------------------------------------------- reading the added files
@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("class_names", "0 no\n", "T/T_class_names.txt, line 1: expected a class, a comma and its name, found '0 no'."),
        ("class_names", "0, no\nx, yes\n", "line 2: expected a class, a comma and its name, found 'x, yes'."),
        ("class_names", "0, no\n1, \n", "line 2: expected a class, a comma and its name, found '1, '."),
        ("class_names", "", "line 1: expected a class, a comma and its name, found ''."),
        ("class_names", "0, no\n0, yes\n", "line 2: expected every class once, found class 0 again."),
        ("class_names", "0, no\n1, no\n", "T/T_class_names.txt, line 2: expected every name once, found 'no' again."),
        ("class_names", "0, no\n", "T/T_graph_labels.txt, line 2: expected a class of T_class_names.txt, found 1."),
        ("label_names", "5 red\n", "T/T_label_names.txt, line 1: expected a code, a comma and its text in double "
         "quotes, found '5 red'."),
        ("label_names", "", "line 1: expected a code, a comma and its text in double quotes, found ''."),
        ("label_names", '5, "red"\n6, blue\n', "line 2: expected a code, a comma and its text in double quotes, "
         "found '6, blue'."),
        ("label_names", '5, "red\n', "in double quotes, found '5, \"red'."),
        ("label_names", "5, " + "[" * 100_000, "in double quotes, found '5, [["),
        ("label_names", "9" * 5000 + ', "red"\n', "in double quotes, found '999"),
        ("label_names", '5, "red"\n5, "blue"\n', "line 2: expected every code once, found code 5 again."),
        ("edge_weights", "1\n" * 9, "T_edge_weights.txt, line 10: expected 10 rows, one per row of T_A.txt, found 9."),
        ("edge_weights", "1, 2\n" * 10, "T/T_edge_weights.txt, line 1: expected one number, found "),
        ("featurizer", "new\n", "T/T_featurizer.txt: expected one of the featurizers standard, elements, found 'new'."),
        ("featurizer", "standard\n", "expected node labels of the featurizer standard, found others."),
        ("truth_part", "1\n" * 8, "T/T_truth_part.txt, line 8: expected 7 rows, one per node, found 8."),
        ("truth_part", "0.5\n" * 7, "T/T_truth_part.txt, line 1: expected one integer, found '0.5'"),
    ],
)  # fmt: skip
def test_errors_in_added_files(file, text, message, tmp_path):
    write_tu(tiny(), tmp_path / "T")
    (tmp_path / "T" / f"T_{file}.txt").write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        read_tu(tmp_path / "T")


def test_encoding_of_label_names(tmp_path):
    write_tu(tiny(), tmp_path / "T")
    (tmp_path / "T" / "T_label_names.txt").write_bytes(b'5, "\xff"\n')
    with pytest.raises(DataError, match=r"T_label_names.txt: expected text in UTF-8, found other bytes"):
        read_tu(tmp_path / "T")
    (tmp_path / "T" / "T_label_names.txt").write_bytes(b'\xef\xbb\xbf5, "r\\u00f6t"\r\n-1,"a,b"\r\n\r\n')
    assert read_tu(tmp_path / "T").label_names == {5: "röt", -1: "a,b"}


def test_encoding_of_class_names(tmp_path):
    write_tu(tiny(), tmp_path / "T")
    (tmp_path / "T" / "T_class_names.txt").write_bytes(b"0, \xff\n1, b\n")
    with pytest.raises(DataError, match=r"T_class_names.txt: expected text in UTF-8, found other bytes"):
        read_tu(tmp_path / "T")
    (tmp_path / "T" / "T_class_names.txt").write_bytes(b"\xef\xbb\xbf1, b\r\n0, a, and more\r\n\r\n")
    store = read_tu(tmp_path / "T")
    assert (store.class_names, store.y.tolist()) == (("b", "a, and more"), [1, 0, 1])


def test_a_target_in_an_unknown_home_is_rejected():
    with pytest.raises(ArgumentError, match="write_tu: 'target' must be in a known home folder"):
        write_tu(tiny(), "~no-such-user/T")
