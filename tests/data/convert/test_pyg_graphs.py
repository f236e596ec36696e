"""torch-geometric's graphs: there and back, and what a Data may lack."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcaps.data.coercion import coerce
from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.convert.pyg_graphs import from_pyg, to_pyg
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.compatibility import UnseenValueWarning
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.readers.graph_metadata import ReadingWarning
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from tests.small_models import labelled, train_small

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # torch-geometric 2.8 scripts a class as it is imported
    from torch_geometric.data import Batch, Data

COLUMNS = ("node_labels", "node_attributes", "edge_labels", "edge_attributes", "edge_weight")


@st.composite
def stores(draw: st.DrawFn) -> GraphStore:
    """One to four graphs; each column is there in all of them or in none."""
    seed = draw(st.integers(0, 10_000))
    have = {column: draw(st.booleans()) for column in (*COLUMNS, "y", "truth")}
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for _ in range(draw(st.integers(1, 4))):
        n, E = draw(st.integers(1, 6)), draw(st.integers(0, 8))
        rows: dict[str, Any] = {
            "node_labels": torch.randint(0, 9, (n, 2), generator=generator),
            "node_attributes": torch.randn(n, 3, generator=generator),
            "edge_labels": torch.randint(0, 9, (E, 1), generator=generator),
            "edge_attributes": torch.randn(E, 2, generator=generator),
            "edge_weight": torch.rand(E, generator=generator),
            "y": draw(st.integers(0, 2)),
            "truth": {"part": torch.randint(0, 4, (n,), generator=generator)},
        }
        edges = torch.randint(0, n, (2, E), generator=generator)
        graphs.append(GraphArrays(n, edges, **{key: value for key, value in rows.items() if have[key]}))
    return store_from_graphs(graphs, "source", class_names=("a", "b", "c") if have["y"] else None)


def assert_same(actual: GraphStore, expected: GraphStore) -> None:
    for name in ("node_ptr", "edge_ptr", "neighbours", "y", *COLUMNS):
        a, b = getattr(actual, name), getattr(expected, name)
        if b is None or (name.startswith("edge_") and name != "edge_ptr" and not b.numel()):
            assert a is None or not a.numel(), name
        else:
            assert a is not None, name
            assert a.dtype == b.dtype, name
            assert torch.equal(a, b), name
    assert actual.class_names == expected.class_names
    assert actual.truth.keys() == expected.truth.keys()
    for key, value in expected.truth.items():
        assert torch.equal(actual.truth[key], value)


@given(store=stores(), as_batch=st.booleans())
def test_round_trip(store: GraphStore, as_batch: bool) -> None:
    again = from_pyg(to_pyg(store, as_batch=as_batch), "source", class_names=store.class_names or None)
    assert_same(again, store)
    report = again.report
    assert (report.rows, report.edges) == (2 * store.num_edges, store.num_edges)
    assert (report.self_loops, report.repeated, report.one_way, report.conflicting_labels) == (0, 0, 0, 0)


def test_ground_truth_that_some_graphs_lack_is_dropped() -> None:
    store = planted_parts(num_graphs=3)
    first, *others = to_pyg(store)
    for key in [key for key in first.to_dict() if key.startswith("truth_")]:
        del first[key]
    assert from_pyg([first, *others]).truth == {}
    assert from_pyg(others).truth.keys() == store.truth.keys() != set()


def test_selected_graphs_in_order() -> None:
    store = store_from_graphs(
        [GraphArrays(n, torch.empty(2, 0, dtype=torch.long), n % 2) for n in (1, 2, 3)], "sizes"
    )
    converted = to_pyg(store, [2, 0])
    assert isinstance(converted, list)
    assert [data.num_nodes for data in converted] == [3, 1]
    assert all(isinstance(data, Data) for data in converted)
    batch = to_pyg(store, torch.tensor([2, 0]), as_batch=True)
    assert isinstance(batch, Batch)
    assert batch.ptr.tolist() == [0, 3, 4]


def test_edges_are_listed_in_both_directions_within_their_graph() -> None:
    pair = torch.tensor([[0], [1]])
    store = store_from_graphs([GraphArrays(2, pair), GraphArrays(3, torch.tensor([[2], [0]]))])
    first, second = to_pyg(store)
    assert first.edge_index.tolist() == [[0, 1], [1, 0]]
    assert second.edge_index.tolist() == [[0, 2], [2, 0]]
    assert second.is_undirected()


# ---------------------------------------------------------------------- what a Data may hold or lack
def test_single_data_with_integer_features() -> None:
    data = Data(x=torch.tensor([[1], [0], [2]]), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([4]))
    with pytest.warns(ReadingWarning, match="1 edge is listed in one direction only"):
        store = from_pyg(data, "one")
    assert (store.name, len(store), store.num_nodes, store.num_edges) == ("one", 1, 3, 1)
    assert store.node_attributes is not None
    assert store.node_attributes.dtype == torch.float32
    assert store.node_attributes.tolist() == [[1], [0], [2]]  # numbers, not categories
    assert store.node_labels is None
    assert store.class_names == ("4",)
    assert store.report.one_way == 1


@pytest.mark.parametrize("y", [1, 1.0, torch.tensor(1), torch.tensor([1]), torch.tensor([[1.0]])])
def test_ways_to_write_a_class(y: object) -> None:
    store = from_pyg([Data(num_nodes=1, y=y), Data(num_nodes=1, y=-1)])
    assert store.class_names == ("-1", "1")
    assert store.y is not None
    assert store.y.tolist() == [1, 0]


def test_nodes_without_edges_are_kept() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    graphs = [
        Data(edge_index=edges, num_nodes=5),
        Data(edge_index=edges, x=torch.ones(4, 1)),
        Data(edge_index=edges),
        Data(x=torch.ones(2, 1)),
    ]
    assert from_pyg(graphs[:1]).sizes.tolist() == [5]
    assert from_pyg(graphs[1:2]).sizes.tolist() == [4]
    assert from_pyg(graphs[2:3]).sizes.tolist() == [2]  # counted by the edges, and no warning
    assert from_pyg(graphs[3:]).num_edges == 0


def test_edge_columns() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    numbers = torch.tensor([1.0, 3.0])
    with pytest.warns(ReadingWarning, match="1 edge has another weight or attribute in one direction"):
        one = from_pyg(Data(edge_index=edges, num_nodes=2, edge_attr=numbers))
    assert one.edge_weight is not None
    assert one.edge_weight.tolist() == [2, 2]  # both rows speak for the pair
    assert one.edge_attributes is None
    kinds = from_pyg(Data(edge_index=edges, num_nodes=2, edge_attr=torch.tensor([4, 4])))
    assert kinds.edge_weight is None
    assert kinds.edge_attributes is None
    assert kinds.edge_labels is not None
    assert kinds.edge_labels.tolist() == [[4], [4]]
    with pytest.warns(ReadingWarning, match="1 edge has another weight or attribute in one direction"):
        both = from_pyg(Data(edge_index=edges, num_nodes=2, edge_attr=numbers, edge_weight=numbers * 2))
    assert both.edge_weight is not None
    assert both.edge_weight.tolist() == [4, 4]
    assert both.edge_attributes is not None


def test_integers_and_one_hot_rows_of_edge_attr_are_labels() -> None:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])

    def read(*tensors: torch.Tensor, **columns: Any) -> GraphStore:
        return from_pyg([Data(edge_index=edges, num_nodes=3, edge_attr=each, **columns) for each in tensors])

    one_hot = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]])
    store = read(one_hot)
    assert store.edge_attributes is None
    assert store.edge_labels is not None
    assert store.edge_labels.tolist() == [[0], [0], [2], [2]]
    several = read(one_hot.long() + 1)  # integers in three columns
    assert several.edge_labels is not None
    assert several.edge_labels[0].tolist() == [2, 1, 1]
    mixed = read(one_hot, one_hot / 2)  # one rule for all graphs
    assert mixed.edge_labels is None
    assert mixed.edge_attributes is not None
    both = read(one_hot, edge_labels=torch.ones(4, 1, dtype=torch.long))
    assert both.edge_attributes is not None
    assert both.edge_labels is not None
    assert both.edge_labels.unique().tolist() == [1]


def test_tensors_that_are_not_read_are_named() -> None:
    data = Data(
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        num_nodes=2,
        pos=torch.ones(2, 3),
        z=torch.ones(2),
        name="a",
    )
    with pytest.warns(
        UserWarning, match=r"^from_pyg: 'pos', 'z' are not read; put numbers of nodes into 'x'\.$"
    ):
        from_pyg(data)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (Data(x=torch.ones(2, 3), y=0), r"'node_attributes' must have 1 column, as in graph 0, got 3 in graph 1"),
        (Data(x=torch.ones(2, 1)), r"'y' must be given for every graph or for none, got none for graph 1\."),
        (Data(num_nodes=2, y=0), r"'node_attributes' must be present in every graph, .*got none in graph 1"),
        (Data(x=torch.ones(2, 1), y=torch.ones(3)), r"'y' must be one class label per graph, got 3 values in graph 1"),
        (Data(x=torch.ones(2, 1), y=0.5), r"'y' must be an integer, got 0\.5 in graph 1"),
        (Data(x=torch.ones(2, 1), y=float("nan")), r"'y' must be an integer, got nan in graph 1"),
        (Data(x=torch.tensor([[float("inf")]]), y=0), r"'node_attributes' must hold finite numbers, got .*graph 1"),
        (Data(x=torch.ones(2, 1), y=0, edge_index=torch.tensor([[0], [2]])), r".* from 0 to 1 in graph 1, got 2"),
        (Data(x=[[1.0], [1.0]], num_nodes=2, y=0), r"'x' must be a dense tensor, got list in graph 1"),
        (Data(x=torch.ones(2, 1), y=0, adj_t=torch.eye(2)), r".* as .edge_index., got a matrix in graph 1"),
        ("graph", r"'data' must hold torch-geometric Data, got str at graph 1"),
    ],
)  # fmt: skip
def test_invalid_graph_is_named(wrong: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=f"from_pyg: {text}"):
        from_pyg([Data(x=torch.ones(2, 1), y=1), wrong])


def test_a_recipe_gives_what_a_model_reads() -> None:
    """Input columns and label indices, −1 for labels that were not in training: the scores of a fitted model."""
    pytest.importorskip("rdkit")
    from graphcaps.data.readers.molecules import from_smiles

    known = from_smiles(["CCO", "CC=O", "CCC", "C=C"], ["a", "a", "b", "b"])
    fitted = train_small(known, edge_labels="messages", epochs=1)
    recipe = fitted.recipe
    new = from_smiles(["CCO", "C#N", "C"])
    with pytest.warns(UnseenValueWarning, match=r"^to_pyg: 2 of 3 molecules have values"):
        batch = to_pyg(new, as_batch=True, recipe=recipe)
    assert set(batch.keys()) == {"x", "edge_index", "edge_attr", "num_nodes", "batch", "ptr"}
    assert batch.edge_attr.shape == (new.neighbours.numel(), len(recipe.edge_kinds))
    assert batch.edge_attr[-2:, 0].tolist() == [-1, -1]
    with torch.no_grad():
        scores = fitted.model.eval()(
            batch.x, batch.edge_index, batch.batch, edge_attr=batch.edge_attr
        ).class_scores
    with pytest.warns(UnseenValueWarning):
        torch.testing.assert_close(scores, fitted.scores(new))


def test_unseen_labels_follow_the_policy() -> None:
    store = labelled()
    recipe = FeatureRecipe().fit(store)
    assert store.node_labels is not None
    other = replace(store, node_labels=store.node_labels + 9)
    with pytest.raises(ArgumentError, match=r"to_pyg: 'store' must hold graphs that the model can read"):
        to_pyg(other, recipe=recipe)
    with pytest.warns(UserWarning, match="encoded as zeros"):
        data = to_pyg(other, [0], recipe=recipe, unseen="ignore")
    assert data[0].x.size(1) == recipe.num_columns
    assert "edge_attr" not in data[0]


def test_no_graphs_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"from_pyg: 'graphs' must hold at least one graph, got none"):
        from_pyg([])


def test_edges_in_one_direction_are_said():
    one_way = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 1]]), num_nodes=3)
    with pytest.warns(ReadingWarning) as caught:
        store = from_pyg([one_way])
    assert [str(warning.message) for warning in caught] == [
        "from_pyg: 1 edge is listed in one direction only; edges are read as undirected."
    ]
    assert store.num_edges == 2
    with pytest.warns(ReadingWarning, match="coerce: 2 edges are listed in one direction only"):
        coerce([one_way, one_way])


@pytest.mark.parametrize(
    ("edge_attr", "sentence"),
    [
        (
            torch.tensor([[0.5, 1.0], [0.5, 2.0]]),
            "1 edge has another weight or attribute in one direction than in the other; edges are read as undirected, "
            "the mean of both is kept.",
        ),
        (
            torch.tensor([1, 2]),
            "1 edge has another label in one direction than in the other; edges are read as undirected, "
            "the first one listed is kept.",
        ),
    ],
)
def test_values_that_differ_between_directions_are_said(edge_attr, sentence):
    edges = torch.tensor([[0, 1], [1, 0]])
    with pytest.warns(ReadingWarning) as caught:
        from_pyg([Data(edge_index=edges, edge_attr=edge_attr, num_nodes=2)])
    assert [str(warning.message) for warning in caught] == [f"from_pyg: {sentence}"]
    same = edge_attr[[0, 0]]
    from_pyg([Data(edge_index=edges, edge_attr=same, num_nodes=2)])  # a warning would be an error
