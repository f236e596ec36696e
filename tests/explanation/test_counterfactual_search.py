"""Counterfactuals, against a search of all groups with networkx and one prediction at a time."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch

import graphcaps
from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.explanation import counterfactuals, explain_store
from graphcaps.explanation.counterfactual_search import find_counterfactuals
from graphcaps.inference.fitted_model import FittedModel
from tests.small_models import train_small

EXAMPLES = Path(__file__).parents[2] / "examples" / "molecules.csv"
SMALL = {"capsule_dim": 8, "num_capsules": (5, 3), "num_factors": 2, "parts": "blocks"}


@pytest.fixture(scope="module")
def planted() -> tuple[FittedModel, GraphStore]:
    store = planted_parts(num_graphs=24)
    torch.manual_seed(0)
    return train_small(store, arguments=SMALL, epochs=15), store


def search_slowly(
    model: FittedModel, store: GraphStore, graph: int
) -> list[tuple[str, tuple[int, ...], str]]:
    """The three smallest counterfactuals of a graph without labels: kind, nodes and class."""
    one = graphcaps.explain(model, store[graph])
    whole = to_networkx(store, graph)
    levels, capsule = [], one.levels[0].capsule.tolist()
    for above in range(1, len(one.levels)):
        same = nx.Graph()
        same.add_nodes_from(whole)
        same.add_edges_from((a, b) for a, b in whole.edges if capsule[a] == capsule[b])
        levels.append([frozenset(nodes) for nodes in nx.connected_components(same)])
        capsule = [one.levels[above].capsule.tolist()[j] for j in capsule]
    before = str(model.predict(store[graph])[0])
    pairs = [a | b for a, b in combinations(levels[0], 2)]
    small = [*(frozenset([node]) for node in whole), *(frozenset(edge) for edge in whole.edges)]
    for sets in ([group for level in levels for group in level], pairs, small):
        nodes_of = [nodes for nodes in set(sets) if len(nodes) < len(whole)]
        if not nodes_of:
            continue
        copies = [edited_copies(whole, nodes) for nodes in nodes_of]
        kinds = ("removal", "replacement")
        p = {kind: model.predict_proba([pair[at] for pair in copies]) for at, kind in enumerate(kinds)}
        found = []
        for at, nodes in enumerate(nodes_of):
            for kind in kinds:
                after = model.class_names[int(p[kind][at].argmax())]
                if after != before:
                    found.append((len(nodes), -float(p[kind][at].max()), tuple(sorted(nodes)), kind, after))
                    break
        if found:
            return [(kind, nodes, after) for _, _, nodes, kind, after in sorted(found)[:3]]
    return []


def edited_copies(whole: nx.Graph, nodes: frozenset[int]) -> tuple[nx.Graph, nx.Graph]:
    """The graph without nodes, and with one node in their place."""
    removed = nx.Graph()
    removed.add_nodes_from(node for node in whole if node not in nodes)
    removed.add_edges_from(edge for edge in whole.edges if not nodes & set(edge))
    replaced = removed.copy()
    replaced.add_node(-1)
    replaced.add_edges_from((-1, other) for node in nodes for other in whole[node] if other not in nodes)
    return removed, replaced


def test_the_search_finds_what_trying_everything_finds(planted: Any) -> None:
    model, store = planted
    explanations = explain_store(model, store)
    together = find_counterfactuals(model, model.check(store), explanations)
    number_found = 0
    for graph in range(12):
        expected = search_slowly(model, store, graph)
        found = counterfactuals(model, store[graph])
        assert [(one.kind, one.nodes, one.class_name) for one in found] == expected
        assert [(one.kind, one.nodes) for one in together[graph]] == [(one.kind, one.nodes) for one in found]
        number_found += len(expected)
    assert number_found, "no graph has a counterfactual: the test shows nothing"


def test_results_as_json_values_count_from_one(planted: Any) -> None:
    model, store = planted
    results = find_counterfactuals(model, model.check(store), explain_store(model, store))
    one = next(result for result in results if result.found)
    row = one.as_dict()["found"][0]
    assert row["nodes"] == [node + 1 for node in one[0].nodes]
    assert row["groups"][0]["capsule"] == one[0].groups[0][1] + 1
    assert "classified by the model" in one.sentence


def test_edited_molecules_are_valid_and_classified_from_their_smiles() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    with EXAMPLES.open() as file:
        rows = list(csv.DictReader(file))[:60]
    store = graphcaps.data.coerce([row["smiles"] for row in rows]).store
    labels = torch.tensor([row["kind"] == "ether" for row in rows]).long()
    torch.manual_seed(1)
    model = train_small(
        replace(store, y=labels, class_names=("alcohol", "ether")), arguments=SMALL, epochs=20
    )
    checked = model.check([row["smiles"] for row in rows])
    results = find_counterfactuals(model, checked, explain_store(model, checked))
    found = [(graph, one) for graph, result in enumerate(results) for one in result]
    assert found
    before = model.predict(checked)
    for graph, one in found:
        molecule = chem.MolFromSmiles(one.smiles)
        assert molecule is not None
        assert len(chem.GetMolFrags(molecule)) == 1
        assert str(model.predict([one.smiles])[0]) == one.class_name != str(before[graph])
        size = int(store.sizes[graph])
        assert molecule.GetNumAtoms() == size - len(one.nodes) + (one.kind == "replacement")


def test_molecules_of_a_data_set_without_smiles_are_checked_too(shared_data: Path) -> None:
    pytest.importorskip("rdkit")
    store = graphcaps.load_dataset("MUTAG", root=shared_data)[list(range(30))]
    torch.manual_seed(0)
    model = train_small(store, arguments=SMALL, epochs=10)
    results = find_counterfactuals(model, model.check(store), explain_store(model, store))
    assert sum(result.edits for result in results)
    assert sum(result.invalid for result in results), "no edit was refused"
    for result in results:
        assert all(one.replaced_by in ("", "one carbon") for one in result)


def test_graphs_that_cannot_be_edited_have_a_note(planted: Any) -> None:
    model, _ = planted
    single = nx.Graph()
    single.add_node(0)
    result = counterfactuals(model, single)
    assert result.sentence == "No counterfactuals: the graph has less than two nodes."
    assert len(result) == 0


def test_a_bare_network_and_several_graphs_are_refused(planted: Any) -> None:
    model, store = planted
    with pytest.raises(ArgumentError, match="be a fitted model, got HGCN"):
        counterfactuals(model.model, store[0])
    with pytest.raises(ArgumentError, match="be one graph, got 24 graphs"):
        counterfactuals(model, store)
