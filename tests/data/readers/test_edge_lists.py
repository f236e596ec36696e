"""Edge lists of many graphs."""

from __future__ import annotations

import pytest

from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.errors import ArgumentError, DataError

EDGES = "graph,source,target,weight,label\ng1,a,b,2,s\ng1,b,c,1,t\ng2,x,y,3,s\n"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "own"
    path.mkdir()
    (path / "edges.csv").write_text(EDGES)
    return path


def test_edges_alone(folder):
    for source in (folder, folder / "edges.csv"):
        loaded = open_dataset(source)
        assert (loaded.store.name, loaded.metadata.ids) == ("own", ("g1", "g2"))
        assert loaded.store.y is None
        assert loaded.store.sizes.tolist() == [3, 2]
        edges = to_networkx(loaded.store, 0).edges
        assert {key: (edges[key]["weight"], edges[key]["label"]) for key in edges} == {
            (0, 1): (2.0, "s"),
            (1, 2): (1.0, "t"),
        }


def test_edges_graphs_and_nodes(folder):
    (folder / "graphs.csv").write_text("graph,label,part\ng2,no,train\ng1,yes,test\ng3,no,train\n")
    nodes = "graph,node,label,size,age\ng1,c,1,0.5,9\ng1,b,1,1,9\ng1,a,2,2,9\ng2,x,1,3,9\ng2,y,1,4,9\ng3,z,2,5,8\n"
    (folder / "nodes.csv").write_text(nodes)
    loaded = open_dataset(folder, split="part")
    store = loaded.store
    assert (loaded.metadata.ids, loaded.metadata.split) == (("g2", "g1", "g3"), ("train", "test", "train"))
    assert (store.class_names, store.y.tolist(), store.sizes.tolist()) == (
        ("no", "yes"),
        [0, 1, 0],
        [2, 3, 1],
    )
    assert store.node_labels.flatten().tolist() == [1, 1, 1, 1, 2, 2]
    assert store.source_columns["node_attributes"] == (
        "age",
        "size",
    )  # by name, whatever the order of columns
    assert store.node_attributes[:, 1].tolist() == [3, 4, 0.5, 1, 2, 5]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "edges.csv",
            "graph,source,target\ng1,a,\n",
            "edges.csv, line 2: expected an entry in column 'target'",
        ),
        (
            "edges.csv",
            EDGES.replace("3,s", "x,s"),
            "edges.csv, line 4: expected a number in column 'weight', found 'x'.",
        ),
        (
            "graphs.csv",
            "graph,label\ng1,1\n",
            "edges.csv, line 4: expected a graph of graphs.csv, found 'g2'.",
        ),
        (
            "graphs.csv",
            "graph,label\ng1,1\ng1,1\n",
            "graphs.csv, line 3: expected every graph once, found 'g1' again.",
        ),
        (
            "graphs.csv",
            "graph,label\ng1,1\ng2,nan\n",
            "graphs.csv, line 3: expected a label in column 'label', found 'nan'.",
        ),
        (
            "nodes.csv",
            "graph,node\ng1,a\ng2,x\ng2,y\n",
            "edges.csv, line 2: expected a node of graph 'g1' in the table",
        ),
        (
            "nodes.csv",
            "graph,node\ng1,a\ng1,a\n",
            "nodes.csv, line 3: expected every node of graph 'g1' once",
        ),
        ("nodes.csv", "graph,node,q\ng1,a,nan\n", "edges.csv, line 2: expected a node"),
    ],
)
def test_errors_name_file_and_line(folder, file, text, message):
    (folder / file).write_text(text)
    with pytest.raises(DataError) as caught:
        open_dataset(folder)
    assert str(caught.value).startswith(f"{folder}/{message}")


def test_graphs_without_a_set(tmp_path):
    (tmp_path / "edges.csv").write_text("graph,source,target\ng1,a,b\ng2,a,b\ng3,b,c\n")
    (tmp_path / "graphs.csv").write_text("graph,label,part\ng1,yes,train\ng2,no,\ng3,no,test\n")
    expected = "graphs.csv, line 3: expected train, valid or test in column 'part', found"
    with pytest.raises(DataError, match=rf"{expected} an empty entry\. .* with bad='skip'\."):
        open_dataset(tmp_path, split="part")
    metadata = open_dataset(tmp_path, split="part", bad="skip").metadata
    assert (metadata.ids, metadata.split, metadata.skipped_ids) == (("g1", "g3"), ("train", "test"), ("g2",))
    assert metadata.all_notes == ("1 row without an entry in the split column was left out: line 3.",)
    (tmp_path / "graphs.csv").write_text("graph,label,part\ng1,yes,train\ng2,no,tset\ng3,no,test\n")
    with pytest.raises(DataError, match=f"{expected} 'tset'"):
        open_dataset(tmp_path, split="part", bad="skip")


def test_graphs_without_a_class(tmp_path):
    (tmp_path / "edges.csv").write_text("graph,source,target\ng1,a,b\ng2,a,b\ng2,b,c\ng3,a,b\ng4,b,a\n")
    (tmp_path / "graphs.csv").write_text("graph,label,part\ng1,yes,train\ng2,NA,test\ng3,,test\ng4,no,test\n")
    with pytest.raises(DataError) as caught:
        open_dataset(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/graphs.csv, line 3: expected a label in column 'label', found 'NA' (2 such rows). Add the label, "
        "or leave such rows out with bad='skip'."
    )
    skipped = open_dataset(tmp_path, bad="skip", split="part")
    assert skipped.store.sizes.tolist() == [2, 2]
    assert (skipped.store.class_names, skipped.store.y.tolist()) == (("no", "yes"), [1, 0])
    metadata = skipped.metadata
    assert (metadata.ids, metadata.split, metadata.row_indices) == (("g1", "g4"), ("train", "test"), (0, 3))
    assert metadata.skipped_ids == ("g2", "g3")
    assert metadata.all_notes == ("2 rows without a label were left out: lines 3, 4.",)
    kept = open_dataset(tmp_path, unlabelled="keep")
    assert kept.store.sizes.tolist() == [2, 3, 2, 2]
    assert kept.store.y is None
    assert kept.metadata.classes == ("yes", "", "", "no")
    with pytest.raises(ArgumentError, match="'bad' must be 'refuse' or 'skip' or 'keep', got 'drop'"):
        open_dataset(tmp_path, bad="drop")
