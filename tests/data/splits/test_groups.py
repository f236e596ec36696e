"""Groups and splits by the names that people give them: copies, scaffolds, a column, a file."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from graphcaps.data.convert.networkx_graphs import from_networkx
from graphcaps.data.quality.duplicates import find_duplicates
from graphcaps.data.readers.graph_metadata import GraphMetadata
from graphcaps.data.splits.groups import resolve_groups, resolve_split, split_column, write_groups
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError

SMILES = ("c1ccccc1C", "CCO", "c1ccccc1O", "C1CCCCC1", "CCO", "CCN")


@pytest.fixture
def store() -> GraphStore:
    graphs = [nx.path_graph(3), nx.cycle_graph(3), nx.path_graph(3), nx.path_graph(4), nx.path_graph(2)]
    return from_networkx([*graphs, nx.cycle_graph(5)], [0, 1] * 3)


def test_copies_and_the_file_that_lists_them_are_the_same_groups(store: GraphStore, tmp_path: Path) -> None:
    copies = resolve_groups("copies", store)
    assert (copies.ids.tolist(), copies.by) == ([0, 1, 0, 2, 3, 4], "copies")
    write_groups(tmp_path / "groups.csv", store, find_duplicates(store))
    listed = resolve_groups(tmp_path / "groups.csv", store)
    assert (listed.ids.tolist(), listed.by) == (copies.ids.tolist(), "file groups.csv")


@pytest.mark.parametrize("word", ["scaffolds", "scaffold"])
def test_molecules_of_one_ring_system_stay_together(store: GraphStore, word: str) -> None:
    pytest.importorskip("rdkit")
    from graphcaps.data.readers.molecules import from_smiles

    ids = resolve_groups(word, from_smiles(list(SMILES)), SMILES).ids
    assert ids[0] == ids[2]
    assert ids[1] == ids[4]  # without rings it stands alone, but for its copies
    assert len(set(ids.tolist())) == 4
    # Copies as graphs, though SMILES tell them apart by charge, isotope or arrangement; with rings and without.
    twins = (
        "CC(=O)O",
        "CC(=O)[O-]",
        "C[13CH3]",
        "CC",
        "C1CCNC1",
        "C1CC[NH2+]C1",
        "F[C@H](Cl)Br",
        "F[C@@H](Cl)Br",
    )
    paired = resolve_groups(word, from_smiles(list(twins)), twins).ids
    assert paired[::2].tolist() == paired[1::2].tolist()
    assert len(set(paired.tolist())) == 4
    with pytest.raises(
        ArgumentError, match="'groups' must be 'copies' or a file for graphs that are not read"
    ):
        resolve_groups(word, store)


def test_a_word_that_is_neither(store: GraphStore) -> None:
    with pytest.raises(ArgumentError, match="be 'copies', 'scaffolds' or a file that exists, got 'copys'"):
        resolve_groups("copys", store)


def test_which_splits_are_columns_of_the_data() -> None:
    assert split_column("part") == "part"
    assert [split_column(what) for what in (None, "scaffold", "parts.csv", "a/b.TSV")] == [None] * 4


def test_a_split_by_column_file_and_scaffold(store: GraphStore, tmp_path: Path) -> None:
    names = ("Train", "valid", "TEST", "training", "val", "test")
    rows = GraphMetadata(tuple("abcdef"), split=names, smiles=SMILES)
    split = resolve_split("part", store, rows)
    assert (split.train.tolist(), split.test.tolist(), split.name) == ([0, 3], [2, 5], "column 'part'")
    assert split.validation is not None
    assert split.validation.tolist() == [1, 4]
    path = tmp_path / "parts.csv"
    path.write_text("graph,split\n" + "".join(f"{n},{name}\n" for n, name in enumerate(names)))
    again = resolve_split(str(path), store, None)
    assert (again.train.tolist(), again.test.tolist(), again.name) == ([0, 3], [2, 5], "file parts.csv")
    pytest.importorskip("rdkit")
    from graphcaps.data.readers.molecules import from_smiles

    by_rings = resolve_split("scaffold", store, rows)
    assert by_rings.name == "by scaffold: 67, 0 and 33 % of the molecules, as the ring systems allow"
    rings = [f"{'C' * n}C1{'C' * size}1" for size, count in ((4, 29), (5, 7), (6, 4)) for n in range(count)]
    far = resolve_split("scaffold", from_smiles(rings), GraphMetadata(tuple(rings), smiles=tuple(rings)))
    assert far.name == "by scaffold: 72, 10 and 18 % of the molecules, as the ring systems allow"
    many = [f"{'C' * n}O" for n in range(1, 21)]  # no rings: each stands alone
    usual = resolve_split("scaffold", from_smiles(many), GraphMetadata(tuple(many), smiles=tuple(many)))
    assert (usual.name, repr(usual)) == ("by scaffold", "Split(train=16, validation=2, test=2)")
    known = resolve_groups("scaffolds", store, SMILES).ids
    assert not set(known[by_rings.train.numpy()]) & set(known[by_rings.test.numpy()])


def test_splits_that_are_none(store: GraphStore, tmp_path: Path) -> None:
    rows = GraphMetadata(tuple("abcdef"), split=("train", "train", "test", "other", "test", "test"))
    with pytest.raises(
        ArgumentError, match=r"be train, valid or test .* got 'other' for graph 3 in column 'part'"
    ):
        resolve_split("part", store, rows)
    with pytest.raises(
        ArgumentError, match="'split' must be a column or a file for graphs that are not read"
    ):
        resolve_split("scaffold", store, rows)
    path = tmp_path / "parts.csv"
    path.write_text("graph,split\n0,train\n1,test\n")
    with pytest.raises(DataError, match=r"parts.csv: expected a row for each of 6 graphs, found 2"):
        resolve_split(str(path), store, None)
    path.write_text("graph,group\n0,train\n1,test\n")
    with pytest.raises(DataError, match="expected a column 'split', found the columns 'graph', 'group'"):
        resolve_split(str(path), store, None)
