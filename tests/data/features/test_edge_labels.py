"""Edge labels as counts and as kinds of edges: against loops, saved, and refused where labels are unseen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphcaps.config import FeatureConfig, RunConfig
from graphcaps.data import FeatureRecipe
from graphcaps.data.concatenation import concat_stores
from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.features.compatibility import check_graphs
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.label_encoding import text_code
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError


def make(
    seed: int = 0, graphs: int = 4, *, nodes: bool = True, values: tuple[int, int] = (3, 6)
) -> GraphStore:
    draw = np.random.default_rng(seed)
    arrays = []
    for _ in range(graphs):
        n, E = int(draw.integers(2, 7)), int(draw.integers(1, 12))
        labels = torch.from_numpy(draw.integers(*values, (E, 2)))
        arrays.append(
            GraphArrays(
                n,
                torch.from_numpy(draw.integers(0, n, (2, E))),
                node_labels=torch.from_numpy(draw.integers(0, 2, (n, 1))) if nodes else None,
                edge_labels=labels,
            )
        )
    return store_from_graphs(arrays, "random")


@pytest.mark.parametrize("nodes", [True, False])
def test_counts_against_a_loop(nodes):
    store = make(nodes=nodes)
    recipe = FeatureRecipe(edge_labels="counts", degree=False, degree_onehot=None, propagation=0).fit(store)
    x = recipe.apply(store, dtype=torch.float64)
    names = recipe.column_names()
    assert x.shape == (store.num_nodes, len(names))
    for node in range(store.num_nodes):
        labels = store.edge_labels[store.edge_ptr[node] : store.edge_ptr[node + 1]]
        for column, values in enumerate(recipe.edge_label_values):
            for value in values:
                index = names.index(f"edges[{column}]={value}")
                assert x[node, index] == int((labels[:, column] == value).sum())


def test_counts_are_propagated_and_other_columns_unchanged():
    store = make()
    plain, with_edges = (
        FeatureRecipe(edge_labels=used, propagation=2).fit(store) for used in (None, "counts")
    )
    a, b = plain.apply(store), with_edges.apply(store)
    names = with_edges.column_names()
    assert f"A^2 {[name for name in names if name.startswith('edges')][-1]}" == names[-1]
    shared = [names.index(name) for name in plain.column_names()]
    assert torch.equal(a, b[:, shared])
    assert b.size(1) == with_edges.num_columns == len(names)


def test_equivariant_to_node_order():
    store = make(graphs=1, seed=3)
    recipe = FeatureRecipe(edge_labels="counts").fit(store)
    n = store.num_nodes
    order = torch.from_numpy(np.random.default_rng(0).permutation(n))
    source = torch.arange(n).repeat_interleave(store.degree)
    edges = torch.stack([order[source], order[store.neighbours.long()]])
    labels = torch.empty_like(store.node_labels)
    labels[order] = store.node_labels
    permuted = store_from_graphs([GraphArrays(n, edges, node_labels=labels, edge_labels=store.edge_labels)])
    torch.testing.assert_close(recipe.apply(permuted)[order], recipe.apply(store))


def test_saved_and_read_back():
    recipe = FeatureRecipe(edge_labels="counts").fit(make())
    values = json.loads(json.dumps(recipe.to_dict()))
    assert FeatureRecipe.from_dict(values) == recipe
    plain = FeatureRecipe().fit(make())
    assert FeatureRecipe.from_dict(json.loads(json.dumps(plain.to_dict()))) == plain
    with pytest.raises(
        ArgumentError, match="'edge_label_values' must be given if and only if edge labels are used"
    ):
        FeatureRecipe.from_dict(values | {"edge_labels": None})
    with pytest.raises(ArgumentError, match="'edge_label_values' must hold ascending integers"):
        FeatureRecipe.from_dict(values | {"edge_label_values": [[2, 1]]})


def test_unseen_edge_labels_and_missing_columns_are_refused():
    recipe = FeatureRecipe(edge_labels="counts").fit(make())
    bare = replace(make(), edge_labels=None)
    message = "have 2 edge label columns, as the graphs that the model was trained on, got no edge label columns in "
    with pytest.raises(ArgumentError, match=f"FittedModel: 'graphs' must {message}random"):
        check_graphs(bare, recipe)
    with pytest.raises(ArgumentError, match=f"FeatureRecipe.apply: 'store' must {message}random"):
        recipe.apply(bare)
    new = make()
    new.edge_labels[new.edge_labels == 4] = 77
    with pytest.raises(
        ArgumentError, match=r"got graph \d+ of random: edge label 77, on \d+ edges?, not seen in"
    ):
        recipe.apply(new)
    errors = check_graphs(new, recipe).errors
    assert errors
    assert all("edge label 77, on " in reason for reason in errors.values())
    ignored = check_graphs(new, recipe, unseen="ignore")
    assert (ignored.errors, ignored.unseen) == ({}, errors)
    with pytest.warns(UserWarning, match="unseen labels are encoded as zeros in .* edge label 77, on "):
        x = recipe.apply(new, unseen="ignore")
    assert torch.isfinite(x).all()


def test_graphs_without_edges_are_compatible():
    recipe = FeatureRecipe(edge_labels="counts").fit(make())
    alone = store_from_graphs(
        [GraphArrays(2, torch.empty(2, 0, dtype=torch.long), node_labels=torch.zeros(2, 1).long())]
    )
    assert alone.edge_labels is None
    assert check_graphs(alone, recipe).errors == {}
    x = recipe.apply(alone)
    assert x[:, [recipe.column_names().index("edges[0]=3")]].sum() == 0


def test_the_option_in_a_configuration():
    assert RunConfig().as_dict()["features"]["edge_labels"] is None
    config = RunConfig.from_toml('[features]\nedge_labels = "counts"\n')
    assert config.as_dict()["features"]["edge_labels"] == "counts"
    assert RunConfig.from_dict(config.as_dict()).features == config.features
    assert FeatureRecipe.from_config(FeatureConfig(edge_labels="counts")).edge_labels == "counts"


def test_bonds_of_mutag(shared_data):
    store = load_dataset("MUTAG", shared_data)
    recipe = FeatureRecipe(edge_labels="counts").fit(store)
    assert (recipe.edge_label_values, recipe.num_base_columns) == (((0, 1, 2, 3),), 11)
    x = recipe.apply(store)
    assert torch.equal(x[:, 7:11].sum(1), store.degree.float())


def test_networkx_graphs_carry_edge_labels_to_a_model():
    import networkx as nx

    from graphcaps.data.coercion import coerce
    from graphcaps.data.convert.networkx_graphs import to_networkx

    store = make()
    graphs = [to_networkx(store, graph) for graph in range(len(store))]
    assert torch.equal(coerce(graphs).store.edge_labels, store.edge_labels)
    graphs[0].edges[next(iter(graphs[0].edges))]["label"] = ("text", 1)
    assert coerce(graphs).store.label_names == {text_code("text"): "text"}
    assert coerce(nx.path_graph(3)).store.edge_labels is None


# ---------------------------------------------------------------------- kinds for the message passing
def test_kinds_against_a_loop():
    store = make(values=(3, 8))
    recipe = FeatureRecipe(edge_labels="messages").fit(store)
    assert recipe.edge_kinds == tuple(len(values) for values in recipe.edge_label_values)
    kind = recipe.edge_kind(store)
    assert kind.dtype == torch.int32
    for entry, labels in enumerate(store.edge_labels.tolist()):
        digits = [values.index(v) + 1 for values, v in zip(recipe.edge_label_values, labels, strict=True)]
        assert int(kind[entry]) == digits[0] * (recipe.edge_kinds[1] + 1) + digits[1]


def test_what_each_use_of_edge_labels_gives():
    store = make()
    columns = {}
    for use in (None, "counts", "messages", "both"):
        recipe = FeatureRecipe(edge_labels=use).fit(store)
        encoded = encode_graphs(store, recipe)
        assert FeatureRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
        assert (encoded.store.edge_kind is not None) == (use in ("messages", "both"))
        assert bool(recipe.edge_kinds) == (use in ("messages", "both"))
        columns[use] = recipe.column_names()
        assert encoded.x.size(1) == len(columns[use])
    assert columns["messages"] == columns[None]
    assert columns["both"] == columns["counts"] != columns[None]


def test_an_unseen_combination_has_a_kind_and_an_unseen_value_none():
    labels = torch.tensor([[0, 5], [1, 6]])
    store = store_from_graphs([GraphArrays(3, torch.tensor([[0, 1], [1, 2]]), edge_labels=labels)], "seen")
    recipe = FeatureRecipe(edge_labels="messages").fit(store)
    new = replace(store, edge_labels=torch.tensor([[0, 6], [0, 6], [1, 9], [1, 9]]))
    assert recipe.edge_kind(new).tolist() == [1 * 3 + 2, 1 * 3 + 2, 2 * 3 + 0, 2 * 3 + 0]
    message = "edge label 9, on 1 edge, not seen in training"
    assert list(check_graphs(new, recipe).errors.values()) == [message]
    assert check_graphs(new, recipe, unseen="ignore").errors == {}


def test_kinds_follow_their_graphs():
    store = make(seed=3, graphs=6)
    recipe = FeatureRecipe(edge_labels="messages").fit(store)
    encoded = encode_graphs(store, recipe).store
    picked = torch.tensor([4, 1])
    assert torch.equal(encoded[picked].edge_kind, recipe.edge_kind(store[picked]))
    cut = encode_graphs(store, recipe, max_nodes=3).store
    assert torch.equal(cut.edge_kind, recipe.edge_kind(cut))
    assert encoded.to("cpu").edge_kind is not None
    both = concat_stores([encoded, encoded])
    assert torch.equal(both.edge_kind, recipe.edge_kind(both))


def test_graphs_without_edge_labels_have_no_kinds():
    store = replace(make(), edge_labels=None)
    recipe = FeatureRecipe(edge_labels="messages").fit(store)
    assert recipe.edge_kinds == ()
    assert encode_graphs(store, recipe).store.edge_kind is None
    alone = store_from_graphs(
        [GraphArrays(2, torch.empty(2, 0, dtype=torch.long), node_labels=torch.zeros(2, 1).long())]
    )
    assert FeatureRecipe(edge_labels="messages").fit(make()).edge_kind(alone).numel() == 0


def test_too_many_combinations_are_refused():
    edges = torch.randint(0, 40, (2, 400), generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 90, (400, 2), generator=torch.Generator().manual_seed(1))
    store = store_from_graphs([GraphArrays(40, edges, edge_labels=labels)], "ids")
    with pytest.raises(
        ArgumentError, match=r"have at most 4,096 combinations of edge labels for edge_labels="
    ):
        FeatureRecipe(edge_labels="messages").fit(store)


def test_a_wrong_use_is_refused():
    with pytest.raises(
        ArgumentError, match=r"'edge_labels' must be one of counts, messages, both, or None, got True"
    ):
        FeatureRecipe(edge_labels=True)
    with pytest.raises(
        ArgumentError, match=r"features: 'edge_labels' must be one of counts, messages, both, or false"
    ):
        FeatureConfig(edge_labels="bonds")
    with pytest.raises(DataError, match=r"\[features\] edge_labels: expected a string, found true"):
        RunConfig.from_toml("[features]\nedge_labels = true\n")
    assert RunConfig.from_toml("[features]\nedge_labels = false\n").features.edge_labels is None


def test_steps_do_not_change_columns_and_kinds(monkeypatch):
    store = make(graphs=9)
    recipe = FeatureRecipe(edge_labels="both", degree=True, degree_onehot=2, propagation=2).fit(store)
    x, kind = recipe.encode(store), recipe.edge_kind(store)
    monkeypatch.setattr("graphcaps.data.features.recipe._NODES_PER_STEP", 5)
    monkeypatch.setattr("graphcaps.data.features.recipe._ENTRIES_PER_STEP", 7)
    assert torch.equal(recipe.encode(store), x)
    assert torch.equal(recipe.edge_kind(store), kind)
