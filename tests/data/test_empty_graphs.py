"""Graphs without nodes in every part of ``graphcaps.data``: readers, converters, the store, features and quality."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.convert.networkx_graphs import from_networkx, to_networkx
from graphcaps.data.convert.pyg_graphs import from_pyg, to_pyg
from graphcaps.data.datasets.cache import load_cached, save_cached
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.encoding import encode_graphs, feature_table
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.features.truncate import truncate_nodes
from graphcaps.data.quality.duplicates import find_duplicates
from graphcaps.data.quality.quality_report import basic_findings, quality_report
from graphcaps.data.quality.summary import summarize
from graphcaps.data.quality.weisfeiler_lehman import wl_graph_colours
from graphcaps.data.readers.tu import read_tu
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from tests.graphs import tiny_graphs, with_empty_graphs

NO_EDGES = torch.empty(2, 0, dtype=torch.long)


def labelled_store() -> GraphStore:
    """Three graphs with every kind of column."""
    pair = torch.tensor([[0], [1]])

    def graph(n: int, y: int) -> GraphArrays:
        rows = torch.arange(n).unsqueeze(1)
        one = torch.ones(1, 1)
        return GraphArrays(n, pair, y, rows, rows / 7, one.long(), one / 3, one[0], {"part": rows.squeeze(1)})

    return store_from_graphs([graph(2, 0), graph(4, 1), graph(3, 0)], "labelled")


def assert_same_graphs(actual: GraphStore, expected: GraphStore) -> None:
    for entry in fields(GraphStore):
        if entry.name in ("name", "report", "catalogue_name"):
            continue
        a, b = getattr(actual, entry.name), getattr(expected, entry.name)
        if isinstance(b, Tensor):
            assert torch.equal(a, b), entry.name
        elif isinstance(b, dict):
            assert a.keys() == b.keys(), entry.name
            assert all(torch.equal(a[key], b[key]) for key in b), entry.name
        else:
            assert a == b, entry.name


counts = st.lists(st.integers(0, 2), min_size=4, max_size=4)


# ---------------------------------------------------------------------- store
@given(counts)
def test_the_store_lists_them_and_keeps_the_others(inserted: list[int]) -> None:
    plain = labelled_store()
    store, kept = with_empty_graphs(plain, inserted)
    empty = [graph for graph in range(len(store)) if graph not in kept]
    assert store.empty_graphs.tolist() == empty
    assert len(store) == 3 + sum(inserted)
    assert_same_graphs(store[kept], plain)
    assert torch.equal(store.node_graph, torch.tensor(kept).repeat_interleave(plain.sizes))
    for graph in empty:
        alone = store[graph]
        assert (len(alone), alone.num_nodes, alone.num_edges, alone.max_size) == (1, 0, 0, 0)
        assert alone.empty_graphs.tolist() == [0]


def test_a_store_of_nothing_else() -> None:
    store = store_from_graphs([GraphArrays(0, NO_EDGES, 1), GraphArrays(0, NO_EDGES, 0)])
    assert (len(store), store.num_nodes, store.max_size, store.max_degree) == (2, 0, 0, 0)
    assert store.y is not None
    assert store.y.tolist() == [1, 0]


# ---------------------------------------------------------------------- TU files
FILES = {
    # Five graphs: 1, 3 and 5 have no nodes, as some of TU's Fingerprint.
    "A": "1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n",
    "graph_indicator": "2\n2\n4\n4\n4\n",
    "graph_labels": "7\n8\n7\n8\n9\n",
    "node_attributes": "0.5\n1.5\n2.5\n3.5\n4.5\n",
}


def write_zip(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for table, content in files.items():
            archive.writestr(f"FINGER/FINGER_{table}.txt", content)
    return path


def test_graph_numbers_that_do_not_occur(tmp_path: Path) -> None:
    store = read_tu(write_zip(tmp_path / "FINGER.zip", FILES))
    assert store.sizes.tolist() == [0, 2, 0, 3, 0]
    assert store.empty_graphs.tolist() == [0, 2, 4]
    assert store.y is not None
    assert store.y.tolist() == [0, 1, 0, 1, 2]
    assert store.class_names == ("7", "8", "9")
    assert to_networkx(store, 3).number_of_edges() == 2
    unlabelled = {name: text for name, text in FILES.items() if name != "graph_labels"}
    assert read_tu(write_zip(tmp_path / "U.zip", unlabelled)).sizes.tolist() == [0, 2, 0, 3]


@given(inserted=counts)
def test_written_and_read_again(inserted: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    store, _ = with_empty_graphs(labelled_store(), inserted)
    path = tmp_path_factory.mktemp("tu") / "T.zip"
    write_tu(store, path)
    assert_same_graphs(read_tu(path), store)


def test_what_the_format_cannot_express(tmp_path: Path) -> None:
    store, _ = with_empty_graphs(labelled_store(), [0, 1, 0, 1])
    unlabelled = GraphStore("u", store.node_ptr, store.edge_ptr, store.neighbours)
    expected = (
        r"'store' must end with a graph that has nodes if the graphs have no classes, got graph 5 without"
    )
    with pytest.raises(ArgumentError, match=expected):
        write_tu(unlabelled, tmp_path / "T.zip")
    write_tu(unlabelled[:4], tmp_path / "T.zip")
    assert read_tu(tmp_path / "T.zip").sizes.tolist() == [2, 0, 4, 3]


def test_the_cache(tmp_path: Path) -> None:
    store, _ = with_empty_graphs(labelled_store(), [1, 0, 2, 1])
    save_cached(store, "0" * 64, tmp_path)
    cached = load_cached("0" * 64, tmp_path)
    assert cached is not None
    assert_same_graphs(cached, store)


# ---------------------------------------------------------------------- other files
def test_an_edge_list(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("graph,source,target,weight\nb,1,2,0.5\n")
    (tmp_path / "graphs.csv").write_text("graph,label\na,x\nb,y\nc,x\n")
    (tmp_path / "nodes.csv").write_text("graph,node,label,size\nb,1,C,1\nb,2,N,2\n")
    store = load_dataset(tmp_path)
    assert store.sizes.tolist() == [0, 2, 0]
    assert store.class_names == ("x", "y")
    assert store.node_attributes is not None
    assert store.node_attributes.shape == (2, 1)


def test_networks_in_json(tmp_path: Path) -> None:
    nodes = [{"id": 1, "label": "C", "size": 2}, {"id": 2, "label": "N", "size": 3}]
    networks = [
        {"graph": {"class": "x"}, "nodes": [], "links": []},
        {"graph": {"class": "y"}, "nodes": nodes, "links": [{"source": 1, "target": 2}]},
    ]
    path = tmp_path / "networks.json"
    path.write_text(json.dumps(networks))
    store = load_dataset(path)
    assert store.sizes.tolist() == [0, 2]
    assert store.class_names == ("x", "y")
    assert store.node_labels is not None
    assert store.node_labels.shape == (2, 1)


# ---------------------------------------------------------------------- converters
def test_networkx_graphs_there_and_back() -> None:
    store, _ = with_empty_graphs(labelled_store(), [1, 0, 1, 1], y=1)
    graphs = [to_networkx(store, graph) for graph in range(len(store))]
    assert [graph.number_of_nodes() for graph in graphs] == [0, 2, 4, 0, 3, 0]
    back = from_networkx(
        graphs, node_attributes="attributes", edge_label="label", edge_attributes="attributes"
    )
    assert torch.equal(back.node_ptr, store.node_ptr)
    assert torch.equal(back.neighbours, store.neighbours)
    assert back.node_labels is not None
    assert torch.equal(back.node_labels, labelled_store().node_labels)
    assert from_networkx([nx.Graph()], ["x"]).sizes.tolist() == [0]


def test_torch_geometric_graphs_there_and_back() -> None:
    store, _ = with_empty_graphs(labelled_store(), [1, 0, 1, 1], y=1)
    for as_batch in (False, True):
        back = from_pyg(to_pyg(store, as_batch=as_batch), class_names=store.class_names)
        assert_same_graphs(back, store)
    bare = from_pyg([Data(y=1), Data(x=torch.ones(2, 3), truth_part=torch.arange(2), y=0)])
    assert bare.sizes.tolist() == [0, 2]
    assert bare.truth["part"].tolist() == [0, 1]


def test_arrays_without_columns() -> None:
    full = GraphArrays(2, torch.tensor([[0], [1]]), node_labels=torch.ones(2, 1).long())
    store = store_from_graphs([GraphArrays(0, NO_EDGES), full, GraphArrays(0, NO_EDGES)])
    assert store.sizes.tolist() == [0, 2, 0]
    assert store.node_labels is not None
    assert store.node_labels.tolist() == [[1], [1]]


# ---------------------------------------------------------------------- features
@given(counts)
def test_columns_are_those_of_the_other_graphs(inserted: list[int]) -> None:
    plain = labelled_store()
    store, kept = with_empty_graphs(plain, inserted)
    recipe = FeatureRecipe(degree_onehot=3, edge_labels="counts")
    expected, encoded = encode_graphs(plain, recipe), encode_graphs(store, recipe)
    assert encoded.recipe == expected.recipe
    assert torch.equal(encoded.x, expected.x)
    truncated = truncate_nodes(store, 2, encoded.x)
    assert truncated.store.empty_graphs.tolist() == store.empty_graphs.tolist()
    assert_same_graphs(truncated.store[kept], truncate_nodes(plain, 2).store)
    table = feature_table(encoded.x, store)
    assert torch.equal(table.sums[kept], feature_table(expected.x, plain).sums)
    assert not table.sums[store.empty_graphs].any()


def test_a_fitted_recipe_encodes_graphs_without_nodes_and_columns() -> None:
    recipe = FeatureRecipe(edge_labels="counts").fit(labelled_store())
    bare = store_from_graphs([GraphArrays(0, NO_EDGES)])
    assert recipe.apply(bare).shape == (0, recipe.num_columns)


# ---------------------------------------------------------------------- quality
def test_they_are_counted_and_named() -> None:
    store, _ = with_empty_graphs(planted_parts(num_graphs=30), [1, *[0] * 29, 2])
    summary = summarize(store)
    assert (summary.graphs_without_nodes, summary.graphs_without_edges, summary.min_nodes) == (3, 3, 0)
    findings = {finding.kind: finding for finding in basic_findings(store)}
    assert findings["no-nodes"].graphs == (0, 31, 32)
    assert findings["no-nodes"].sentence == (
        "3 graphs of 33 without nodes: training leaves them out, and their prediction is the most frequent class."
    )
    assert "no-edges" not in findings
    assert not any(finding.kind == "no-nodes" for finding in basic_findings(planted_parts(num_graphs=30)))


def test_they_are_duplicates_of_each_other() -> None:
    store, kept = with_empty_graphs(tiny_graphs().as_store(), [1, 0, 1, 0])
    assert [group.tolist() for group in find_duplicates(store).groups] == [[0, 3]]
    assert quality_report(store).duplicates.num_duplicates == 2
    plain = wl_graph_colours(tiny_graphs().as_store())
    assert wl_graph_colours(store)[kept].tolist() == plain.tolist()


def test_a_report_of_nothing_else() -> None:
    store: Any = store_from_graphs([GraphArrays(0, NO_EDGES, y) for y in (0, 1, 0)])
    assert [group.tolist() for group in find_duplicates(store).groups] == [[0, 1, 2]]
    assert summarize(store).graphs_without_nodes == 3
