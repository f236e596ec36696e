"""A model matches attributes by name, from the graphs it was trained on through its file to new graphs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import graphcaps
from graphcaps.data import coerce, from_networkx, to_networkx, to_pyg
from graphcaps.data.readers.graph_metadata import ReadingWarning
from graphcaps.errors import ArgumentError
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.fitted_model import FittedModel
from tests.small_models import train_small


def networks(count: int = 6, names: tuple[str, str] = ("mass", "charge")) -> list[nx.Graph]:
    """Paths and cycles with a label under ``atom`` and two attributes of very different values."""
    graphs = []
    for number in range(count):
        graph = nx.cycle_graph(4 + number % 2) if number % 2 else nx.path_graph(4)
        graph.graph["y"] = number % 2
        for node, entry in graph.nodes(data=True):
            entry |= {"atom": "CN"[node % 2], names[0]: 12.0 + node, names[1]: -1.0 * (node % 2)}
        graphs.append(graph)
    return graphs


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FittedModel:
    """Trained on attributes in an order that is not that of their names, and read back from its file."""
    path: Path = tmp_path_factory.mktemp("names") / "model.safetensors"
    store = from_networkx(networks(), node_label="atom", node_attributes=["mass", "charge"])
    train_small(store).save(path)
    return graphcaps.load(path)


def test_networks_are_read_by_the_names_of_the_training_graphs(model: FittedModel) -> None:
    assert model.recipe.source_columns == {"node_labels": ("atom",), "node_attributes": ("mass", "charge")}
    assert model.info()["expects"]["recipe"]["source_columns"]["node_attributes"] == ["mass", "charge"]
    trained = from_networkx(networks(), node_label="atom", node_attributes=["mass", "charge"])
    expected = model.scores(trained)
    assert coerce(networks(), node_label="atom").store.column_names("node_attributes") == ("charge", "mass")
    assert torch.equal(model.scores(networks()), expected)
    swapped = from_networkx(networks(), node_label="atom", node_attributes=["charge", "mass"])
    assert torch.equal(model.scores(swapped), expected)


def test_other_names_are_refused_in_one_sentence(model: FittedModel) -> None:
    with pytest.raises(ArgumentError) as caught:
        model.predict(networks(names=("weight_in_u", "charge")))
    assert str(caught.value) == (
        "FittedModel: 'graphs' must have the node attributes 'mass', 'charge', as the graphs that the model was "
        "trained on, got no 'mass' and 'weight_in_u', which the model does not know in graphs."
    )


def test_graphs_without_names_are_matched_by_position(model: FittedModel) -> None:
    trained = from_networkx(networks(), node_label="atom", node_attributes=["mass", "charge"])
    assert torch.equal(model.scores(to_pyg(trained)), model.scores(trained))


def test_networks_of_a_store_are_read_like_the_store(model: FittedModel) -> None:
    trained = from_networkx(networks(), node_label="atom", node_attributes=["mass", "charge"])
    converted = [to_networkx(trained, graph) for graph in range(len(trained))]
    assert torch.equal(model.scores(converted), model.scores(trained))


def test_a_file_of_networks_is_read_with_the_label_of_the_training_graphs(
    model: FittedModel, tmp_path: Path
) -> None:
    for number, graph in enumerate(networks(2)):
        graph.graph.clear()
        nx.write_graphml(graph, tmp_path / f"{number}.graphml")
    assert np.array_equal(model.predict_proba(tmp_path), model.predict_proba(networks(2)))


def test_a_round_trip_of_molecules_predicts_the_same() -> None:
    pytest.importorskip("rdkit")
    store = graphcaps.data.from_smiles(["CCO", "CCN", "CCC", "CC=O"], ["a", "b", "a", "b"])
    molecules = train_small(store)
    new = graphcaps.data.from_smiles(["CCS", "C[Si](C)C"])  # values that no training molecule has
    with pytest.warns(UserWarning, match="read as 'other'"):
        expected = molecules.scores(new)
    kinds: dict[str, Any] = {
        "pyg": to_pyg(new),
        "batch": to_pyg(new, as_batch=True),
        "networkx": [to_networkx(new, graph) for graph in range(2)],
    }
    for kind, graphs in kinds.items():
        with pytest.warns(UserWarning, match="read as 'other'"):
            assert torch.equal(molecules.scores(graphs), expected), kind


def test_warnings_name_the_line_of_the_user(model: FittedModel, tmp_path: Path) -> None:
    graphs = networks(2)
    for graph in graphs:
        nx.set_node_attributes(graph, "x", "note")
    path = tmp_path / "two.json"
    path.write_text(json.dumps([nx.node_link_data(graph, edges="links") for graph in graphs]))
    for given in (graphs, path):
        with pytest.warns(ReadingWarning, match="'note' is not read") as caught:
            model.predict(given)
        assert {warning.filename for warning in caught} == {__file__}
        assert len(caught) == 1


def test_a_reason_names_the_attribute(model: FittedModel) -> None:
    store = from_networkx(networks(), node_label="atom", node_attributes=["mass", "charge"])
    profiled = replace(model, profile=TrainingProfile.from_store(store))
    far = networks(2)
    for graph in far:
        nx.set_node_attributes(graph, 310.0, "mass")
    reasons = profiled.out_of_distribution(far)
    assert all(
        re.match(r"mean of attribute 'mass' is 310 \(90 % of the training graphs: 1", reason)
        for reason in reasons
    )


def test_a_huge_attribute_is_named(model: FittedModel) -> None:
    graphs = networks(2)
    graphs[1].nodes[2]["mass"] = 1e38
    with pytest.raises(ArgumentError) as caught:
        model.predict(graphs)
    assert str(caught.value) == (
        "FittedModel: 'graphs' must hold graphs that the model can read, got graph 1 of graphs: attribute 'mass' of "
        f"node 2 is {float(torch.tensor(1e38))}, too large to compute with."
    )


def test_an_invalid_smiles_is_an_unreadable_graph(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    molecules = train_small(graphcaps.data.from_smiles(["CCO", "CCN", "CCC"], ["a", "b", "a"]))
    checked = molecules.check(["CCO", "C1CC", "CCN"])
    assert list(checked.errors) == [1]
    assert checked.errors[1].startswith("'C1CC' is no valid SMILES, ")
    assert checked.store.sizes.tolist() == [3, 0, 3]
    assert list(molecules.check(["C1CC"]).errors) == [0]
    with pytest.raises(ArgumentError) as caught:
        molecules.predict(["CCO", "C1CC", "CCN"])
    assert "graph 1 of molecules: 'C1CC' is no valid SMILES" in str(caught.value)
    assert str(caught.value).endswith(
        "Leave such molecules out; FittedModel.check(graphs).errors lists them."
    )
    table = tmp_path / "new.csv"
    table.write_text("smiles\nCCO\nC1CC\n")
    assert list(molecules.check(table).errors) == [1]
    assert molecules.check(table).errors[1].startswith("line 3: 'C1CC' is no valid SMILES, ")
