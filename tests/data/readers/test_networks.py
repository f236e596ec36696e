"""Networks in files: formats, classes, text labels, attributes and error messages."""

from __future__ import annotations

import json

import networkx as nx
import pytest
import torch

from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.data.datasets.loading import load_dataset, open_dataset
from graphcaps.data.label_encoding import text_code
from graphcaps.data.readers.graph_metadata import ReadingWarning
from graphcaps.data.readers.networks import read_networks, store_from_networks
from graphcaps.errors import ArgumentError, DataError


def triangle(y: object = None, colour: str = "red") -> nx.Graph:
    graph = nx.Graph()
    graph.add_node("a", label=colour, age=3.0, note="x")
    graph.add_node("b", label="blue", age=4.5, note="y")
    graph.add_node("c", label="blue", age=5.0, note="z")
    for ends, weight, kind in (
        (("a", "b"), 2.0, "friend"),
        (("b", "c"), 0.5, "foe"),
        (("a", "c"), 1.0, "friend"),
    ):
        graph.add_edge(*ends, weight=weight, label=kind, years=7)
    if y is not None:
        graph.graph["y"] = y
    return graph


def write(path, graph):
    path.parent.mkdir(exist_ok=True, parents=True)
    if path.suffix == ".graphml":
        nx.write_graphml(graph, path)
    elif path.suffix == ".gexf":
        nx.write_gexf(graph, path)
    else:
        path.write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    return path


@pytest.mark.parametrize("ending", [".graphml", ".json"])
def test_labels_attributes_and_weights_are_read(tmp_path, ending):
    loaded = open_dataset(write(tmp_path / f"net{ending}", triangle(y="yes")))
    store, rows = loaded.store, loaded.metadata
    assert (store.name, len(store), store.class_names) == ("net", 1, ("yes",))
    assert store.node_labels.flatten().tolist() == [text_code(text) for text in ("red", "blue", "blue")]
    assert store.node_attributes.flatten().tolist() == [3, 4.5, 5]
    assert set(store.edge_attributes.flatten().tolist()) == {7}
    edges = to_networkx(store, 0).edges
    assert {key: edges[key]["weight"] for key in edges} == {(0, 1): 2.0, (0, 2): 1.0, (1, 2): 0.5}
    assert edges[0, 1]["label"] == edges[0, 2]["label"] == "friend" != edges[1, 2]["label"]
    assert store.label_names[text_code("red")] == "red"
    assert store.source_columns == {
        "node_labels": ("label",),
        "edge_labels": ("label",),
        "node_attributes": ("age",),
        "edge_attributes": ("years",),
    }
    assert rows.ids == (f"net{ending}",)


def test_display_names_of_gexf_nodes_are_labels_only_on_request(tmp_path):
    path = write(tmp_path / "net.gexf", triangle())
    with pytest.warns(ReadingWarning) as caught:
        store = load_dataset(path)
    assert str(caught[0].message) == (
        "load_dataset: The node attributes 'name', 'note' are not read, since they hold no numbers; node_label='NAME' "
        "reads one as the label."
    )
    assert store.node_labels is None
    assert store.node_attributes.flatten().tolist() == [3, 4.5, 5]
    named = open_dataset(path, node_label="name", weight="years").store
    assert named.node_labels[0, 0] == text_code("red")
    assert set(named.edge_weight.tolist()) == {7.0}


def test_text_has_the_same_code_in_every_file(tmp_path):
    """Counting texts of a file from 0 would give blue another number beside red than beside black."""
    one = open_dataset(write(tmp_path / "a.json", triangle(colour="red"))).store
    other = open_dataset(write(tmp_path / "b.json", triangle(colour="black"))).store
    assert torch.equal(one.node_labels[1:], other.node_labels[1:])
    assert one.node_labels[0] != other.node_labels[0]


def test_a_folder_of_folders_gives_the_classes(tmp_path):
    for kind, number in (("good", 2), ("bad", 1)):
        for index in range(number):
            write(tmp_path / "nets" / kind / f"{index}.graphml", triangle(y="ignored"))
    loaded = open_dataset(tmp_path / "nets")
    assert loaded.store.class_names == ("bad", "good")
    assert loaded.store.y.tolist() == [0, 1, 1]
    assert loaded.metadata.ids == ("bad/0.graphml", "good/0.graphml", "good/1.graphml")


