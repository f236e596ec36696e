"""Groups and splits by name: duplicates, scaffolds, a column, a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
import torch

from graphcaps.data.convert.networkx_graphs import from_networkx
from graphcaps.data.quality.duplicates import find_duplicates
from graphcaps.data.readers.graph_metadata import GraphMetadata
from graphcaps.data.splits.groups import (
    is_seeded,
    read_groups,
    resolve_groups,
    resolve_split,
    resolve_splits,
    split_column,
    write_groups,
)
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError

SMILES = ("c1ccccc1C", "CCO", "c1ccccc1O", "C1CCCCC1", "CCO", "CCN")


@pytest.fixture
def store() -> GraphStore:
    graphs = [nx.path_graph(3), nx.cycle_graph(3), nx.path_graph(3), nx.path_graph(4), nx.path_graph(2)]
    return from_networkx([*graphs, nx.cycle_graph(5)], [0, 1] * 3)


def test_duplicates_and_their_table_give_the_same_groups(store: GraphStore, tmp_path: Path) -> None:
    duplicates = resolve_groups("copies", store)
    assert (duplicates.ids.tolist(), duplicates.by) == ([0, 1, 0, 2, 3, 4], "copies")
    write_groups(tmp_path / "groups.csv", store, find_duplicates(store))
    from_table = resolve_groups(tmp_path / "groups.csv", store)
    assert (from_table.ids.tolist(), from_table.by) == (duplicates.ids.tolist(), "file groups.csv")


@pytest.mark.parametrize("keyword", ["scaffolds", "scaffold"])
def test_molecules_of_one_ring_system_stay_together(store: GraphStore, keyword: str) -> None:
    pytest.importorskip("rdkit")
    from graphcaps.data.readers.molecules import from_smiles

    ids = resolve_groups(keyword, from_smiles(list(SMILES))).ids
    assert ids[0] == ids[2]
    assert ids[1] == ids[4]  # without rings: grouped with duplicates only
    assert len(set(ids.tolist())) == 4
    # Isomorphic graphs whose SMILES differ in charge, isotope or stereochemistry, with and without rings.
    molecules = (
        "CC(=O)O",
        "CC(=O)[O-]",
        "C[13CH3]",
        "CC",
        "C1CCNC1",
        "C1CC[NH2+]C1",
        "F[C@H](Cl)Br",
        "F[C@@H](Cl)Br",
    )
    paired = resolve_groups(keyword, from_smiles(list(molecules))).ids
    assert paired[::2].tolist() == paired[1::2].tolist()
    assert len(set(paired.tolist())) == 4
    with pytest.raises(
        ArgumentError, match="'groups' must be 'copies' or a file for graphs that are not read"
    ):
        resolve_groups(keyword, store)


def test_a_table_of_groups(tmp_path: Path) -> None:
    graphs = [nx.path_graph(n) for n in (3, 4, 5, 6)]
    ring = nx.relabel_nodes(nx.wheel_graph(6), {0: 3, 3: 0})
    store = from_networkx([nx.wheel_graph(6), ring, nx.wheel_graph(6), *graphs], [0, 1, 0, 1, 0, 1, 0])
    duplicates = find_duplicates(store)
    path = tmp_path / "groups.csv"
    write_groups(path, store, duplicates, [f"row {index}" for index in range(7)])
    lines = path.read_text().splitlines()
    assert lines[:2] == ["graph,id,class,group,size,confirmed", "1,row 0,0,0,3,yes"]
    assert lines[4] == "4,row 3,1,1,1,"
    assert (read_groups(path, 7) == duplicates.group_ids()).all()
    with pytest.raises(DataError, match=r"groups.csv: expected a row for each of 8 graphs, found 7"):
        read_groups(path, 8)
    path.write_text("graph,group\n1,0\n0,0\n")
    with pytest.raises(DataError, match=r"groups.csv, line 3: expected graph 2, found '0'"):
        read_groups(path, 2)
    path.write_text("graph,group\n0,b\n1,a\n2,b\n")  # counted from 0
    assert read_groups(path, 3).tolist() == [1, 0, 1]
    path.write_text("graph,group\n2,a\n3,b\n")
    with pytest.raises(DataError, match=r"groups.csv, line 2: expected graph 1, found '2'"):
        read_groups(path, 2)
    path.write_text("graph,size\n0,1\n1,1\n")
    with pytest.raises(DataError, match=r"groups.csv, line 1: expected a column 'group', found the columns"):
        read_groups(path, 2)


def test_an_unknown_keyword_is_refused(store: GraphStore) -> None:
    with pytest.raises(ArgumentError, match="be 'copies', 'scaffolds' or an existing file, got 'copys'"):
        resolve_groups("copys", store)


def test_split_column_of_the_data() -> None:
    assert split_column("part") == "part"
    assert [split_column(name) for name in (None, "scaffold", "random", "parts.csv", "a/b.TSV")] == [None] * 5


def test_a_split_by_column_and_file(store: GraphStore, tmp_path: Path) -> None:
    names = ("Train", "valid", "TEST", "training", "val", "test")
    metadata = GraphMetadata(tuple("abcdef"), split=names)
    split = resolve_split("part", store, metadata)
    assert (split.train.tolist(), split.test.tolist(), split.name) == ([0, 3], [2, 5], "column 'part'")
    assert split.validation is not None
    assert split.validation.tolist() == [1, 4]
    path = tmp_path / "parts.csv"
    path.write_text("graph,split\n" + "".join(f"{n},{name}\n" for n, name in enumerate(names)))
    again = resolve_split(str(path), store, None)
    assert (again.train.tolist(), again.test.tolist(), again.name) == ([0, 3], [2, 5], "file parts.csv")


def test_seeded_splits(store: GraphStore) -> None:
    assert [is_seeded(name) for name in ("scaffold", "scaffolds", "random", "part", "random.csv")] == [
        *[True] * 3,
        *[False] * 2,
    ]
    many = replace(store[[0, 1] * 20], y=torch.arange(40) % 2)
    one, two = resolve_splits("random", many, seeds=(3, 4))
    assert (one.title, repr(one)) == ("random, seed 3", "Split(train=32, validation=4, test=4)")
    assert two.seed == 4
    assert not torch.equal(one.test, two.test)
    assert torch.equal(resolve_split("random", many, seed=4).test, two.test)
    wide = resolve_split("random", many, fractions=(0.5, 0, 0.5))
    assert (wide.validation, wide.test.numel()) == (None, 20)
    with pytest.raises(ArgumentError, match="a column or a file for graphs without classes, got 'random'"):
        resolve_split("random", replace(many, y=None))
    pytest.importorskip("rdkit")
    from graphcaps.data.readers.molecules import from_smiles

    chains = from_smiles([f"{'C' * n}{end}" for n in range(1, 21) for end in "ON"], [0, 1] * 20)
    by_rings = resolve_split("scaffold", chains)  # no rings: each is its own group
    assert (by_rings.title, repr(by_rings)) == (
        "by scaffold, seed 0",
        "Split(train=32, validation=4, test=4)",
    )
    rings = from_smiles([f"{'C' * n}C1CCCC1" for n in range(20)], [0, 1] * 10)
    message = (
        "molecules: 'groups' must be small enough to fill the validation set, got 20 of 20 graphs in one"
    )
    with pytest.raises(ArgumentError, match=message):
        resolve_split("scaffold", rings)


def test_invalid_splits_are_refused(store: GraphStore, tmp_path: Path) -> None:
    metadata = GraphMetadata(tuple("abcdef"), split=("train", "train", "test", "other", "test", "test"))
    with pytest.raises(
        ArgumentError, match=r"be train, valid or test .* got 'other' for graph 3 in column 'part'"
    ):
        resolve_split("part", store, metadata)
    with pytest.raises(
        ArgumentError, match="'split' must be random, a column or a file for graphs that are not read"
    ):
        resolve_split("scaffold", store, metadata)
    path = tmp_path / "parts.csv"
    path.write_text("graph,split\n0,train\n1,test\n")
    with pytest.raises(DataError, match=r"parts.csv: expected a row for each of 6 graphs, found 2"):
        resolve_split(str(path), store, None)
    path.write_text("graph,group\n0,train\n1,test\n")
    with pytest.raises(DataError, match="expected a column 'split', found the columns 'graph', 'group'"):
        resolve_split(str(path), store, None)
