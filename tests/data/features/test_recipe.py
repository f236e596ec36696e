"""The recipe against a dense computation of each graph."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError


def make(*, labels: bool = True, attributes: bool = True, seed: int = 0, graphs: int = 4) -> GraphStore:
    """Random graphs of 1 to 7 nodes with isolated nodes; weights that the recipe must not use."""
    draw = np.random.default_rng(seed)
    arrays = []
    for _ in range(graphs):
        n = int(draw.integers(1, 8))
        E = int(draw.integers(0, 2 * n))
        arrays.append(
            GraphArrays(
                n,
                torch.from_numpy(draw.integers(0, n, (2, E))),
                node_labels=torch.from_numpy(draw.integers(3, 9, (n, 2))) if labels else None,
                node_attributes=torch.from_numpy(draw.normal(size=(n, 3))) if attributes else None,
                edge_weight=torch.from_numpy(draw.uniform(0.5, 2, E)),
            )
        )
    return store_from_graphs(arrays, "random")


def dense_features(store: GraphStore, recipe: FeatureRecipe) -> np.ndarray:
    """The reference: graph by graph, node by node, with an n × n matrix."""
    ptr = store.node_ptr.tolist()
    rows = []
    for g in range(len(store)):
        n = ptr[g + 1] - ptr[g]
        adjacency = np.zeros((n, n))
        for i in range(n):
            begin, end = int(store.edge_ptr[ptr[g] + i]), int(store.edge_ptr[ptr[g] + i + 1])
            for j in store.neighbours[begin:end].tolist():
                adjacency[i, j] = 1
        degree = adjacency.sum(1)
        x = np.zeros((n, 0))
        if recipe.attributes and store.node_attributes is not None:
            x = np.hstack([x, store.node_attributes[ptr[g] : ptr[g + 1]].double().numpy()])
        if recipe.labels and store.node_labels is not None:
            for column, values in enumerate(recipe.label_values or ()):
                labels = store.node_labels[ptr[g] : ptr[g + 1], column].tolist()
                x = np.hstack([x, np.array([[float(a == b) for b in values] for a in labels])])
        if not x.shape[1]:
            x = np.ones((n, 1))
        columns = [x]
        if recipe.degree:
            columns.append(degree[:, None])
        if recipe.degree_onehot is not None:
            capped = np.minimum(degree, recipe.degree_onehot).astype(int)
            columns.append(np.eye(recipe.degree_onehot + 1)[capped])
        with_diagonal = adjacency + 1e-8 * np.eye(n)
        root = np.diag(with_diagonal.sum(1) ** -0.5)
        A = root @ with_diagonal @ root
        columns += [np.linalg.matrix_power(A, p) @ x for p in range(1, recipe.propagation + 1)]
        rows.append(np.hstack(columns))
    return np.vstack(rows)


# ---------------------------------------------------------------------- values
@given(
    seed=st.integers(0, 10_000),
    labels=st.booleans(),
    attributes=st.booleans(),
    use_labels=st.booleans(),
    use_attributes=st.booleans(),
    degree=st.booleans(),
    cap=st.none() | st.integers(0, 4),
    propagation=st.integers(0, 3),
)
def test_apply_equals_dense_graph_by_graph(
    seed: int,
    labels: bool,
    attributes: bool,
    use_labels: bool,
    use_attributes: bool,
    degree: bool,
    cap: int | None,
    propagation: int,
) -> None:
    store = make(labels=labels, attributes=attributes, seed=seed)
    recipe = FeatureRecipe(
        attributes=use_attributes,
        labels=use_labels,
        degree=degree,
        degree_onehot=cap,
        propagation=propagation,
    ).fit(store)
    expected = dense_features(store, recipe)
    x = recipe.apply(store, dtype=torch.float64)
    assert x.shape == expected.shape == (store.num_nodes, recipe.num_columns)
    assert len(recipe.column_names()) == len(set(recipe.column_names())) == recipe.num_columns
    torch.testing.assert_close(x, torch.from_numpy(expected), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(recipe.apply(store), x.float(), rtol=0, atol=0)


def test_path_of_three_and_an_isolated_node_by_hand() -> None:
    store = store_from_graphs(
        [GraphArrays(4, torch.tensor([[0, 1], [1, 2]]), node_labels=torch.tensor([[5], [6], [5], [6]]))]
    )
    recipe = FeatureRecipe(degree_onehot=1, propagation=2).fit(store)
    half = 0.5**0.5
    expected = [
        # x        degree, capped   Ax          A²x
        [1, 0, 1, 0, 1, 0, half, 1.0, 0],
        [0, 1, 2, 0, 1, 2 * half, 0, 0, 1],
        [1, 0, 1, 0, 1, 0, half, 1.0, 0],
        [0, 1, 0, 1, 0, 0, 1, 0, 1],
    ]
    torch.testing.assert_close(recipe.apply(store), torch.tensor(expected), rtol=0, atol=1e-7)
    assert recipe.column_names() == [
        "label[0]=5",
        "label[0]=6",
        "degree",
        "degree=0",
        "degree>=1",
        "A^1 label[0]=5",
        "A^1 label[0]=6",
        "A^2 label[0]=5",
        "A^2 label[0]=6",
    ]


def test_nodes_without_labels_and_attributes_have_a_column_of_ones() -> None:
    store = make(labels=False, attributes=False)
    recipe = FeatureRecipe(degree_onehot=2).fit(store)
    x = recipe.apply(store)
    assert recipe.column_names()[0] == "one"
    assert recipe.num_columns == 1 + 1 + 3 + 3
    assert bool((x[:, 0] == 1).all())
    assert x.dtype == torch.float32


def test_isolated_nodes_keep_their_own_x() -> None:
    store = store_from_graphs(
        [GraphArrays(3, torch.empty(2, 0, dtype=torch.long), node_attributes=torch.randn(3, 2))]
    )
    x = FeatureRecipe(degree=False, degree_onehot=None).fit(store).apply(store)
    for power in range(1, 4):
        torch.testing.assert_close(x[:, 2 * power : 2 * power + 2], x[:, :2])


def test_graphs_are_independent_of_each_other() -> None:
    store = make(graphs=6)
    recipe = FeatureRecipe().fit(store)
    all_features = recipe.apply(store)
    alone = torch.cat([recipe.apply(store[g]) for g in range(len(store))])
    torch.testing.assert_close(alone, all_features, rtol=0, atol=0)


# ---------------------------------------------------------------------- label columns
@pytest.mark.parametrize(
    ("seen", "kept"),
    [
        ([3, 1, 2], (1, 2, 3)),
        ([1, 4], (1, 2, 3, 4)),  # two of four: half of the range was seen
        ([1, 5], (1, 5)),  # two of five
        ([-1, 1], (-1, 0, 1)),
        ([7], (7,)),
        ([0, 1_000_000], (0, 1_000_000)),
    ],
)
def test_range_is_kept_where_half_of_it_was_seen(seen: list[int], kept: tuple[int, ...]) -> None:
    assert FeatureRecipe().fit(labelled(seen)).label_values == (kept,)


def labelled(*labels: list[int], name: str = "labelled") -> GraphStore:
    """One graph without edges per list of labels."""
    empty = torch.empty(2, 0, dtype=torch.long)
    return store_from_graphs(
        [GraphArrays(len(values), empty, node_labels=torch.tensor(values)[:, None]) for values in labels],
        name,
    )


def test_label_inside_a_kept_gap_has_its_column() -> None:
    recipe = FeatureRecipe(degree=False, degree_onehot=None, propagation=0).fit(labelled([1, 4]))
    assert recipe.apply(labelled([3])).tolist() == [[0, 0, 1, 0]]


def test_identifiers_are_not_categories() -> None:
    store = labelled(list(range(5000)))
    with pytest.raises(
        ArgumentError, match=r"at most 4096 distinct values .*, got 5000 in label column 0 of"
    ):
        FeatureRecipe().fit(store)
    assert FeatureRecipe(labels=False).fit(store).label_values == ()


# ---------------------------------------------------------------------- refusals
def test_unseen_label_is_named_with_its_count_and_first_graph() -> None:
    recipe = FeatureRecipe(degree=False, degree_onehot=None, propagation=0).fit(labelled([1, 2]))
    new = labelled([1, 2], [2, 9], [9, 1], name="new")
    with pytest.raises(ArgumentError) as caught:
        recipe.apply(new)
    assert str(caught.value) == (
        "FeatureRecipe.apply: 'store' must hold graphs that the model can read, got graph 1 of new: node label 9, on "
        "1 node, not seen in training (2 such graphs). Pass unseen='ignore' to encode unseen labels as zeros."
    )
    with pytest.warns(
        UserWarning, match=r"encoded as zeros in 2 of 3 graphs\. Graph 1: node label 9, on 1 node"
    ):
        x = recipe.apply(new, unseen="ignore")
    assert x.tolist() == [[1, 0], [0, 1], [0, 1], [0, 0], [0, 0], [1, 0]]


def test_store_without_the_fitted_columns_is_refused() -> None:
    full, bare = make(), make(labels=False, attributes=False)
    one = store_from_graphs(
        [GraphArrays(1, torch.empty(2, 0, dtype=torch.long), node_attributes=torch.ones(1, 1))], "one"
    )
    with pytest.raises(
        ArgumentError, match=r"must have 2 node label columns, as .*, got no node label columns"
    ):
        FeatureRecipe().fit(full).apply(bare)
    fitted = FeatureRecipe(labels=False).fit(full)
    with pytest.raises(
        ArgumentError, match=r"must have 3 node attribute columns, as .*, got no node attribute"
    ):
        fitted.apply(bare)
    with pytest.raises(
        ArgumentError, match=r"3 node attribute columns.*, got 1 node attribute column in one\."
    ):
        fitted.apply(one)
    with pytest.raises(
        ArgumentError, match=r"must have 2 node label columns, as .*, got no node label columns"
    ):
        FeatureRecipe(attributes=False).fit(full).apply(bare)
    with pytest.raises(
        ArgumentError, match=r"must have no node label columns, as .*, got 2 node label columns"
    ):
        FeatureRecipe(attributes=False).fit(bare).apply(full)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_attributes_must_be_finite(wrong: float) -> None:
    from dataclasses import replace

    store = make()
    recipe = FeatureRecipe().fit(store)
    assert store.node_attributes is not None
    attributes = store.node_attributes.clone()
    row = int(store.node_ptr[2])
    attributes[row, 1] = wrong
    broken = replace(store, node_attributes=attributes)
    text = rf"got graph 2 of random: attribute 1 of node 0 is {wrong}, which is not a finite number\."
    with pytest.raises(ArgumentError, match=text):
        recipe.apply(broken)
    with pytest.raises(ArgumentError, match=text):
        FeatureRecipe().fit(broken)
    assert FeatureRecipe(attributes=False).fit(broken).num_attributes == 0


def test_number_beyond_float32_is_refused_in_float32_only() -> None:
    empty = torch.empty(2, 0, dtype=torch.long)
    huge = torch.tensor([[1e300]], dtype=torch.float64)
    store = store_from_graphs([GraphArrays(1, empty, node_attributes=huge)])
    recipe = FeatureRecipe().fit(store)
    with pytest.raises(ArgumentError, match=r"attribute 0 of node 0 is 1e.300, too large to compute with"):
        recipe.apply(store)
    assert float(recipe.apply(store, dtype=torch.float64)[0, 0]) == 1e300


def test_wrong_use_is_refused() -> None:
    store = make()
    with pytest.raises(ArgumentError, match=r"'recipe' must be fitted, got an unfitted one\. Call fit"):
        FeatureRecipe().apply(store)
    with pytest.raises(ArgumentError, match="must be fitted"):
        _ = FeatureRecipe().num_columns
    with pytest.raises(ArgumentError, match=r"'unseen' must be 'refuse' or 'ignore', got 'drop'"):
        FeatureRecipe().fit(store).apply(store, unseen="drop")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"'dtype' must be torch.float32 or torch.float64"):
        FeatureRecipe().fit(store).apply(store, dtype=torch.float16)
    with pytest.raises(ArgumentError, match="at least one graph"):
        FeatureRecipe().fit(store[[]])


# ---------------------------------------------------------------------- standardised attributes
def attributes_of(*columns: list[float]) -> GraphStore:
    """Graphs of two nodes without edges and with these attribute columns."""
    values = torch.tensor(columns, dtype=torch.float64).T.contiguous()
    empty = torch.empty(2, 0, dtype=torch.long)
    return store_from_graphs([GraphArrays(2, empty, node_attributes=rows) for rows in values.split(2)])


def test_attributes_are_standardised_by_the_fitted_graphs() -> None:
    store = attributes_of([1e4, 3e4, 5e4, 7e4], [2001, 2002, 2003, 2004], [1e-3, 1e-3, 3e-3, 3e-3])
    recipe = FeatureRecipe(standardise=True, degree=False, degree_onehot=None, propagation=0).fit(store)
    assert recipe.attribute_mean == pytest.approx((4e4, 2002.5, 2e-3))
    assert recipe.attribute_std == pytest.approx((5e8**0.5, 1.25**0.5, 1e-3))
    x = recipe.apply(store, dtype=torch.float64)
    torch.testing.assert_close(x.mean(0), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(3, dtype=torch.float64))
    # A later graph is encoded with the moments of the fitted ones, not with its own.
    torch.testing.assert_close(recipe.apply(store[1:], dtype=torch.float64), x[2:])


def test_standardised_attributes_are_propagated() -> None:
    store = make()
    recipe = FeatureRecipe(standardise=True).fit(store)
    assert store.node_attributes is not None
    mean, std = torch.tensor(recipe.attribute_mean), torch.tensor(recipe.attribute_std)
    by_hand = dataclasses.replace(store, node_attributes=(store.node_attributes - mean) / std)
    expected = FeatureRecipe().fit(by_hand).apply(by_hand, dtype=torch.float64)
    torch.testing.assert_close(recipe.apply(store, dtype=torch.float64), expected, rtol=1e-6, atol=1e-6)


def test_constant_columns_become_zero_in_every_graph() -> None:
    recipe = FeatureRecipe(standardise=True, degree=False, degree_onehot=None, propagation=0)
    third = 0.1 + 0.2  # differs from 0.3 by rounding
    recipe = recipe.fit(attributes_of([7, 7, 7, 7], [0.3, third, 0.3, third], [1, 2, 3, 4]))
    assert recipe.attribute_std is not None
    assert recipe.attribute_std[:2] == (0, 0)
    later = recipe.apply(attributes_of([9, 7], [1e6, 0.3], [1, 4]))
    assert later[:, :2].count_nonzero() == 0
    assert later[:, 2].count_nonzero() == 2


def test_columns_of_zeros_and_ones_are_kept() -> None:
    store = attributes_of([0, 1, 1, 0], [1, 1, 1, 1], [0, 0.5, 1, 0])
    recipe = FeatureRecipe(standardise=True, degree=False, degree_onehot=None, propagation=0).fit(store)
    assert recipe.attribute_mean is not None
    assert recipe.attribute_std is not None
    assert (recipe.attribute_mean[0], recipe.attribute_std[0]) == (0, 1)
    assert recipe.attribute_std[1] == 0
    assert recipe.apply(store)[:, 0].tolist() == [0, 1, 1, 0]
    assert recipe.apply(store)[0, 2] < 0


def test_very_large_attributes_have_finite_moments() -> None:
    recipe = FeatureRecipe(standardise=True).fit(attributes_of([1e300, -1e300, 1e300, -1e300]))
    assert recipe.attribute_std == pytest.approx((1e300,))


def test_graphs_without_attributes_or_nodes_can_be_standardised() -> None:
    assert FeatureRecipe(standardise=True).fit(make(attributes=False)).attribute_std == ()
    empty = torch.empty(2, 0, dtype=torch.long)
    no_nodes = store_from_graphs([GraphArrays(0, empty, node_attributes=torch.empty(0, 2))])
    assert FeatureRecipe(standardise=True).fit(no_nodes).num_attributes in (0, 2)


# ---------------------------------------------------------------------- saving
FITTED = {
    "standardise": True,
    "num_attributes": 1,
    "label_values": [],
    "attribute_mean": [1.0],
    "attribute_std": [2.0],
}


@pytest.mark.parametrize(
    "recipe",
    [
        FeatureRecipe(),
        FeatureRecipe(degree_onehot=None).fit(make()),
        FeatureRecipe(standardise=True),
        FeatureRecipe(standardise=True).fit(make()),
    ],
)
def test_recipe_is_restored_from_json(recipe: FeatureRecipe) -> None:
    again = FeatureRecipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert again == recipe
    assert hash(again) == hash(recipe)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"degrees": True}, "'degrees' must be one of attributes, labels, degree"),
        ({"degree": 1}, "'degree' must be true or false, got 1"),
        ({"degree_onehot": -1}, "'degree_onehot' must be a non-negative integer or None, got -1"),
        ({"propagation": 1.5}, "'propagation' must be a non-negative integer, got 1.5"),
        ({"propagation": True}, "'propagation' must be a non-negative integer, got True"),
        ({"num_attributes": 1}, "'label_values' must be given together with 'num_attributes'"),
        ({"num_attributes": 0, "label_values": [[2, 1]]}, "must hold ascending integers"),
        ({"num_attributes": 0, "label_values": [["a"]]}, "must hold ascending integers"),
        ({"num_attributes": 0, "label_values": [[]]}, "must hold ascending integers"),
        ({"num_attributes": 0, "label_values": 3}, "'label_values' must be a list of lists, got 3"),
        ({"standardise": 1}, "'standardise' must be true or false, got 1"),
        (
            {"attribute_mean": [1.0]},
            "'attribute_mean' must be given if and only if attributes are standardised",
        ),
        (FITTED | {"attribute_mean": None}, "'attribute_mean' must be given if and only if"),
        (FITTED | {"attribute_mean": 1.0}, "'attribute_mean' must be a list, got 1.0"),
        (FITTED | {"attribute_mean": [1.0, 2.0]}, "must hold a finite number for each attribute"),
        (FITTED | {"attribute_mean": [math.inf]}, "must hold a finite number for each attribute"),
        (FITTED | {"attribute_std": [-1.0]}, "must hold a finite number for each attribute"),
    ],
)
def test_invalid_dictionary_is_refused(values: dict[str, object], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        FeatureRecipe.from_dict(values)


# ---------------------------------------------------------------------- real data
@pytest.mark.parametrize(
    ("name", "base", "columns"),
    [("MUTAG", 7, 130), ("PTC_MR", 18, 174), ("ENZYMES", 21, 186), ("IMDB-BINARY", 1, 106)],
)
def test_columns_of_the_published_sets(shared_data: Path, name: str, base: int, columns: int) -> None:
    from graphcaps.data.readers.tu import read_tu

    store = read_tu(shared_data / f"{name}.zip")[list(range(40))]
    recipe = FeatureRecipe().fit(read_tu(shared_data / f"{name}.zip"))
    assert (recipe.num_base_columns, recipe.num_columns) == (base, columns)
    expected = torch.from_numpy(dense_features(store, recipe))
    torch.testing.assert_close(recipe.apply(store, dtype=torch.float64), expected, rtol=1e-12, atol=1e-12)


def test_dd_keeps_the_gaps_in_its_labels(shared_data: Path) -> None:
    from graphcaps.data.readers.tu import read_tu

    store = read_tu(shared_data / "DD.zip")
    recipe = FeatureRecipe(degree_onehot=10, propagation=1).fit(store)
    assert recipe.label_values == (tuple(range(1, 90)),)
    assert recipe.num_columns == 190


def test_the_widest_range_of_labels_is_fitted():
    ends = (-(2**63), 2**63 - 1)
    labels = torch.tensor(ends).reshape(2, 1)
    store = store_from_graphs([GraphArrays(2, torch.tensor([[0], [1]]), node_labels=labels)], "wide")
    assert FeatureRecipe().fit(store).label_values == (ends,)


def test_names_of_columns_are_kept_and_checked():
    import networkx as nx

    from graphcaps.data import from_networkx

    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, 1.5, "mass")
    nx.set_node_attributes(graph, "C", "atom")
    store = from_networkx(graph, node_label="atom", node_attributes="mass")
    recipe = FeatureRecipe(degree_onehot=None, propagation=0).fit(store)
    assert recipe.source_columns == {"node_labels": ("atom",), "node_attributes": ("mass",)}
    assert recipe.column_names()[0] == "attribute[mass]"
    again = FeatureRecipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert again == recipe
    assert again != dataclasses.replace(recipe, source_columns={})
    assert FeatureRecipe(labels=False).fit(store).source_columns == {"node_attributes": ("mass",)}
    for wrong in ({"node_attributes": ["a", "b"]}, {"node_attributes": "mass"}, {"edges": []}, 3):
        with pytest.raises(ArgumentError, match="source_columns"):
            FeatureRecipe.from_dict(recipe.to_dict() | {"source_columns": wrong})


def test_what_is_too_large_for_the_type_becomes_infinite() -> None:
    attributes = torch.zeros(3, 1, dtype=torch.float64)
    attributes[1] = 1e300
    ptr, none = torch.tensor([0, 3]), torch.zeros(0, dtype=torch.int32)
    store = GraphStore("large", ptr, torch.zeros(4, dtype=torch.long), none, node_attributes=attributes)
    recipe = FeatureRecipe(degree=False, standardise=False).fit(store)
    assert recipe.encode(store)[:, 0].tolist() == [0, torch.inf, 0]  # without a warning
    assert recipe.encode(store, torch.float64)[:, 0].tolist() == [0, 1e300, 0]
