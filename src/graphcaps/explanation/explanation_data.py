"""The tensors of an explanation, for one graph and for a store; drawings and the report read these."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphcaps.explanation.agreement import member_agreement, nearly_uniform
from graphcaps.nn.capsule_use import CapsuleUse, count_nodes
from graphcaps.nn.hard_assignment import hard_assignment, lift
from graphcaps.ops.structure.modularity_groups import modularity_groups
from graphcaps.types import ShapeRepr

__all__ = ["NO_MEANS_NOTE", "NO_NODES_NOTE", "ExplainedLevel", "ExplanationData", "StoreExplanationData"]

NO_NODES_NOTE = (
    "The graph has no nodes: its capsules are zero, and its probabilities are the class frequencies of the training "
    "graphs."
)
"""The explanation of a graph without nodes."""
NO_MEANS_NOTE = (
    "The model has no mean routing coefficients, as files of earlier versions: nodes are compared with the average "
    "node of their graph alone, so that capsules of different graphs correspond less. Train the model again for means."
)
"""What is missing if nodes cannot be compared with the nodes of the training graphs."""


@dataclass(frozen=True, eq=False, repr=False)
class ExplainedLevel(ShapeRepr):
    """One capsule level of one graph: n input capsules routed to J output capsules.

    Args:
        assignment (Tensor): Routing weights of the last iteration, ``[n, J]``; rows sum to 1. Input capsules are the
            nodes at the lowest level and the capsules of the level below otherwise.
        iterations (Tensor): Routing weights of every iteration, ``[R, n, J]``; the first are all 1/J, the last are
            ``assignment``.
        lengths (Tensor): Length of each output capsule, ``[J]``.
        adjacency (Tensor, optional): Coarse graph of the output capsules, ``[J, J]``; ``None`` at the class level.
        contributions (Tensor): Contribution of each input capsule to the length of each output capsule, ``[n, J]``:
            its weighted vote along the output capsule (:mod:`graphcaps.ops.routing.contributions`).
        residual_contributions (Tensor): Contribution of the residual, the mean input capsule, ``[J]``. With it, the
            contributions to an output capsule add up to its length; at the class level, to the class score.
        mean_coefficients (Tensor, optional): Means of the routing weights of every iteration over the training graphs,
            ``[R, J]``; ``None`` if the model has none.
        groups (Tensor, optional): Group of each node that is assigned as a whole, as the first node of the group,
            ``[n]``; ``None`` above the lowest level, and if each node is assigned by itself.
    """

    assignment: Tensor
    iterations: Tensor
    lengths: Tensor
    adjacency: Tensor | None
    contributions: Tensor
    residual_contributions: Tensor
    mean_coefficients: Tensor | None = None
    groups: Tensor | None = None

    @property
    def capsule(self) -> Tensor:
        """Output capsule that each input capsule belongs to, ``[n]``
        (:func:`graphcaps.nn.hard_assignment.hard_assignment`)."""
        mean = None if self.mean_coefficients is None else self.mean_coefficients[-1]
        return hard_assignment(self.assignment, mean, self.groups)

    def capsule_after(self, iteration: int) -> Tensor:
        """Output capsule that each input capsule belongs to after a routing iteration, from 0 on, ``[n]``."""
        mean = None if self.mean_coefficients is None else self.mean_coefficients[iteration]
        return hard_assignment(self.iterations[iteration], mean, self.groups)

    @property
    def is_nearly_uniform(self) -> bool:
        """Whether all input capsules have nearly the same coefficients
        (:func:`graphcaps.explanation.agreement.nearly_uniform`)."""
        return bool(nearly_uniform(self.assignment, torch.tensor([0, self.assignment.size(0)])))

    @property
    def lift(self) -> Tensor:
        """How many times more of each input capsule goes to each output capsule than on average, ``[n, J]``
        (:func:`graphcaps.nn.hard_assignment.lift`); ``capsule`` has the largest lift of the mean over ``groups``."""
        return lift(self.assignment, None if self.mean_coefficients is None else self.mean_coefficients[-1])


@dataclass(frozen=True, eq=False, repr=False)
class ExplanationData(ShapeRepr):
    """The explanation of one graph of n nodes and E edges.

    Args:
        graph (int): Index of the graph in the explained store.
        class_names (tuple): The O classes.
        class_scores (Tensor): Lengths of the class capsules, ``[O]``.
        probabilities (Tensor): Class probabilities, calibrated if the model has a calibration, ``[O]``.
        predicted (int): Predicted class.
        target (int): Class that node and edge scores refer to.
        true_class (int, optional): True class, if known.
        edges (Tensor): Each edge once, smaller node first, ``[2, E]``.
        node_labels (Tensor, optional): Node labels of the store, ``[n, L]``.
        levels (tuple): One :class:`ExplainedLevel` per capsule layer; the last is the class level.
        node_scores (Tensor): Attribution of each node to ``target``, positive for and negative against it, ``[n]``.
        edge_scores (Tensor): Attribution of each edge, ``[E]``.
        reconstruction_error (Tensor, optional): 1 − P of each edge, with P the edge probability of the decoder,
            ``[E]``; ``None`` if the model has no decoder.
        nodes (Tensor, optional): Index of each node in the original graph, ``[n]``, if the graph was truncated to the
            model's ``max_nodes``; else ``None``.
        elements (Tensor, optional): Atomic number of each node, ``[n]``, if the graph was read from SMILES.
        bonds (Tensor, optional): Bond type of each edge, ``[E]``, a code of
            :data:`graphcaps.chemistry.featurizers.BOND_TYPE`.
        featurizer (str, optional): Featurizer of the node labels, if the graph was read from SMILES.
        smiles (str, optional): Canonical SMILES whose atoms are the nodes, if the graph was read from SMILES and is
            not truncated.
        member_node_scores (Tensor, optional): Of a committee, ``node_scores`` of each member for the same ``target``,
            ``[M, n]``. ``node_scores``, ``edge_scores`` and ``reconstruction_error`` are then means over the members,
            ``probabilities`` those of the committee, and ``levels`` and ``class_scores`` those of the first member.
        member_predicted (Tensor, optional): Class that each member of a committee predicts, ``[M]``.
        part_names (tuple): Of a model with companions, the names of the network and of its companions. Probabilities
            and ``predicted`` are then those of the whole model, all else is of the network. (default: ())
        network_share (float, optional): Share of the network in the probability of ``predicted``, if there are
            companions.
    """

    graph: int
    class_names: tuple[str, ...]
    class_scores: Tensor
    probabilities: Tensor
    predicted: int
    target: int
    true_class: int | None
    edges: Tensor
    node_labels: Tensor | None
    levels: tuple[ExplainedLevel, ...]
    node_scores: Tensor
    edge_scores: Tensor
    reconstruction_error: Tensor | None
    nodes: Tensor | None = None
    elements: Tensor | None = None
    bonds: Tensor | None = None
    featurizer: str | None = None
    smiles: str | None = None
    member_node_scores: Tensor | None = None
    member_predicted: Tensor | None = None
    part_names: tuple[str, ...] = ()
    network_share: float | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes n."""
        return self.node_scores.numel()

    @property
    def note(self) -> str:
        """A sentence in place of a tree or a drawing if the graph has no nodes, else ""."""
        return "" if self.num_nodes else NO_NODES_NOTE

    @property
    def num_agreeing(self) -> int | None:
        """Number of members of a committee that predict ``predicted``; ``None`` for a single model."""
        return None if self.member_predicted is None else int((self.member_predicted == self.predicted).sum())

    @property
    def agreement(self) -> float | None:
        """Agreement of the members' node scores (:func:`graphcaps.explanation.agreement.member_agreement`).

        ``None`` for a single model, and if the scores of a member do not vary.
        """
        if self.member_node_scores is None:
            return None
        value = float(member_agreement(self.member_node_scores, torch.tensor([0, self.num_nodes])))
        return value if math.isfinite(value) else None


