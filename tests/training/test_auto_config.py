"""Settings derived from the data: batch size, dropout, degree columns and the divisor of the residual."""

from __future__ import annotations

from dataclasses import replace

import networkx
import pytest
import torch

import graphcaps
from graphcaps.config import RunConfig
from graphcaps.data import from_networkx
from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.splits.folds import Split
from graphcaps.errors import DataError
from graphcaps.evaluation import cross_validate
from graphcaps.nn.hgcn import auto_class_residual, auto_dropout
from graphcaps.presets import load_preset
from graphcaps.training.auto_config import auto_batch_size, auto_degree_onehot, resolve_config
from graphcaps.training.final_training import train_final


@pytest.fixture(scope="module")
def store():
    return graphcaps.load_dataset("planted-parts")[:60]


@pytest.mark.parametrize(
    ("graphs", "batch"),
    [(1, 16), (188, 16), (600, 16), (1000, 32), (1500, 32), (2000, 64), (4110, 128), (10**6, 128)],
)
def test_batch_size_grows_with_the_number_of_graphs(graphs, batch):
    assert auto_batch_size(graphs) == batch


def test_resolve_config_fills_in_numbers(store):
    config = load_preset("default")
    by_model, of_features = ("dropout", "class_residual"), ("degree_onehot", "max_nodes")
    assert config.by_data == ("batch_size", *by_model, *of_features, "reconstruct_up_to")
    assert "dropout" not in config.model_arguments
    resolved = resolve_config(config, store)
    assert resolved.by_data == ()
    assert resolved.training.batch_size == 16
    assert resolved.model_arguments["dropout"] == 0.5
    assert "residual_nodes" not in resolved.model_arguments
    assert resolved.features.degree_onehot == auto_degree_onehot(store)
    assert resolve_config(resolved, store[:3]) == resolved
    assert resolved.as_dict()["by_data"] == []
    assert RunConfig.from_dict(config.as_dict()) == config


@pytest.mark.parametrize(("graphs", "dropout"), [(1, 0.5), (1500, 0.5), (1501, 0.1), (10**6, 0.1)])
def test_dropout_is_higher_for_few_graphs(graphs, dropout):
    assert auto_dropout(graphs, 6) == dropout


@pytest.mark.parametrize(("classes", "dropout"), [(2, 0.5), (6, 0.5), (7, 0.1), (100, 0.1)])
def test_dropout_is_lower_for_many_classes(store, classes, dropout):
    many = replace(store, class_names=tuple(str(label) for label in range(classes)))
    assert resolve_config(load_preset("default"), many).model_arguments["dropout"] == dropout


@pytest.mark.parametrize(("classes", "residual"), [(2, True), (6, True), (7, False), (100, False)])
def test_class_capsules_have_no_residual_if_there_are_many_classes(store, classes, residual):
    assert auto_class_residual(classes) is residual
    many = replace(store, class_names=tuple(str(label) for label in range(classes)))
    resolved = resolve_config(load_preset("default"), many)
    assert resolved.model_arguments["class_residual"] is residual
    start = resolve_config(load_preset("default").with_model(class_residual=True), many)
    assert resolve_config(load_preset("default"), many, like=start).model_arguments["class_residual"] is True


@pytest.mark.parametrize(
    ("degrees", "columns"),
    [
        ([1] * 99 + [99], 1),  # one node in a hundred may have a higher degree
        ([1] * 95 + [2, 2, 2, 4, 99], 4),  # two in a hundred may not
        ([300] * 301, 100),
        ([0] * 5, 1),  # at least one column
    ],
)
def test_degree_columns_cover_99_percent_of_nodes(degrees, columns):
    graph = networkx.havel_hakimi_graph(degrees)
    assert auto_degree_onehot(from_networkx([graph])) == columns


def test_degree_columns_of_planted_parts():
    parts = graphcaps.load_dataset("planted-parts")
    degree = parts.degree.sort().values
    assert auto_degree_onehot(parts) == int(degree[int(0.99 * len(degree))])


def largest_graph_config() -> RunConfig:
    """The default preset with the residual divided by the node count of the largest graph."""
    config = load_preset("default")
    return replace(config, by_data=(*config.by_data, "residual_nodes"))


def test_the_divisor_is_the_size_of_the_largest_graph(store):
    assert resolve_config(largest_graph_config(), store).model_arguments["residual_nodes"] == store.max_size


def test_own_graphs_keep_all_nodes(store):
    config = load_preset("default")
    assert resolve_config(config, replace(store, catalogue_name=None)).features.max_nodes is None
    assert (
        resolve_config(config, replace(store, catalogue_name="DD")).features.max_nodes == 1000
    )  # as published
    assert resolve_config(config.with_features(max_nodes=7), store).features.max_nodes == 7
    everything = config.with_features(max_nodes=None)
    assert resolve_config(everything, replace(store, catalogue_name="DD")).features.max_nodes is None
    like = resolve_config(config.with_features(max_nodes=7), store)
    assert resolve_config(config, store, like).features.max_nodes == 7  # fine-tuning reads graphs as before


def test_the_reconstruction_of_very_large_graphs_is_sampled(store):
    config = load_preset("default")
    assert "reconstruct_up_to" not in resolve_config(config, store).model_arguments
    edges = torch.tensor([[0], [1]])
    large = store_from_graphs([GraphArrays(4097, edges, "a"), GraphArrays(10, edges, "b")])
    assert resolve_config(config, large).model_arguments["reconstruct_up_to"] == 4096
    cut = resolve_config(config.with_features(max_nodes=1000), large)
    assert "reconstruct_up_to" not in cut.model_arguments


def test_max_nodes_bounds_the_divisor(store):
    config = largest_graph_config()
    config = config.with_features(max_nodes=5)
    assert resolve_config(config, store).model_arguments["residual_nodes"] == 5