def test_a_table_gives_the_classes(tmp_path):
    for name in ("b.json", "a.gexf", "c.graphml"):
        write(tmp_path / name, triangle())
    table = tmp_path / "labels.csv"
    table.write_text("file,label,part\na.gexf,x,train\nb,y,test\nc.graphml,x,train\n")
    loaded = open_dataset(tmp_path, split="part")
    assert (loaded.metadata.ids, loaded.metadata.split) == (
        ("a.gexf", "b.json", "c.graphml"),
        ("train", "test", "train"),
    )
    assert loaded.store.y.tolist() == [0, 1, 0]
    table.write_text("file,label\na.gexf,x\nb,y\n")
    with pytest.raises(DataError, match=r"labels.csv: expected a row for the file 'c.graphml', found none"):
        open_dataset(tmp_path)
    table.write_text("file,label\na.gexf,x\na.gexf,y\n")
    with pytest.raises(
        DataError, match=r"labels.csv, line 3: expected every file once, found 'a.gexf' again"
    ):
        open_dataset(tmp_path)


def test_graphs_without_a_set(tmp_path):
    for name in ("a.json", "b.json", "c.json"):
        write(tmp_path / "nets" / name, triangle())
    table = tmp_path / "nets" / "labels.csv"
    table.write_text("file,label,part\na.json,x,train\nb,y,\nc.json,x,test\n")
    with pytest.raises(
        DataError, match=r"labels.csv, line 3: expected train, valid or test in column 'part'"
    ):
        open_dataset(tmp_path / "nets", split="part")
    metadata = open_dataset(tmp_path / "nets", split="part", bad="skip").metadata
    assert (metadata.ids, metadata.split) == (("a.json", "c.json"), ("train", "test"))
    assert metadata.all_notes[-1] == "1 row without an entry in the split column was left out: line 3."
    for name, part in (("a", "train"), ("b", None), ("c", "tset")):
        graph = triangle(y=name)
        graph.graph |= {} if part is None else {"part": part}
        write(tmp_path / "attributes" / f"{name}.json", graph)
    with pytest.raises(
        DataError, match=r"graph 'b.json': expected train, .*, found none\. .* with bad='skip'\."
    ):
        open_dataset(tmp_path / "attributes", split="part")
    with pytest.raises(DataError, match=r"graph 'c.json': expected train, .*, found 'tset'"):
        open_dataset(tmp_path / "attributes", split="part", bad="skip")
    graph.graph["part"] = "test"
    write(tmp_path / "attributes" / "c.json", graph)
    metadata = open_dataset(tmp_path / "attributes", split="part", bad="skip").metadata
    assert metadata.split == ("train", "test")
    assert metadata.all_notes[-1] == "1 graph without a set in the split attribute was left out: 'b.json'."


def test_several_graphs_in_one_file(tmp_path):
    path = tmp_path / "all.json"
    graphs = [nx.node_link_data(triangle(y=kind), edges="edges") for kind in (1, 0, 1)]
    path.write_text(json.dumps({"graphs": graphs}))
    loaded = open_dataset(path)
    assert (loaded.store.y.tolist(), loaded.metadata.ids[2]) == ([1, 0, 1], "all.json#2")
    two = tmp_path / "two.graphml"
    nx.write_graphml(triangle(), two)
    text = two.read_text()
    start, end = text.index("<graph "), text.index("</graph>") + len("</graph>")
    two.write_text(text[:end] + text[start:end] + text[end:])
    assert len(open_dataset(two).store) == 2


def test_attributes_of_some_nodes_only_are_noted_and_not_read(tmp_path):
    graph = triangle()
    del graph.nodes["a"]["label"], graph.nodes["b"]["age"]
    loaded = open_dataset(write(tmp_path / "net.json", graph))
    assert loaded.store.node_labels is None
    assert loaded.metadata.notes == (
        "The node attribute 'label' is on 2 of 3 nodes only and is not read.",
        "The node attribute 'age' is a number on 2 of 3 nodes only and is not read.",
        "The node attribute 'note' is not read, since it holds no numbers; --node-label 'note' reads it as the label.",
        "The edge attribute 'years' is kept in the store, but no model uses it.",
    )


def test_what_is_not_read_of_networks_is_named():
    graph = nx.MultiDiGraph()
    graph.add_node("a", element="C", name="x", charge=1)
    graph.add_node("b", element="N", name="y", charge=0)
    graph.add_edge("a", "b", kind="bond", weight=2.0, length=1.5, angle=3)
    graph.add_edge("a", "b", kind="bond", length=1.5, angle=3)
    read = store_from_networks([graph], [None])
    assert read.store.node_attributes.tolist() == [[1], [0]]
    assert read.metadata.notes == (
        "The node attributes 'element', 'name' are not read, since they hold no numbers; --node-label NAME reads one "
        "as the label.",
        "The edge attribute 'kind' is not read, since it holds no numbers; --edge-label 'kind' reads it as the label.",
        "The edge attributes 'angle', 'length' are kept in the store, but no model uses them.",
        "1 of 2 edges have no 'weight' and get the weight 1.",
        "1 graph is directed; edges are read as undirected.",
    )
    named = store_from_networks([graph], [None], node_label="element", edge_label="kind")
    assert named.store.node_labels is not None
    assert named.metadata.notes[0].startswith("The node attribute 'name' is not read")


