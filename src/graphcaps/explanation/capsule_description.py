"""What each capsule stands for over a data set: how often it is used, for which classes, and its typical groups.

A group is a set of connected nodes of a graph that belong to one capsule (:mod:`graphcaps.explanation.node_groups`).
Groups of the same kind are isomorphic, with equal node and edge labels (:mod:`graphcaps.explanation.group_kinds`).
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphcaps.chemistry.rdkit_pool import call_rdkit
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.explanation.explanation_data import StoreExplanationData
from graphcaps.explanation.group_kinds import describe_shape, group_kinds
from graphcaps.explanation.molecule_drawings import build_molecule, molecule_binary, molecules_known
from graphcaps.explanation.node_groups import NodeGroups, find_groups
from graphcaps.explanation.node_labels import node_labels

__all__ = ["CapsuleCard", "CapsuleCards", "TypicalGroup", "capsule_cards"]

_PURPOSE = "Naming groups of atoms"
_MAX_EXAMPLES = 8  # graphs that show a kind of group


@dataclass(frozen=True)
class TypicalGroup:
    """A kind of group of a capsule.

    Args:
        count (int): Number of groups of this kind.
        share (float): Their share of the groups of the capsule.
        graphs (int): Number of graphs with such a group.
        nodes (int): Number of nodes of the group.
        edges (int): Number of edges inside it.
        shape (str): Its shape in words, such as ``"ring of 6"``.
        labels (str): Its node labels with their counts, ``"C6"`` of atoms, else ``"5 × member"``; "" without labels.
        smarts (str, optional): SMARTS of the group, for molecules with RDKit.
        name (str): Its name in RDKit's lists of functional groups; "" if it has none.
        examples (tuple): Graph and nodes of groups of this kind, each in another graph, both counted from 0.
    """

    count: int
    share: float
    graphs: int
    nodes: int
    edges: int
    shape: str
    labels: str
    smarts: str | None
    name: str
    examples: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def description(self) -> str:
        """Name, SMARTS, or shape with labels: the first that is known, and shape beside a name."""
        plain = f"{self.shape}: {self.labels}" if self.labels else self.shape
        return f"{self.name} {self.smarts}" if self.name and self.smarts else self.smarts or plain


@dataclass(frozen=True)
class CapsuleCard:
    """One capsule over a data set.

    Args:
        level (int): Its level, counted from 1 above the nodes.
        capsule (int): Its number, counted from 0.
        nodes (int): Number of nodes that belong to it.
        node_share (float): Their share of all nodes.
        graphs (int): Number of graphs with at least one such node.
        graph_share (float): Their share of the graphs that have nodes.
        class_shares (dict): For each class, the share of its graphs that use the capsule; ``None`` for a class
            without graphs.
        groups (int): Number of groups.
        kinds (int): Number of different kinds of groups.
        large_groups (int): Number of groups with too many nodes to be compared; they have no kind.
        purity (float, optional): Share of its most frequent kind among the groups that have a kind; ``None`` without
            any.
        truth_purity (float, optional): Share of its nodes that are of the most frequent true kind, if the data set
            knows the kind of every node.
        typical (tuple): Its most frequent kinds of groups, at most as many as were asked for.
    """

    level: int
    capsule: int
    nodes: int
    node_share: float
    graphs: int
    graph_share: float
    class_shares: dict[str, float | None]
    groups: int
    kinds: int
    large_groups: int
    purity: float | None
    truth_purity: float | None
    typical: tuple[TypicalGroup, ...]


@dataclass(frozen=True)
class CapsuleCards:
    """The capsules of all levels below the classes.

    Args:
        graphs (int): Number of graphs with nodes.
        classes (str): Whether ``class_shares`` are over ``"true"`` or ``"predicted"`` classes.
        cards (tuple): One card per capsule, by level and number.
    """

    graphs: int
    classes: Literal["true", "predicted"]
    cards: tuple[CapsuleCard, ...]

    def as_dict(self) -> dict[str, Any]:
        """The cards as JSON values; capsules, graphs and nodes are counted from 1, as on the command line."""
        cards = []
        for card in self.cards:
            row = asdict(card) | {"capsule": card.capsule + 1}
            for group in row["typical"]:
                group["examples"] = [
                    {"graph": graph + 1, "nodes": [node + 1 for node in nodes]}
                    for graph, nodes in group["examples"]
                ]
            cards.append(row)
        return {"graphs": self.graphs, "classes": self.classes, "cards": cards}


def capsule_cards(
    explanations: StoreExplanationData, store: GraphStore | None = None, *, typical: int = 5
) -> CapsuleCards:
    """Describes every capsule over a data set.

    Args:
        explanations (StoreExplanation): Explanations of all graphs, such as those of
            :func:`graphcaps.explanation.explain_store`.
        store (GraphStore, optional): The graphs, for edge labels, names of labels and true kinds of nodes.
        typical (int): Largest number of kinds of groups of a capsule. (default: 5)

    Raises:
        ShapeError: If the numbers of graphs and explanations differ.
        ArgumentError: If ``typical`` is below 1.

    Example:
        >>> cards = capsule_cards(explain_store(model, store), store)            # doctest: +SKIP
        >>> [(card.capsule, card.graph_share, card.purity) for card in cards.cards]  # doctest: +SKIP
    """
    if store is not None and len(store) != len(explanations):
        raise ShapeError("capsule_cards", "store", f"have {len(explanations)} graphs", len(store))
    if typical < 1:
        raise ArgumentError("capsule_cards", "typical", "be 1 or more", typical)
    facts = _NodeFacts(explanations, store)
    cards: list[CapsuleCard] = []
    for level in range(len(explanations.assignments) - 1):
        cards += _level_cards(explanations, facts, level, typical)
    named = _with_names(cards, explanations, store)
    known = explanations.true_class is not None and bool((explanations.true_class >= 0).any())
    graphs = int((explanations.node_ptr.diff() > 0).sum())
    return CapsuleCards(graphs, "true" if known else "predicted", tuple(named))


class _NodeFacts:
    """Labels of nodes, also as numbers, labels of edges as numbers, and true kinds of nodes."""

    def __init__(self, explanations: StoreExplanationData, store: GraphStore | None) -> None:
        N = len(explanations.node_scores)
        self.edges = explanations.edge_rows.numpy()
        self.noun = "atom" if molecules_known(explanations, store) else "node"
        self.labels = node_labels(explanations, store)
        self.nodes = np.zeros(N, np.int64) if self.labels is None else self.labels.index
        self.bonds = _edge_labels(explanations, store)
        self.kinds: Tensor | None = None
        if store is not None and "kind" in store.truth:
            kinds, rows = store.truth["kind"].cpu(), torch.arange(N)
            if explanations.nodes is not None:  # graphs were truncated: rows of the store differ
                rows = store.host_node_ptr[:-1][explanations.node_graph] + explanations.nodes
            self.kinds = kinds[rows]


def _edge_labels(explanations: StoreExplanationData, store: GraphStore | None) -> np.ndarray:
    """A number for each edge: its bond type or its row of edge labels; 0 if they are unknown."""
    E = explanations.edges.size(1)
    if explanations.bonds is not None:
        return np.asarray(explanations.bonds.numpy())
    # Rows of a truncated store differ, and a store of another order has other edges.
    if store is None or store.edge_labels is None or explanations.nodes is not None:
        return np.zeros(E, np.int64)
    source = torch.arange(store.num_nodes).repeat_interleave(store.degree.cpu())
    first = store.host_node_ptr[:-1].repeat_interleave(store.host_node_ptr.diff())
    once = source - first[source] < store.neighbours.cpu()
    rows = store.edge_labels.cpu()[once]
    return np.asarray(torch.unique(rows, dim=0, return_inverse=True)[1].numpy())


def _level_cards(
    explanations: StoreExplanationData, facts: _NodeFacts, level: int, typical: int
) -> list[CapsuleCard]:
    groups = find_groups(explanations, level)
    kinds = group_kinds(groups, facts.edges, facts.nodes, facts.bonds)
    classes = _classes(explanations)
    nodes_of = np.bincount(groups.capsule, groups.sizes, explanations.assignments[level].size(-1))
    graphs = max(1, int((explanations.node_ptr.diff() > 0).sum()))
    cards = []
    for capsule, count in enumerate(nodes_of.astype(int).tolist()):
        rows = np.flatnonzero(groups.capsule == capsule)
        used = np.unique(groups.graph[rows])
        compared = rows[kinds.kind[rows] >= 0]
        frequent = Counter(kinds.kind[compared].tolist()).most_common()
        cards.append(
            CapsuleCard(
                level=level + 1,
                capsule=capsule,
                nodes=count,
                node_share=count / max(1, len(facts.nodes)),
                graphs=len(used),
                graph_share=len(used) / graphs,
                class_shares=_class_shares(explanations.class_names, classes, used),
                groups=len(rows),
                kinds=len(frequent),
                large_groups=len(rows) - len(compared),
                purity=frequent[0][1] / len(compared) if len(compared) else None,
                truth_purity=_truth_purity(facts.kinds, groups, rows),
                typical=tuple(
                    _typical_group(
                        facts, explanations, groups, compared[kinds.kind[compared] == kind], len(rows)
                    )
                    for kind, _ in frequent[:typical]
                ),
            )
        )
    return cards


def _classes(explanations: StoreExplanationData) -> np.ndarray:
    """True class of each graph with nodes, −1 if unknown; the predicted classes if none is known."""
    true = explanations.true_class
    classes = explanations.predicted if true is None or not bool((true >= 0).any()) else true
    return np.asarray(classes.masked_fill(explanations.node_ptr.diff() == 0, -1).numpy())


def _class_shares(names: tuple[str, ...], classes: np.ndarray, used: np.ndarray) -> dict[str, float | None]:
    totals = np.bincount(classes[classes >= 0], minlength=len(names))
    counts = np.bincount(classes[used][classes[used] >= 0], minlength=len(names))
    rows = zip(names, counts.tolist(), totals.tolist(), strict=True)
    return {name: count / total if total else None for name, count, total in rows}


def _truth_purity(kinds: Tensor | None, groups: NodeGroups, rows: np.ndarray) -> float | None:
    if kinds is None or not len(rows):
        return None
    nodes = np.concatenate([groups.nodes[groups.ptr[row] : groups.ptr[row + 1]] for row in rows.tolist()])
    counts = torch.bincount(kinds[torch.from_numpy(nodes)])
    return float(counts.max()) / len(nodes)


def _typical_group(
    facts: _NodeFacts,
    explanations: StoreExplanationData,
    groups: NodeGroups,
    rows: np.ndarray,
    total: int,
) -> TypicalGroup:
    """The kind whose groups are ``rows``."""
    graphs, places = np.unique(groups.graph[rows], return_index=True)
    first = groups.nodes[groups.ptr[rows[0]] : groups.ptr[rows[0] + 1]]
    # Edges of a graph are contiguous.
    spread = slice(*explanations.edge_ptr[[groups.graph[rows[0]], groups.graph[rows[0]] + 1]].tolist())
    ends = facts.edges[:, spread]
    ends = ends[:, np.isin(ends, first).all(0)]
    examples = []
    for graph, place in zip(graphs[:_MAX_EXAMPLES].tolist(), places[:_MAX_EXAMPLES].tolist(), strict=True):
        nodes = groups.nodes[groups.ptr[rows[place]] : groups.ptr[rows[place] + 1]]
        examples.append((graph, tuple((nodes - int(explanations.node_ptr[graph])).tolist())))
    return TypicalGroup(
        count=len(rows),
        share=len(rows) / total,
        graphs=len(graphs),
        nodes=len(first),
        edges=ends.shape[1],
        shape=describe_shape(len(first), np.searchsorted(first, ends), facts.noun),
        labels="" if facts.labels is None else facts.labels.caption(first),
        smarts=None,
        name="",
        examples=tuple(examples),
    )


def _with_names(
    cards: list[CapsuleCard], explanations: StoreExplanationData, store: GraphStore | None
) -> list[CapsuleCard]:
    """The cards with SMARTS and names of the groups, if the graphs are molecules and RDKit is installed."""
    if importlib.util.find_spec("rdkit") is None or not molecules_known(explanations, store):
        return cards
    examples = {group.examples[0] for card in cards for group in card.typical}
    requests = {example: _request(explanations, store, *example) for example in sorted(examples)}
    asked = {example: text for example, text in requests.items() if text}
    answers = call_rdkit("name-groups", list(asked.values()), purpose=_PURPOSE)
    named = {
        example: answer.texts for example, answer in zip(asked, answers, strict=True) if not answer.problem
    }

    def with_name(group: TypicalGroup) -> TypicalGroup:
        smarts, name = named.get(group.examples[0], (None, ""))
        return TypicalGroup(**{**vars(group), "smarts": smarts, "name": name})

    return [
        CapsuleCard(**{**vars(card), "typical": tuple(with_name(group) for group in card.typical)})
        for card in cards
    ]


def _request(
    explanations: StoreExplanationData, store: GraphStore | None, graph: int, nodes: tuple[int, ...]
) -> str:
    """The molecule and the group as the task ``name-groups`` reads them; "" if the molecule is not known."""
    smiles = None if explanations.smiles is None else explanations.smiles[graph]
    if smiles is not None:
        return json.dumps({"smiles": smiles, "groups": [nodes]})
    if store is None or explanations.nodes is not None or explanations.elements is not None:
        return ""  # a truncated molecule
    molecule = build_molecule(store[graph], store.name)
    return json.dumps({"binary": molecule_binary(molecule), "groups": [nodes]})
