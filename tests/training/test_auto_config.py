"""Values that the graphs decide: batches and dropout by their number, columns by their degrees, the divisor."""

from __future__ import annotations

from dataclasses import replace

import networkx
import pytest

import graphcaps
from graphcaps.config import RunConfig
from graphcaps.data import from_networkx
from graphcaps.data.splits.folds import Split
from graphcaps.errors import DataError
from graphcaps.evaluation import cross_validate
from graphcaps.presets import load_preset
from graphcaps.training.auto_config import auto_batch_size, auto_degree_onehot, auto_dropout, resolve_config
from graphcaps.training.final_training import train_final


@pytest.fixture(scope="module")
def store():
    return graphcaps.load_dataset("planted-parts")[:60]


@pytest.mark.parametrize(
    ("graphs", "batch"),
    [(1, 16), (188, 16), (600, 16), (1000, 32), (1500, 32), (2000, 64), (4110, 128), (10**6, 128)],
)
def test_batches_grow_with_the_set(graphs, batch):
    assert auto_batch_size(graphs) == batch


def test_numbers_stand_where_the_graphs_decide(store):
    config = load_preset("default")
    assert config.by_data == ("batch_size", "dropout", "degree_onehot")
    assert "dropout" not in config.model_arguments
    fitted = resolve_config(config, store)
    assert fitted.by_data == ()
    assert fitted.training.batch_size == 16
    assert fitted.model_arguments["dropout"] == 0.5
    assert "residual_nodes" not in fitted.model_arguments
    assert fitted.features.degree_onehot == auto_degree_onehot(store)
    assert resolve_config(fitted, store[:3]) == fitted
    assert "by_data" not in fitted.as_dict()
    assert RunConfig.from_dict(config.as_dict()) == config


@pytest.mark.parametrize(("graphs", "dropout"), [(1, 0.5), (1500, 0.5), (1501, 0.1), (10**6, 0.1)])
def test_few_graphs_drop_more(graphs, dropout):
    assert auto_dropout(graphs) == dropout


@pytest.mark.parametrize(
    ("degrees", "usual"),
    [
        ([1] * 99 + [99], 1),  # one node in a hundred may exceed it
        ([1] * 95 + [2, 2, 2, 4, 99], 4),  # two may not
        ([300] * 301, 100),
        ([0] * 5, 1),  # a column for "none" and one for "some"
    ],
)
def test_columns_tell_usual_degrees_apart(degrees, usual):
    graph = networkx.havel_hakimi_graph(degrees)
    assert auto_degree_onehot(from_networkx([graph])) == usual


def test_the_usual_degree_of_data_sets():
    parts = graphcaps.load_dataset("planted-parts")
    degree = parts.degree.sort().values
    assert auto_degree_onehot(parts) == int(degree[int(0.99 * len(degree))])


def by_largest() -> RunConfig:
    """The default preset, with the residual divided by the nodes of the largest graph."""
    config = load_preset("default")
    return replace(config, by_data=(*config.by_data, "residual_nodes"))


def test_the_largest_graph_gives_the_divisor(store):
    assert resolve_config(by_largest(), store).model_arguments["residual_nodes"] == store.max_size


def test_the_cap_on_nodes_bounds_the_divisor(store):
    config = by_largest()
    config = replace(config, features=replace(config.features, max_nodes=5))
    assert resolve_config(config, store).model_arguments["residual_nodes"] == 5


def test_a_given_value_stays(store):
    config = load_preset("default").with_training(batch_size=7)
    assert config.by_data == ("dropout", "degree_onehot")
    assert resolve_config(config, store).training.batch_size == 7
    config = config.with_model(dropout=0.0, parts=None)
    assert config.by_data == ("degree_onehot",)
    arguments = resolve_config(config, store).model_arguments
    assert arguments["dropout"] == 0.0
    assert "parts" not in arguments
    paper = load_preset("paper", "MUTAG")
    assert resolve_config(paper, store) == paper


def test_test_graphs_of_a_split_decide_nothing(store):
    sizes = store.host_node_ptr.diff()
    order = sizes.argsort()
    split = Split(order[:30].sort().values, order[30:40].sort().values, order[40:].sort().values, "by size")
    config = by_largest().with_training(epochs=1)
    (record,) = cross_validate(store, config, split=split).records
    trained = train_final(store, config, device="cpu", split=split).model.config
    for found in (record.config, trained):
        assert found.model_arguments["residual_nodes"] == int(sizes[order[39]]) < int(sizes.max())


def test_arguments_of_other_models_stay(store):
    config = replace(by_largest(), model="gin", model_arguments={})
    assert resolve_config(config, store).model_arguments == {}


@pytest.mark.parametrize(
    "given",
    [
        "[training]\nbatch_size = 8",
        "[model]\ndropout = 0.2",
        "[model]\nresidual_nodes = 8",
        "[features]\ndegree_onehot = 8",
    ],
)
def test_a_number_beside_by_data_is_refused(given):
    names = '["batch_size", "dropout", "residual_nodes", "degree_onehot"]'
    with pytest.raises(DataError, match="expected no value, since by_data lists it"):
        RunConfig.from_toml(f"by_data = {names}\n{given}", "own")


def test_an_unknown_name_is_refused():
    with pytest.raises(
        DataError,
        match="own, by_data: expected a list of names among batch_size, dropout, residual_nodes, degree",
    ):
        RunConfig.from_toml('by_data = ["epochs"]', "own")


def test_models_and_records_hold_the_numbers(store):
    config = by_largest().with_training(epochs=1)
    kept = train_final(store, config, device="cpu").model.config
    records = cross_validate(store, config, folds=3).records
    for found in (kept, *(record.config for record in records)):
        assert found.by_data == ()
        assert found.training.batch_size == 16
        assert found.model_arguments["residual_nodes"] == store.max_size
        assert found.model_arguments["dropout"] == 0.5


def test_going_on_keeps_the_columns(store):
    config = load_preset("default")
    kept, dense = resolve_config(config, store), from_networkx([networkx.complete_graph(40)])
    assert resolve_config(config, dense).features.degree_onehot == 39
    assert resolve_config(config, dense, like=kept).features.degree_onehot == kept.features.degree_onehot < 39


def test_going_on_keeps_the_divisor(store):
    sizes = store.host_node_ptr.diff()
    small = store[(sizes <= sizes.median()).nonzero().squeeze(-1)]
    config = by_largest().with_training(epochs=1)
    kept = train_final(store, config, device="cpu").model
    largest = kept.config.model_arguments["residual_nodes"]
    # Whether the new run asks for a divisor or, as today's default, for each graph's own nodes.
    for asked in (config, load_preset("default").with_training(epochs=1)):
        gone_on = train_final(small, asked, device="cpu", start=kept).model.config
        assert gone_on.model_arguments["residual_nodes"] == largest > int(sizes.median())
    given = resolve_config(config.with_model(residual_nodes=3), small, like=kept.config)
    assert given.model_arguments["residual_nodes"] == 3
    own = resolve_config(load_preset("default"), store)
    assert "residual_nodes" not in resolve_config(config, small, like=own).model_arguments
