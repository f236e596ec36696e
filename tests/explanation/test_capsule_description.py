"""Capsule cards: counts against loops over single explanations, kinds and names of known groups."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import networkx as nx
import pytest
import torch

import graphcaps
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.explanation import capsule_cards, explain_store
from graphcaps.explanation.explanation import StoreExplanation
from tests.explanation.synthetic import make_explanations, make_store
from tests.small_models import train_small


def with_capsules(explanations: StoreExplanation, capsule: torch.Tensor) -> StoreExplanation:
    """The same explanations with another capsule of each node."""
    J = explanations.assignments[0].size(-1)
    hard = torch.nn.functional.one_hot(capsule, J).double()
    iterations = explanations.iterations[0].clone()
    iterations[-1] = hard
    return replace(
        explanations,
        assignments=(hard, *explanations.assignments[1:]),
        iterations=(iterations, *explanations.iterations[1:]),
        assigns_groups=False,
    )


def test_counts_equal_those_of_single_explanations() -> None:
    store = make_store(20)
    explanations = make_explanations(store, capsules=(4, 2))
    cards = capsule_cards(explanations, store)
    assert [(card.level, card.capsule) for card in cards.cards] == [(1, j) for j in range(4)] + [
        (2, 0),
        (2, 1),
    ]
    assert (cards.graphs, cards.classes) == (20, "true")
    for card in cards.cards:
        nodes = graphs = groups = 0
        of_class: Counter[str] = Counter()
        for one in explanations:
            capsule = one.levels[0].capsule
            if card.level == 2:
                capsule = one.levels[1].capsule[capsule]
            own = (capsule == card.capsule).nonzero().flatten().tolist()
            whole = nx.Graph()
            whole.add_nodes_from(range(one.num_nodes))
            whole.add_edges_from(one.edges.T.tolist())
            nodes, graphs = nodes + len(own), graphs + bool(own)
            if card.level == 1:
                assert one.levels[0].groups is not None
                groups += one.levels[0].groups[own].unique().numel()
            elif own:
                groups += nx.number_connected_components(whole.subgraph(own))
            assert one.true_class is not None
            of_class[one.class_names[one.true_class]] += bool(own)
        assert (card.nodes, card.graphs, card.groups) == (nodes, graphs, groups)
        assert card.node_share == nodes / store.num_nodes
        assert card.graph_share == graphs / 20
        assert store.y is not None
        totals = Counter(store.class_names[index] for index in store.y.tolist())
        assert card.class_shares == {name: of_class[name] / totals[name] for name in store.class_names}
        assert sum(group.count for group in card.typical) <= groups
        assert card.purity == card.typical[0].count / groups


def test_planted_parts_are_pure_kinds_with_examples_from_different_graphs() -> None:
    store = planted_parts(num_graphs=21)
    explanations = make_explanations(store, capsules=(6,))
    true = with_capsules(explanations, store.truth["kind"].long())
    cards = capsule_cards(true, store, typical=2)
    for card in cards.cards:
        if not card.groups:
            assert (card.purity, card.truth_purity, card.typical) == (None, None, ())
            continue
        assert card.truth_purity == 1.0
        assert len(card.typical) <= 2
        for group in card.typical:
            assert len({graph for graph, _ in group.examples}) == len(group.examples)
            for graph, nodes in group.examples:
                first = int(store.node_ptr[graph])
                assert len(nodes) == group.nodes
                assert {int(store.truth["kind"][first + node]) for node in nodes} == {card.capsule}


def test_graphs_without_labels_use_predicted_classes_and_shapes() -> None:
    store = replace(make_store(8, labels=0), y=None, class_names=())
    labelled = make_store(8, labels=0)
    explanations = replace(make_explanations(labelled), true_class=None)
    cards = capsule_cards(explanations, store)
    assert cards.classes == "predicted"
    shapes = {group.description for card in cards.cards for group in card.typical}
    assert {"pair", "path of 3", "ring of 4"} <= shapes


def test_groups_of_molecules_have_names() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    smiles = ["OC(=O)c1ccccc1", "CCc1ccccc1", "NC(=O)c1ccccc1C(=O)O"]
    store = replace(
        graphcaps.data.coerce(smiles).store, y=torch.tensor([0, 1, 0]), class_names=("acid", "other")
    )
    model = train_small(store)
    explanations = explain_store(model, store)
    atoms = [atom for text in store.smiles or () for atom in chem.MolFromSmiles(text).GetAtoms()]
    aromatic = torch.tensor([int(atom.GetIsAromatic()) for atom in atoms])
    cards = capsule_cards(with_capsules(explanations, aromatic), store)
    ring, rest = cards.cards[1], cards.cards[0]
    assert (ring.groups, ring.kinds, ring.purity) == (3, 1, 1.0)
    (group,) = ring.typical
    assert (group.name, group.count, group.graphs, group.shape) == ("benzene", 3, 3, "ring of 6")
    assert group.labels == "C6"
    assert {one.name for one in rest.typical} >= {"carboxylic acid", "amide"}
    values = json.loads(json.dumps(cards.as_dict()))
    assert values["cards"][1]["capsule"] == 2
    assert values["cards"][1]["typical"][0]["smarts"] == group.smarts


def test_wrong_arguments_are_refused() -> None:
    store = make_store(4)
    explanations = make_explanations(store)
    with pytest.raises(ShapeError, match="have 4 graphs, got 3"):
        capsule_cards(explanations, store[[0, 1, 2]])
    with pytest.raises(ArgumentError, match="be 1 or more, got 0"):
        capsule_cards(explanations, store, typical=0)


def test_graphs_without_nodes_do_not_count() -> None:
    model = train_small(make_store(3, labels=0))
    plain = nx.path_graph(4)
    explanations = explain_store(model, [plain, nx.Graph(), plain])
    cards = capsule_cards(explanations)
    assert cards.graphs == 2
    assert sum(card.nodes for card in cards.cards) == 8
    assert max(card.graph_share for card in cards.cards) <= 1
