"""networkx graphs: there and back, names and texts, and every kind of graph it has."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.convert.networkx_graphs import from_networkx, to_networkx
from graphcaps.data.label_encoding import text_code
from graphcaps.data.readers.molecules import from_smiles
from graphcaps.errors import ArgumentError
from graphcaps.ops.edges import EdgeReport

COLUMNS = ("node_labels", "node_attributes", "edge_labels", "edge_attributes", "edge_weight")


@given(seed=st.integers(0, 10_000), width=st.integers(1, 2), classes=st.booleans())
def test_round_trip(seed: int, width: int, classes: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for _ in range(3):
        n, E = (int(value) for value in torch.randint(1, 7, (2,), generator=generator))
        graphs.append(
            GraphArrays(
                n,
                torch.randint(0, n, (2, E), generator=generator),
                int(torch.randint(0, 3, (1,), generator=generator)) if classes else None,
                node_labels=torch.randint(0, 9, (n, width), generator=generator),
                node_attributes=torch.randn(n, 2, generator=generator),
                edge_labels=torch.randint(0, 9, (E, width), generator=generator),
                edge_attributes=torch.randn(E, 2, generator=generator),
                edge_weight=torch.rand(E, generator=generator),
            )
        )
    store = store_from_graphs(graphs, "source", class_names=("a", "b", "c") if classes else None)
    again = from_networkx(
        [to_networkx(store, g) for g in range(3)],
        node_attributes="attributes",
        edge_label="label",
        edge_attributes="attributes",
        class_names=store.class_names or None,
        name="source",
    )
    for name in ("node_ptr", "edge_ptr", "neighbours", "y", *COLUMNS):
        a, b = getattr(again, name), getattr(store, name)
        if b is None or not b.numel():
            assert a is None or not a.numel(), name
        else:
            assert a is not None, name
            assert a.dtype == b.dtype, name
            assert torch.equal(a, b), name
    assert again.class_names == store.class_names
    assert again.report == EdgeReport(rows=2 * store.num_edges, edges=store.num_edges)


def test_nodes_are_numbered_in_the_order_of_the_graph() -> None:
    graph = nx.Graph()
    graph.add_nodes_from(["z", "a", ("m", 1)])
    graph.add_edge("a", "z")
    store = from_networkx(graph)
    assert store.edge_ptr.tolist() == [0, 1, 2, 2]
    assert store.neighbours.tolist() == [1, 0]
    assert store.y is None


@pytest.mark.parametrize(
    ("kind", "report"),
    [
        (nx.Graph, EdgeReport(rows=5, self_loops=1, looped_nodes=1, edges=2)),
        (nx.DiGraph, EdgeReport(rows=4, self_loops=1, looped_nodes=1, one_way=1, edges=2)),
        (nx.MultiGraph, EdgeReport(rows=9, self_loops=1, looped_nodes=1, repeated=4, edges=2)),
        (nx.MultiDiGraph, EdgeReport(rows=5, self_loops=1, looped_nodes=1, repeated=1, one_way=1, edges=2)),
    ],
)
def test_every_kind_of_graph_becomes_simple(kind: Any, report: EdgeReport) -> None:
    graph = kind()
    graph.add_nodes_from(range(4))
    graph.add_edges_from([(0, 1), (0, 1), (1, 0), (1, 2), (3, 3)])
    store = from_networkx([graph])
    assert store.neighbours.tolist() == [1, 0, 2, 1]
    assert store.degree.tolist() == [1, 2, 1, 0]
    assert store.report == report


def test_weights_of_parallel_edges_are_averaged_and_missing_ones_are_one() -> None:
    graph = nx.MultiGraph()
    graph.add_edge(0, 1, weight=2.0)
    graph.add_edge(0, 1, weight=4.0)
    graph.add_edge(1, 2)
    store = from_networkx(graph)
    assert store.edge_weight is not None
    assert store.edge_weight.tolist() == [3, 3, 1, 1]
    assert from_networkx(graph, weight=None).edge_weight is None
    assert from_networkx(nx.path_graph(3)).edge_weight is None


# ---------------------------------------------------------------------- classes and node labels
def test_classes_may_be_text_numbers_or_part_of_the_graph() -> None:
    graphs = [nx.path_graph(2), nx.path_graph(3), nx.path_graph(1)]
    named = from_networkx(graphs, ["toxic", "fine", "toxic"])
    assert named.class_names == ("fine", "toxic")
    assert named.y is not None
    assert named.y.tolist() == [1, 0, 1]
    numbered = from_networkx(graphs, torch.tensor([1, -1, 1]))
    assert numbered.class_names == ("-1", "1")
    for graph, y in zip(graphs, (2.0, 10, 2), strict=True):
        graph.graph["y"] = y
    assert from_networkx(graphs).class_names == ("2", "10")


def molecule(*atoms: str) -> nx.Graph:
    graph = nx.path_graph(len(atoms))
    nx.set_node_attributes(graph, dict(enumerate(atoms)), "label")
    return graph


def test_the_code_of_a_text_label_depends_on_the_text_alone() -> None:
    store = from_networkx([molecule("N", "C"), molecule("C", "O")])
    assert store.node_labels is not None
    assert store.node_labels.squeeze(1).tolist() == [text_code(text) for text in "NCCO"]
    assert store.label_names == {text_code(text): text for text in "NCO"}
    later = from_networkx(molecule("O"))
    assert later.node_labels is not None
    assert later.node_labels.tolist() == [[text_code("O")]]


def test_text_labels_of_nodes_and_edges_survive_the_round_trip() -> None:
    graph = molecule("N", "C", "7")
    nx.set_edge_attributes(graph, {(0, 1): "single", (1, 2): 3}, "label")
    store = from_networkx(graph, edge_label="label")
    again = to_networkx(store, 0)
    assert [again.nodes[node]["label"] for node in again] == ["N", "C", 7]
    assert [again.edges[edge]["label"] for edge in again.edges] == ["single", 3]
    restored = from_networkx(again, edge_label="label")
    assert restored.label_names == store.label_names
    for name in ("node_labels", "edge_labels"):
        assert torch.equal(getattr(restored, name), getattr(store, name)), name


def test_several_attributes_are_concatenated() -> None:
    graph = nx.path_graph(2)
    graph.add_node(0, mass=12, position=(1.0, 2.0))
    graph.add_node(1, mass=1e300, position=torch.tensor([3.0, 4.0]))
    store = from_networkx(graph, node_attributes=["mass", "position"])
    assert store.node_attributes is not None
    assert store.node_attributes.dtype == torch.float64  # 1e300 is beyond float32
    assert store.node_attributes.tolist() == [[12, 1, 2], [1e300, 3, 4]]
    assert from_networkx(graph, node_label=None).node_attributes is None


def test_all_columns_of_the_store_are_written() -> None:
    store = store_from_graphs(
        [
            GraphArrays(
                2,
                torch.tensor([[0], [1]]),
                "yes",
                node_labels=torch.tensor([[7], [8]]),
                edge_weight=torch.tensor([0.5]),
                truth={"part": torch.tensor([1, 2])},
            )
        ]
    )
    graph = to_networkx(store, -1)
    assert graph.graph == {"y": "yes"}
    assert dict(graph.nodes(data=True)) == {
        0: {"label": 7, "truth_part": 1},
        1: {"label": 8, "truth_part": 2},
    }
    assert list(graph.edges(data=True)) == [(0, 1, {"weight": 0.5})]
    with pytest.raises(ArgumentError, match=r"'graph' must be the index of one graph, got \[0\]"):
        to_networkx(store, [0])  # type: ignore[arg-type]


# ---------------------------------------------------------------------- refusals
def mixed(**entries: object) -> nx.Graph:
    graph = nx.path_graph(2)
    for node in graph:
        graph.add_node(node, label=1, size=1.0)
    graph.add_node(1, **entries)
    return graph


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (mixed(label=None), r"'label' must be present everywhere or nowhere, got none at node 1 of graph 1\."),
        (mixed(label=1.5), r"'label' must be text or a whole number, got 1\.5 at node 1 of graph 1\."),
        (mixed(label=" "), r"'label' must be text or a whole number, got ' ' at node 1 of graph 1\."),
        (mixed(label=(1, 2)), r"'label' must hold 1 value, as at node 0, got 2 at node 1 of graph 1\."),
        (mixed(size=None), r"'size' must be present everywhere or nowhere, got none at node 1 of graph 1\."),
        (mixed(size="big"), r"'size' must be a number, got 'big' at node 1 of graph 1\."),
        (mixed(size=float("nan")), r"'node_attributes' must hold finite numbers, got NaN or infinity in graph 1\."),
        ("graph", r"'graphs' must hold networkx graphs, got str at graph 1\."),
    ],
)  # fmt: skip
def test_invalid_graph_is_named(wrong: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=f"from_networkx: {text}"):
        from_networkx([mixed(), wrong], node_attributes="size")


def test_wrong_classes_are_refused() -> None:
    graphs = [nx.path_graph(2), nx.path_graph(2)]
    with pytest.raises(ArgumentError, match=r"'labels' must hold one class label per graph, 2, got 1\."):
        from_networkx(graphs, [0])
    with pytest.raises(ArgumentError, match=r"'labels' must be integers or text, got 0\.5 for graph 1\."):
        from_networkx(graphs, [0, 0.5])  # type: ignore[list-item]
    with pytest.raises(
        ArgumentError, match=r"'y' must be given for every graph or for none, got none for graph 0"
    ):
        from_networkx(graphs, [None, 1])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match=r"'graphs' must hold at least one graph, got none"):
        from_networkx([])
    graphs[1].add_edge(0, 1, weight="heavy")
    with pytest.raises(
        ArgumentError, match=r"'weight' must be a number, got 'heavy' at edge \(0, 1\) of graph 1"
    ):
        from_networkx(graphs)


# ---------------------------------------------------------------------- names of columns
def named_graph() -> nx.Graph:
    graph = nx.path_graph(3)
    for node, entry in graph.nodes(data=True):
        entry |= {"atom": "C", "mass": float(node), "position": (node, 0.5)}
    nx.set_edge_attributes(graph, 2.5, "distance")
    return graph


def test_columns_keep_the_names_of_attributes() -> None:
    store = from_networkx(
        named_graph(), node_label="atom", node_attributes=["position", "mass"], edge_attributes="distance"
    )
    assert store.source_columns == {
        "node_labels": ("atom",),
        "node_attributes": ("position[0]", "position[1]", "mass"),
        "edge_attributes": ("distance",),
    }
    one = to_networkx(store, 0)
    assert one.nodes[2] == {"atom": "C", "position[0]": 2.0, "position[1]": 0.5, "mass": 2.0}
    assert one.edges[0, 1] == {"distance": 2.5}
    again = from_networkx(
        one,
        node_label="atom",
        node_attributes=["position[0]", "position[1]", "mass"],
        edge_attributes="distance",
    )
    assert again.source_columns == store.source_columns
    assert torch.equal(again.node_attributes, store.node_attributes)


def test_values_that_move_between_attributes_are_refused() -> None:
    other = named_graph()
    for node, entry in other.nodes(data=True):
        entry |= {"mass": (float(node), 1.0), "position": node}
    message = r"'node_attributes' must be the same in all graphs, as .* in graph {}, got .* in graph {}\."
    with pytest.raises(ArgumentError, match=message.format(0, 1)):
        from_networkx([named_graph(), other], node_attributes=["position", "mass"])
    with pytest.raises(ArgumentError, match=message.format(1, 2)):  # the first graph has no columns
        from_networkx([nx.Graph(), named_graph(), other], node_attributes=["position", "mass"])


def test_molecules_keep_their_featurizer() -> None:
    pytest.importorskip("rdkit")
    store = from_smiles(["CCO", "C[Si](C)C"], fragments="largest")
    graphs = [to_networkx(store, graph) for graph in range(2)]
    again = from_networkx(graphs, edge_label="label")
    assert (
        (again.featurizer, again.fragments) == (store.featurizer, store.fragments) == ("standard", "largest")
    )
    assert torch.equal(again.node_labels, store.node_labels)
    del graphs[1].graph["featurizer"]
    with pytest.raises(
        ArgumentError, match=r"'featurizer' must be the same in all graphs, got 'standard' and none"
    ):
        from_networkx(graphs)
    graphs[0].nodes[0]["label"] = (99, *graphs[0].nodes[0]["label"][1:])
    with pytest.raises(
        ArgumentError, match=r"'featurizer' must name the featurizer of the labels, 'standard', got"
    ):
        from_networkx(graphs[0])
    graphs[0].graph["featurizer"] = "of another library"
    assert from_networkx(graphs[0]).featurizer is None


@pytest.mark.parametrize("value", [2**63, 1e308, -(2**63) - 1])
def test_truth_beyond_64_bits_is_left_out(value: float) -> None:
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {0: 1, 1: 2, 2: value}, "truth_part")
    assert from_networkx([graph]).truth == {}
