"""Stores from arrays of single graphs: joined as listed, refused with the graph's number."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.errors import ArgumentError
from graphcaps.ops.edges import EdgeReport

NONE = torch.empty(2, 0, dtype=torch.long)


def full(n: int = 3, y: int | str | None = 0) -> GraphArrays:
    """A path of n nodes, listed in one direction, with every column."""
    edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    return GraphArrays(
        n,
        edges,
        y,
        node_labels=torch.arange(n)[:, None],
        node_attributes=torch.ones(n, 2),
        edge_labels=torch.arange(n - 1)[:, None],
        edge_attributes=torch.ones(n - 1, 2),
        edge_weight=torch.ones(n - 1),
        truth={"part": torch.arange(n)},
    )


def test_graphs_are_joined_in_order() -> None:
    store = store_from_graphs([full(3, "cat"), full(2, "ant"), full(1, "cat")], "pets")
    assert store.name == "pets"
    assert store.node_ptr.tolist() == [0, 3, 5, 6]
    assert store.edge_ptr.tolist() == [0, 1, 3, 4, 5, 6, 6]
    assert store.neighbours.tolist() == [1, 0, 2, 1, 1, 0]
    assert store.class_names == ("ant", "cat")
    assert store.y is not None
    assert store.y.tolist() == [1, 0, 1]
    assert store.node_labels is not None
    assert store.node_labels.squeeze(1).tolist() == [0, 1, 2, 0, 1, 0]
    assert store.edge_labels is not None
    assert store.edge_labels.squeeze(1).tolist() == [0, 0, 1, 1, 0, 0]
    assert store.truth["part"].tolist() == [0, 1, 2, 0, 1, 0]
    assert store.report == EdgeReport(rows=3, one_way=3, edges=3)


def test_directed_repeated_and_looped_rows_are_counted() -> None:
    rows = torch.tensor([[0, 0, 1, 2, 2, 0], [1, 1, 0, 2, 2, 2]])
    store = store_from_graphs([GraphArrays(3, rows), GraphArrays(3, rows)])
    assert store.neighbours.tolist() == [1, 2, 0, 0] * 2
    expected = EdgeReport(rows=12, self_loops=4, looped_nodes=2, repeated=2, one_way=2, edges=4)
    assert store.report == expected


@pytest.mark.parametrize(
    ("values", "names", "numbers"),
    [
        ([10, 2, -1], ("-1", "2", "10"), [2, 1, 0]),
        (["10", "2", "-1"], ("-1", "2", "10"), [2, 1, 0]),
        (["b", "a", "10"], ("10", "a", "b"), [2, 1, 0]),
        (["nan", "1", "nan"], ("1", "nan"), [1, 0, 1]),
    ],
)
def test_classes_are_numbered_in_ascending_order(
    values: list[int | str], names: tuple[str, ...], numbers: list[int]
) -> None:
    store = store_from_graphs([GraphArrays(1, NONE, value) for value in values])
    assert store.class_names == names
    assert store.y is not None
    assert store.y.tolist() == numbers


def test_known_class_names_are_kept() -> None:
    graphs = [GraphArrays(1, NONE, 2), GraphArrays(1, NONE, "no")]
    store = store_from_graphs(graphs, class_names=("no", "yes", "maybe"))
    assert store.class_names == ("no", "yes", "maybe")
    assert store.y is not None
    assert store.y.tolist() == [2, 0]
    for wrong in (3, -1, "never"):
        with pytest.raises(
            ArgumentError, match=rf"'y' must be one of 1 class names, got {wrong!r} for graph 1"
        ):
            store_from_graphs([GraphArrays(1, NONE, 0), GraphArrays(1, NONE, wrong)], class_names=("no",))


def test_graphs_without_edges_need_no_edge_columns() -> None:
    bare = GraphArrays(
        2,
        NONE,
        0,
        node_labels=torch.ones(2, 1, dtype=torch.long),
        node_attributes=torch.ones(2, 2),
        edge_attributes=torch.empty(0, 0),
        truth={"part": torch.zeros(2, dtype=torch.long)},
    )
    store = store_from_graphs([bare, full(), bare])
    assert store.edge_attributes is not None
    assert list(store.edge_attributes.shape) == [4, 2]
    assert store_from_graphs([bare]).edge_attributes is None


def test_no_graphs_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"'graphs' must hold at least one graph, got none\."):
        store_from_graphs([])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"num_nodes": 0}, r"'edge_index' must be empty in graph 1, which has no nodes, got 2\."),
        ({"num_nodes": -1}, r"'num_nodes' must be 0 or more, got -1 in graph 1\."),
        ({"edge_index": torch.zeros(3, 2)}, r"'edge_index' must have shape \[2, E\], got \[3, 2\] in graph 1"),
        (
            {"edge_index": torch.tensor([[0, 1], [1, 3]])},
            r"'edge_index' must hold node indices from 0 to 2 in graph 1, got 3\.",
        ),
        ({"edge_index": torch.tensor([[0, 1], [1, -4]])}, r".* from 0 to 2 in graph 1, got -4\."),
        ({"y": None}, r"'y' must be given for every graph or for none, got none for graph 1\."),
        ({"node_labels": None}, r"'node_labels' must be present in every graph, .*, got none in graph 1"),
        ({"edge_weight": None}, r"'edge_weight' must be present in every graph, .*, got none in graph 1"),
        ({"node_attributes": torch.ones(3, 5)}, r".* must have 2 columns, as in graph 0, got 5 in graph 1"),
        ({"node_attributes": torch.ones(2, 2)}, r".* have shape \[3, columns\] in graph 1, got \[2, 2\]"),
        ({"edge_weight": torch.ones(2, 1)}, r"'edge_weight' must have shape \[2\] in graph 1, got \[2, 1\]"),
        ({"edge_weight": torch.tensor([1.0, float("nan")])}, r".* finite numbers, got NaN or infinity in graph 1"),
        ({"truth": {}}, r"'truth\['part'\]' must have one entry per node, got another number in graph 1"),
    ],
)  # fmt: skip
def test_invalid_graph_is_named(change: dict[str, object], text: str) -> None:
    with pytest.raises(ArgumentError, match=f"store_from_graphs: {text}"):
        store_from_graphs([full(), replace(full(), **change)])  # type: ignore[arg-type]


def test_numbers_are_one_class_whatever_their_notation():
    graphs = [
        GraphArrays(1, torch.empty(2, 0, dtype=torch.long), y) for y in ("1", "1.0", 1, "0.50", ".5", True)
    ]
    store = store_from_graphs(graphs)
    assert store.class_names == ("0.5", "1", "True")
    assert store.y.tolist() == [1, 1, 1, 0, 0, 2]
