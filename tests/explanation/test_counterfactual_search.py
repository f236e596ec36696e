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
from graphcaps.chemistry.featurizers import find_featurizer
from graphcaps.chemistry.rdkit_pool import call_rdkit
from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.data.datasets.element_labels import EDGE_LABEL_BONDS, NODE_LABEL_ELEMENTS
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.truncate import TruncationWarning
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.explanation import counterfactual_search as module
from graphcaps.explanation import counterfactuals, explain_store
from graphcaps.explanation.counterfactual_search import find_counterfactuals
from graphcaps.explanation.molecule_drawings import describe_molecules
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


def written_as_mutag(smiles: list[str]) -> GraphStore:
    """Molecules as the data set MUTAG writes them: labels of atoms and bonds, no hydrogens and no charges."""
    parsed = graphcaps.data.coerce(smiles).store
    elements, bonds = NODE_LABEL_ELEMENTS["MUTAG"], EDGE_LABEL_BONDS["MUTAG"]
    standard = find_featurizer("standard")
    nodes = [elements.index(standard.atoms[0].word(code)) for code in parsed.node_labels[:, 0].tolist()]
    edges = [bonds.index(standard.bonds[0].word(code)) for code in parsed.edge_labels[:, 0].tolist()]
    return GraphStore(
        "MUTAG",
        parsed.node_ptr,
        parsed.edge_ptr,
        parsed.neighbours,
        y=torch.arange(len(smiles)) % 2,
        class_names=("a", "b"),
        node_labels=torch.tensor(nodes)[:, None],
        edge_labels=torch.tensor(edges)[:, None],
    )


NITRO = ["O=[N+]([O-])c1ccccc1", "CCC(=O)O", "Clc1ccc(Br)cc1CC#N", "OCCN", "C", "CC.N", "Fc1ccccc1C=C"]


def test_molecules_without_smiles_are_described_to_rdkit() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    answers = call_rdkit("check-valences", describe_molecules(written_as_mutag(NITRO), "MUTAG"), purpose="t")
    assert [answer.problem for answer in answers] == [""] * len(NITRO)
    expected = [chem.MolToSmiles(chem.MolFromSmiles(smiles)) for smiles in NITRO]
    assert [answer.texts[0] for answer in answers] == expected


def test_edited_molecules_of_all_graphs_are_checked_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rdkit")
    store = written_as_mutag([smiles for smiles in NITRO if smiles != "C"])
    torch.manual_seed(0)
    model = train_small(store, arguments=SMALL, epochs=5)
    checked = model.check(store)
    explanations = explain_store(model, checked)
    calls: list[int] = []

    def count(task: str, items: list[str], **options: Any) -> Any:
        calls.append(len(items))
        return call_rdkit(task, items, **options)

    monkeypatch.setattr(module, "call_rdkit", count)
    together = find_counterfactuals(model, checked, explanations)
    assert 1 <= len(calls) <= module._NUM_ROUNDS
    tried = [result.edits + result.invalid for result in together]
    assert min(tried) > 0
    assert sum(calls) >= sum(tried) + len(store)  # each molecule itself, and its copies
    calls.clear()
    alone = [
        find_counterfactuals(model, checked, explanations, indices=[graph])[0] for graph in range(len(store))
    ]
    assert len(calls) >= len(store)
    for one, same in zip(together, alone, strict=True):
        assert (one.edits, one.invalid, one.note) == (same.edits, same.invalid, same.note)
        assert [(a.kind, a.nodes, a.smiles) for a in one] == [(b.kind, b.nodes, b.smiles) for b in same]


def test_graphs_that_cannot_be_edited_have_a_note(planted: Any) -> None:
    model, _ = planted
    single = nx.Graph()
    single.add_node(0)
    result = counterfactuals(model, single)
    assert result.sentence == "No counterfactuals: the graph has less than two nodes."
    assert len(result) == 0


def test_a_truncated_graph_is_announced_once() -> None:
    store = planted_parts(num_graphs=24)
    model = train_small(store, max_nodes=10)
    with pytest.warns(TruncationWarning) as announced:
        counterfactuals(model, store[0])
    assert len(announced) == 1


def test_a_bare_network_and_several_graphs_are_refused(planted: Any) -> None:
    model, store = planted
    with pytest.raises(ArgumentError, match="be a fitted model, got HGCN"):
        counterfactuals(model.model, store[0])
    with pytest.raises(ArgumentError, match="be one graph, got 24 graphs"):
        counterfactuals(model, store)
