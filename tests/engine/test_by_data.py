"""Values that the graphs decide: batches by their number, columns by their degrees, the residual's divisor."""

from __future__ import annotations

from dataclasses import replace

import networkx
import pytest

import graphcaps
from graphcaps import HGCNClassifier
from graphcaps.data import from_networkx
from graphcaps.data.splits import Split
from graphcaps.engine.by_data import batch_by_size, fit_to_data, usual_degree
from graphcaps.engine.config import RunConfig
from graphcaps.errors import DataError
from graphcaps.evaluation import cross_validate
from graphcaps.evaluation.final import train_final
from graphcaps.paper.presets import load_preset


@pytest.fixture(scope="module")
def store():
    return graphcaps.load_dataset("planted-parts")[:60]


@pytest.mark.parametrize(
    ("graphs", "batch"),
    [(1, 16), (188, 16), (600, 16), (1000, 32), (1500, 32), (2000, 64), (4110, 128), (10**6, 128)],
)
def test_batches_grow_with_the_set(graphs, batch):
    assert batch_by_size(graphs) == batch


def test_numbers_stand_where_the_graphs_decide(store):
    config = load_preset("default")
    assert config.by_data == ("batch_size", "degree_onehot", "residual_nodes")
    fitted = fit_to_data(config, store)
    assert fitted.by_data == ()
    assert fitted.training.batch_size == 16
    assert fitted.model_arguments["residual_nodes"] == int(store.host_node_ptr.diff().max())
    assert fitted.features.degree_onehot == usual_degree(store)
    assert fit_to_data(fitted, store[:3]) == fitted
    assert "by_data" not in fitted.as_dict()
    assert RunConfig.from_dict(config.as_dict()) == config


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
    assert usual_degree(from_networkx([graph])) == usual


def test_the_usual_degree_of_data_sets():
    parts = graphcaps.load_dataset("planted-parts")
    degree = parts.degree.sort().values
    assert usual_degree(parts) == int(degree[int(0.99 * len(degree))])


def test_the_cap_on_nodes_bounds_the_divisor(store):
    config = load_preset("default")
    config = replace(config, features=replace(config.features, max_nodes=5))
    assert fit_to_data(config, store).model_arguments["residual_nodes"] == 5


def test_a_given_value_stays(store):
    config = load_preset("default").with_training(batch_size=7)
    assert config.by_data == ("degree_onehot", "residual_nodes")
    assert fit_to_data(config, store).training.batch_size == 7
    paper = load_preset("paper", "MUTAG")
    assert fit_to_data(paper, store) == paper


def test_test_graphs_of_a_split_decide_nothing(store):
    sizes = store.host_node_ptr.diff()
    order = sizes.argsort()
    split = Split(order[:30].sort().values, order[30:40].sort().values, order[40:].sort().values, "by size")
    config = load_preset("default").with_training(epochs=1)
    (record,) = cross_validate(store, config, split=split).records
    trained = train_final(store, config, device="cpu", split=split).model.config
    for found in (record.config, trained):
        assert found.model_arguments["residual_nodes"] == int(sizes[order[39]]) < int(sizes.max())


def test_other_models_have_no_residual(store):
    config = replace(load_preset("default"), model="gin", model_arguments={})
    assert "residual_nodes" not in fit_to_data(config, store).model_arguments


@pytest.mark.parametrize(
    "given",
    ["[training]\nbatch_size = 8", "[model]\nresidual_nodes = 8", "[features]\ndegree_onehot = 8"],
)
def test_a_number_beside_by_data_is_refused(given):
    with pytest.raises(DataError, match="expected no number where by_data names it"):
        RunConfig.from_toml(f'by_data = ["batch_size", "residual_nodes", "degree_onehot"]\n{given}', "own")


def test_an_unknown_name_is_refused():
    with pytest.raises(
        DataError, match="own, by_data: expected a list out of batch_size, residual_nodes, degree"
    ):
        RunConfig.from_toml('by_data = ["epochs"]', "own")


def test_models_and_records_hold_the_numbers(store):
    config = load_preset("default").with_training(epochs=1)
    kept = train_final(store, config, device="cpu").model.config
    records = cross_validate(store, config, folds=3).records
    for found in (kept, *(record.config for record in records)):
        assert found.by_data == ()
        assert found.training.batch_size == 16
        assert found.model_arguments["residual_nodes"] == int(store.host_node_ptr.diff().max())


def test_going_on_keeps_the_columns(store):
    config = load_preset("default")
    kept, dense = fit_to_data(config, store), from_networkx([networkx.complete_graph(40)])
    assert fit_to_data(config, dense).features.degree_onehot == 39
    assert fit_to_data(config, dense, like=kept).features.degree_onehot == kept.features.degree_onehot < 39


def test_going_on_keeps_the_divisor(store):
    sizes = store.host_node_ptr.diff()
    small = store[(sizes <= sizes.median()).nonzero().squeeze(-1)]
    model = HGCNClassifier(epochs=1, random_state=0, warm_start=True).fit(store)
    before = model.model_.config.model_arguments["residual_nodes"]
    model.fit(small)
    assert model.model_.config.model_arguments["residual_nodes"] == before > int(sizes.median())