def test_a_label_that_no_node_or_edge_has_is_refused(tmp_path):
    """A misspelt name would train without labels in silence."""
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, "C", "element")
    nx.write_graphml(graph, tmp_path / "one.graphml")
    with pytest.raises(DataError) as caught:
        load_dataset(tmp_path / "one.graphml", node_label="elment")
    assert "expected the node attribute 'elment' (node_label, --node-label), found only 'element'" in str(
        caught.value
    )
    with pytest.raises(DataError, match="found edges without attributes"):
        load_dataset(tmp_path / "one.graphml", edge_label="kind")


def test_directed_links_are_read_as_undirected_and_counted(tmp_path):
    path = tmp_path / "n.json"
    links = [{"source": 1, "target": 2}, {"source": 2, "target": 1}, {"source": 2, "target": 3}]
    path.write_text(json.dumps({"directed": True, "nodes": [{"id": k} for k in (1, 2, 3)], "links": links}))
    with pytest.warns(
        ReadingWarning, match="load_dataset: 1 graph is directed; edges are read as undirected"
    ):
        store = load_dataset(path)
    assert (store.num_edges, store.report.one_way, store.report.repeated) == (2, 1, 0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "n.json",
            '{"nodes": [\n{"id": 1},\n]}',
            "n.json, line 3: expected valid JSON, found an error at column 1 (a value is missing).",
        ),
        ("n.json", "[]", "n.json: expected at least one graph, found none."),
        (
            "n.json",
            '{"links": []}',
            "n.json: expected a graph with lists of 'nodes' and 'links', found an object with 'links'",
        ),
        (
            "n.json",
            '{"nodes": [{"name": 1}]}',
            "n.json: expected an 'id' (text or number) at node 0, found an object with",
        ),
        (
            "n.json",
            '{"nodes": [{"id": 1}, {"id": 1}]}',
            "n.json: expected every node once, found 1 again, at node 1.",
        ),
        (
            "n.json",
            '[{"nodes": [{"id": 1}]}, {"nodes": [{"id": 1}], "links": [{"source": 1, "target": 9}]}]',
            "n.json, graph 1: expected two nodes of the graph, 'source' and 'target', at link 0, "
            "found the 'target' 9, which is no node.",
        ),
        (
            "n.json",
            '{"nodes": [{"id": 1}], "links": [{"source": 1}]}',
            "n.json: expected two nodes of the graph, 'source' and 'target', at link 0, found no 'target'.",
        ),
        (
            "n.json",
            '{"nodes": [{"id": 1}], "links": [{"source": true, "target": 1}]}',
            "n.json: expected two nodes of the graph, 'source' and 'target', at link 0, found the 'source' true.",
        ),
        (
            "n.json",
            '{"nodes": [{"id": 1}], "links": [5]}',
            "n.json: expected two nodes of the graph, 'source' and 'target', at link 0, found the number 5.",
        ),
        (
            "n.json",
            '{"nodes": [{"id": 1, "label": [2, {}]}]}',
            "graph 'n.json': expected text or a whole number in the",
        ),
        (
            "n.graphml",
            "<graphml>\n<graph>\n</graphml>",
            "n.graphml, line 3: expected valid XML, found an error at column 3 (mismatched tag).",
        ),
        (
            "n.graphml",
            '<!DOCTYPE x [<!ENTITY a "b">]><graphml/>',
            "n.graphml, line 1: expected plain GraphML or GEXF, found a document type declaration.",
        ),
        (
            "n.gexf",
            "<gexf/>",
            "n.gexf: expected GEXF of the versions 1.1draft, 1.2draft, 1.3, found the namespace ''",
        ),
        (
            "n.gexf",
            '<gexf xmlns="http://gexf.net/1.3"/>',
            "n.gexf: expected a GEXF file, found one that cannot be read",
        ),
        ("n.gexf", "<graphml/>", "n.gexf: expected a GEXF file, found one that should end in .graphml."),
        ("n.graphml", "<graphml/>", "n.graphml: expected GraphML in the namespace http"),
        ("n.graphml", "<html/>", "n.graphml: expected GraphML or GEXF, found the root element 'html'."),
    ],
)
def test_errors_in_files(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_networks(path)
    where = "" if message.startswith("graph ") else f"{tmp_path}/"
    assert str(caught.value).startswith(f"{where}{message}")


def test_unusual_attribute_names_and_numbers(tmp_path):
    """Attributes with the names of networkx arguments, and an integer beyond the range of floats."""
    path = tmp_path / "n.json"
    path.write_text('{"nodes": [{"id": 1, "self": 3, "node_for_adding": 2}], "links": []}')
    assert load_dataset(path).node_attributes.tolist() == [[2.0, 3.0]]
    path.write_text('{"nodes": [{"id": 1, "size": %s}], "links": []}' % ("9" * 400))
    with pytest.raises(ArgumentError, match=r"'size' must be a number, got 9{80} at node 1 of graph 0"):
        load_dataset(path)
    path.write_text('[{"nodes": [{"id": 1}], "y": NaN}, {"nodes": [{"id": 1}], "y": 1}]')
    with pytest.raises(DataError, match=r"a class in the graph attribute 'y', found nan"):
        load_dataset(path)


def test_parallel_edges_loops_and_single_nodes(tmp_path):
    graph = nx.MultiGraph(
        [("a", "b", {"weight": 1.0}), ("a", "b", {"weight": 2.0}), ("a", "a", {"weight": 5.0})]
    )
    store = load_dataset(write(tmp_path / "multi.graphml", graph))
    assert (store.num_nodes, store.num_edges, store.edge_weight.tolist()) == (2, 1, [1.5, 1.5])
    assert (store.report.self_loops, store.report.repeated) == (1, 2)
    lone = nx.Graph()
    lone.add_node("a")
    for name in ("one.graphml", "one.gexf", "one.json"):
        store = open_dataset(write(tmp_path / name, lone)).store
        assert (store.num_nodes, store.num_edges) == (1, 0)


def test_classes_of_some_graphs_only_are_rejected(tmp_path):
    path = tmp_path / "n.json"
    path.write_text(json.dumps([nx.node_link_data(triangle(y=y), edges="links") for y in ("a", None)]))
    with pytest.raises(
        DataError, match=r"n.json: expected a class for every graph or for none, found none for 'n.json#1'"
    ):
        load_dataset(path)
    with pytest.raises(
        DataError, match=r"graph 'n.json#0': expected a class in the graph attribute 'kind', found none"
    ):
        load_dataset(path, label="kind")


def test_rows_of_labels_without_a_class(tmp_path):
    for name in "abc":
        nx.write_graphml(nx.path_graph(3), tmp_path / f"{name}.graphml")
    (tmp_path / "labels.csv").write_text("file,label\na.graphml,good\nb.graphml,\nc.graphml,bad\n")
    with pytest.raises(
        DataError, match=r"labels.csv, line 3: expected a label in column 'label', .* with bad='skip'\."
    ):
        open_dataset(tmp_path)
    skipped = open_dataset(tmp_path, bad="skip")
    assert (skipped.store.class_names, skipped.store.y.tolist()) == (("bad", "good"), [1, 0])
    assert (skipped.metadata.ids, skipped.metadata.row_indices) == (("a.graphml", "c.graphml"), (0, 2))
    assert skipped.metadata.skipped_ids == ("b.graphml",)
    assert skipped.metadata.all_notes == ("1 row without a label was left out: line 3.",)
    kept = open_dataset(tmp_path, unlabelled="keep")
    assert (len(kept.store), kept.store.y, kept.metadata.classes) == (3, None, ("good", "", "bad"))


def test_graphs_without_a_class_inside_a_file_are_left_out_on_request(tmp_path):
    graphs = [triangle(y="yes"), triangle(), triangle(y="no")]
    path = tmp_path / "nets.json"
    path.write_text(json.dumps([nx.node_link_data(graph, edges="links") for graph in graphs]))
    with pytest.raises(
        DataError, match=r"none for 'nets.json#1'. Add it, or leave such graphs out with bad='skip'"
    ):
        open_dataset(path)
    for options in ({}, {"label": "y"}):
        loaded = open_dataset(path, bad="skip", **options)
        assert (loaded.store.class_names, loaded.store.y.tolist()) == (("no", "yes"), [1, 0])
        assert loaded.metadata.row_indices == (0, 2)
        assert loaded.metadata.skipped_notes == ("1 graph without a label was left out: 'nets.json#1'.",)
        kept = open_dataset(path, unlabelled="keep", **options)
        assert (kept.store.y, kept.metadata.classes) == (None, ("yes", "", "no"))
    with pytest.raises(DataError, match="expected a class in at least one graph, found none"):
        open_dataset(path, bad="skip", label="z")