@dataclass(frozen=True, eq=False, repr=False)
class StoreExplanationData(ShapeRepr):
    """The explanations of G graphs in flat tensors: N nodes and E edges of all graphs together.

    Nodes of graph g are the rows ``node_ptr[g]`` to ``node_ptr[g + 1]`` of every ``[N, …]`` tensor, and its edges are
    given by ``edge_ptr`` in the same way. Fields have the meaning of those in :class:`ExplanationData`.

    Args:
        class_names (tuple): The O classes.
        class_scores, probabilities (Tensor): ``[G, O]``.
        target (Tensor): ``[G]``.
        true_class (Tensor, optional): ``[G]``, −1 if unknown.
        node_ptr, edge_ptr (Tensor): ``[G + 1]``.
        edges (Tensor): Node indices within the graph, ``[2, E]``.
        node_labels (Tensor, optional): ``[N, L]``.
        assignments (tuple): Per level the weights of the last iteration: ``[N, J]``, then ``[G, J_below, J]``.
        iterations (tuple): Per level the weights of all iterations: ``[R, N, J]``, then ``[R, G, J_below, J]``.
        lengths (tuple): Per level ``[G, J]``.
        adjacency (tuple): Per level ``[G, J, J]``; ``None`` at the class level.
        contributions (tuple): Per level ``[N, J]``, then ``[G, J_below, J]``.
        residual_contributions (tuple): Per level ``[G, J]``.
        node_scores (Tensor): ``[N]``.
        edge_scores (Tensor): ``[E]``.
        reconstruction_error (Tensor, optional): ``[E]``.
        nodes (Tensor, optional): ``[N]``, if any graph was truncated.
        elements, bonds (Tensor, optional): ``[N]`` and ``[E]``, if the graphs were read from SMILES.
        featurizer (str, optional): Featurizer of the node labels, likewise.
        smiles (tuple, optional): One entry per graph, ``None`` for a truncated one.
        member_node_scores, member_predicted (Tensor, optional): ``[M, N]`` and ``[M, G]``, of a committee.
        part_names (tuple): Names of the network and of its companions, if there are any.
        network_share (Tensor, optional): ``[G]``, likewise.
        mean_coefficients (tuple, optional): Per level ``[R, J]``, of the explained model, the first member of a
            committee.
        assigns_groups (bool): Whether the nodes of a group belong to one capsule. (default: True)
    """

    class_names: tuple[str, ...]
    class_scores: Tensor
    probabilities: Tensor
    target: Tensor
    true_class: Tensor | None
    node_ptr: Tensor
    edge_ptr: Tensor
    edges: Tensor
    node_labels: Tensor | None
    assignments: tuple[Tensor, ...]
    iterations: tuple[Tensor, ...]
    lengths: tuple[Tensor, ...]
    adjacency: tuple[Tensor | None, ...]
    contributions: tuple[Tensor, ...]
    residual_contributions: tuple[Tensor, ...]
    node_scores: Tensor
    edge_scores: Tensor
    reconstruction_error: Tensor | None
    nodes: Tensor | None = None
    elements: Tensor | None = None
    bonds: Tensor | None = None
    featurizer: str | None = None
    smiles: tuple[str | None, ...] | None = None
    member_node_scores: Tensor | None = None
    member_predicted: Tensor | None = None
    part_names: tuple[str, ...] = ()
    network_share: Tensor | None = None
    mean_coefficients: tuple[Tensor, ...] | None = None
    assigns_groups: bool = True

    def __len__(self) -> int:
        return self.node_ptr.numel() - 1

    @property
    def predicted(self) -> Tensor:
        """Class with the highest probability, as in :meth:`FittedModel.predict`, ``[G]``."""
        return self.probabilities.argmax(-1)

    @property
    def capsule(self) -> Tensor:
        """Capsule of the lowest level that each node belongs to, ``[N]``."""
        return self.capsules_of(0)

    def capsules_of(self, level: int, iteration: int | None = None) -> Tensor:
        """Capsule that each input capsule of a level belongs to, ``[N]``, then ``[G, J_below]``.

        Args:
            level (int): The level, from 0 on.
            iteration (int, optional): Routing iteration, from 0 on. (default: the last)
        """
        means = None if self.mean_coefficients is None else self.mean_coefficients[level]
        c = self.assignments[level] if iteration is None else self.iterations[level][iteration]
        mean = None if means is None else means[-1 if iteration is None else iteration]
        if level:
            return hard_assignment(c, mean)
        return hard_assignment(c, mean, self.groups, self.node_graph)

    @cached_property
    def groups(self) -> Tensor | None:
        """Group of each node that is assigned as a whole, as the first row of the group, ``[N]``
        (:func:`graphcaps.ops.structure.modularity_groups.modularity_groups`); ``None`` if each node is assigned by
        itself."""
        if not self.assigns_groups:
            return None
        source, target = self.edge_rows.numpy()
        return torch.from_numpy(modularity_groups(source, target, self.node_graph.numpy()))

    @property
    def edge_rows(self) -> Tensor:
        """The two ends of each edge as rows among the nodes of all graphs, ``[2, E]``."""
        return self.edges + self.node_ptr[:-1].repeat_interleave(self.edge_ptr.diff())

    @property
    def capsule_use(self) -> CapsuleUse:
        """Capsules in use of the lowest level, over the nodes of all graphs."""
        return CapsuleUse.from_counts(count_nodes(self.capsule, self.assignments[0].size(-1)))

    @property
    def nearly_uniform(self) -> Tensor:
        """Graphs whose nodes have nearly the same coefficients to the capsules of the lowest level, ``[G]``
        (:func:`graphcaps.explanation.agreement.nearly_uniform`)."""
        return nearly_uniform(self.assignments[0], self.node_ptr)

    @property
    def node_graph(self) -> Tensor:
        """Graph of each node, ``[N]``."""
        return torch.arange(len(self)).repeat_interleave(self.node_ptr.diff())
