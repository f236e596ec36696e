"""Warnings of HGCNClassifier.fit about its graphs."""

from __future__ import annotations

import warnings
from typing import Any

import networkx as nx
import pytest

from graphcaps import HGCNClassifier
from graphcaps.data.coercion import coerce
from graphcaps.data.readers.graph_metadata import ReadingWarning
from tests.estimator.small_classifier import small
from tests.small_models import labelled


def test_fit_warns_of_salts_contradictions_and_rows_left_out(tmp_path):
    pytest.importorskip("rdkit")
    smiles = ["CCO", "CC(=O)[O-].[Na+]", "c1ccccc1", "OCC", "CCN", "CCC"]
    y = [0, 1, 0, 1, 0, 1]
    with pytest.warns(ReadingWarning) as caught:
        small(epochs=1, validation=0).fit(smiles, y)
    salts = (
        "HGCNClassifier: 1 of 6 molecules has several fragments (salts, mixtures); coerce(X, fragments='largest') "
        "keeps the largest of each."
    )
    copies = (
        "HGCNClassifier: 1 molecule is in more than one row (1 further row), with different labels; "
        "all rows are kept."
    )
    assert [str(warning.message) for warning in caught if warning.category is ReadingWarning] == [
        salts,
        copies,
    ]
    assert {warning.filename for warning in caught} == {__file__}
    read = coerce(smiles, fragments="largest")
    with pytest.warns(ReadingWarning) as caught:  # of the classes, which only fit has seen
        small(epochs=1, validation=0).fit(read.store, y)
    assert [str(warning.message) for warning in caught if warning.category is ReadingWarning] == [copies]
    small(epochs=1, validation=0).fit(
        smiles[2:] * 2, y[2:] * 2
    )  # copies with one class, as in bootstrap samples


def edge_labelled(num_nodes: int = 6) -> list[nx.Graph]:
    """Twelve cycles and paths whose edges have labels."""
    graphs = []
    for number in range(12):
        graph = nx.cycle_graph(num_nodes) if number % 2 else nx.path_graph(num_nodes + number % 3)
        nx.set_edge_attributes(graph, {edge: index % 2 for index, edge in enumerate(graph.edges)}, "label")
        graphs.append(graph)
    return graphs


Y = [number % 2 for number in range(12)]


def warnings_of_fit(model: HGCNClassifier, *arguments: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*arguments, **options)
    ours = [
        warning for warning in caught if issubclass(warning.category, ReadingWarning)
    ]  # not those of torch
    assert {warning.filename for warning in ours} <= {__file__}
    return [str(warning.message) for warning in ours]


def test_fit_warns_of_edge_labels_that_are_not_used() -> None:
    sentence = (
        "HGCNClassifier: edge labels are not used by hgcn with this preset; edge_labels='messages' uses them "
        "(docs/inputs.md)."
    )
    assert warnings_of_fit(small(epochs=1), edge_labelled(), Y) == [sentence]
    for chosen in ("counts", "messages", "both", False):
        assert warnings_of_fit(small(epochs=1, edge_labels=chosen), edge_labelled(), Y) == []


def test_fit_says_nothing_of_bonds_which_the_preset_reads() -> None:
    pytest.importorskip("rdkit")
    smiles = ["CCO", "CCN", "CCC", "CCF", "C=C", "C=O"]
    assert warnings_of_fit(small(epochs=1), smiles, [0, 0, 0, 1, 1, 1]) == []


def test_fit_warns_of_nodes_that_are_left_out_and_of_a_sampled_reconstruction() -> None:
    graphs = [nx.path_graph(9), *(nx.path_graph(4) for _ in range(3))]
    y = [0, 1, 0, 1]
    cut = (
        "HGCNClassifier: 1 of 4 graphs has more than 5 nodes; 19 % of all nodes, those of lowest degree, are left out; "
        "max_nodes=0 keeps all."
    )
    assert warnings_of_fit(small(epochs=1, max_nodes=5), graphs, y) == [cut]
    large = [nx.path_graph(4100), *graphs[1:]]
    sampled = (
        "HGCNClassifier: 1 of 4 graphs has more than 4,096 nodes; its reconstruction loss is estimated from sampled "
        "pairs."
    )
    assert warnings_of_fit(small(epochs=1), large, y) == [sampled]


def test_fit_warns_of_validation_graphs_that_it_trains_on() -> None:
    store = labelled()
    assert warnings_of_fit(small(epochs=1), store[9:], validation=(store[:9], None)) == []
    words = "the epoch and the calibration are selected on graphs that the model has learned, and validation metrics"
    assert warnings_of_fit(small(epochs=1), store, validation=(store, None)) == [
        f"HGCNClassifier: 30 of 30 validation graphs are training graphs; {words} say less about new graphs."
    ]
    assert warnings_of_fit(small(epochs=1), store[8:], validation=(store[:9], None)) == [
        f"HGCNClassifier: 1 of 9 validation graphs is a training graph; {words} say less about new graphs."
    ]