def test_explicit_values_are_kept(store):
    config = load_preset("default").with_training(batch_size=7)
    assert config.by_data == ("dropout", "class_residual", "degree_onehot", "max_nodes", "reconstruct_up_to")
    assert resolve_config(config, store).training.batch_size == 7
    config = config.with_model(dropout=0.0, parts=None)
    assert config.by_data == ("class_residual", "degree_onehot", "max_nodes", "reconstruct_up_to")
    arguments = resolve_config(config, store).model_arguments
    assert arguments["dropout"] == 0.0
    assert "parts" not in arguments
    paper = load_preset("paper", "MUTAG")
    assert resolve_config(paper, store) == paper


def test_test_graphs_of_a_split_do_not_influence_settings(store):
    sizes = store.host_node_ptr.diff()
    order = sizes.argsort()
    split = Split(order[:30].sort().values, order[30:40].sort().values, order[40:].sort().values, "by size")
    config = largest_graph_config().with_training(epochs=1)
    (record,) = cross_validate(store, config, split=split).records
    trained = train_final(store, config, device="cpu", split=split).model.config
    for resolved in (record.config, trained):
        assert resolved.model_arguments["residual_nodes"] == int(sizes[order[39]]) < int(sizes.max())


def test_only_options_that_the_model_declares_are_derived(store):
    config = replace(load_preset("default"), model="gin", model_arguments={}, source="own.toml")
    with pytest.raises(DataError) as raised:
        resolve_config(config, store)
    assert str(raised.value) == (
        "own.toml, by_data: expected names among batch_size, degree_onehot, max_nodes for the model 'gin', "
        "found 'dropout'."
    )
    assert resolve_config(replace(config, by_data=("batch_size",)), store).model_arguments == {}


def test_a_continued_training_keeps_the_divisor_but_not_the_dropout(store):
    fitted = RunConfig(model_arguments={"residual_nodes": 77, "dropout": 0.9})
    arguments = resolve_config(largest_graph_config(), store, like=fitted).model_arguments
    assert (arguments["residual_nodes"], arguments["dropout"]) == (77, 0.5)
    own = largest_graph_config().with_model(residual_nodes=5)
    assert resolve_config(own, store, like=fitted).model_arguments["residual_nodes"] == 5


@pytest.mark.parametrize(
    "setting",
    [
        "[training]\nbatch_size = 8",
        "[model]\ndropout = 0.2",
        "[model]\nresidual_nodes = 8",
        "[features]\ndegree_onehot = 8",
    ],
)
def test_a_value_for_a_setting_in_by_data_is_refused(setting):
    names = '["batch_size", "dropout", "residual_nodes", "degree_onehot"]'
    with pytest.raises(DataError, match="expected no value, since by_data lists it"):
        RunConfig.from_toml(f"by_data = {names}\n{setting}", "own")


def test_an_unknown_setting_in_by_data_is_refused(store):
    names = "batch_size, degree_onehot, max_nodes, dropout, class_residual, residual_nodes, reconstruct_up_to"
    expected = f"names among {names} for the model 'hgcn'"
    with pytest.raises(DataError, match=f"own, by_data: expected {expected}, found 'epochs'"):
        resolve_config(RunConfig.from_toml('by_data = ["epochs"]', "own"), store)
    with pytest.raises(DataError, match=r"own, by_data: expected a list of names, found \[3\]"):
        RunConfig.from_toml("by_data = [3]", "own")


def test_models_and_records_store_resolved_numbers(store):
    config = largest_graph_config().with_training(epochs=1)
    trained = train_final(store, config, device="cpu").model.config
    records = cross_validate(store, config, folds=3).records
    for resolved in (trained, *(record.config for record in records)):
        assert resolved.by_data == ()
        assert resolved.training.batch_size == 16
        assert resolved.model_arguments["residual_nodes"] == store.max_size
        assert resolved.model_arguments["dropout"] == 0.5


def test_continued_training_keeps_the_degree_columns(store):
    config = load_preset("default")
    first, dense = resolve_config(config, store), from_networkx([networkx.complete_graph(40)])
    assert resolve_config(config, dense).features.degree_onehot == 39
    assert (
        resolve_config(config, dense, like=first).features.degree_onehot == first.features.degree_onehot < 39
    )


def test_continued_training_keeps_the_divisor(store):
    sizes = store.host_node_ptr.diff()
    small = store[(sizes <= sizes.median()).nonzero().squeeze(-1)]
    config = largest_graph_config().with_training(epochs=1)
    first = train_final(store, config, device="cpu").model
    largest = first.config.model_arguments["residual_nodes"]
    # With a divisor in the new configuration and, as in the default preset, without one.
    for new_config in (config, load_preset("default").with_training(epochs=1)):
        continued = train_final(small, new_config, device="cpu", start=first).model.config
        assert continued.model_arguments["residual_nodes"] == largest > int(sizes.median())
    explicit = resolve_config(config.with_model(residual_nodes=3), small, like=first.config)
    assert explicit.model_arguments["residual_nodes"] == 3
    per_graph = resolve_config(load_preset("default"), store)
    assert "residual_nodes" not in resolve_config(config, small, like=per_graph).model_arguments


def test_options_are_derived_by_default_unless_there_is_a_value(store):
    config = RunConfig(model="diffpool")
    assert resolve_config(config, store).model_arguments == {"num_clusters": store.max_size // 10}
    given = config.with_model(num_clusters=5)
    assert resolve_config(given, store).model_arguments == {"num_clusters": 5}
    fitted = resolve_config(given, store)
    assert resolve_config(config, store, like=fitted).model_arguments == {"num_clusters": 5}
