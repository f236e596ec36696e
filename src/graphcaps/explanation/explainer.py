"""``graphcaps.explain``: computes explanations of a model's predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.explanation.attributions import edge_probability, node_attributions
from graphcaps.explanation.explanation import Explanation, StoreExplanation
from graphcaps.explanation.model_inputs import (
    ExplainedModel,
    ModelInputs,
    batch_spans,
    encode_for_model,
    unwrap_members,
)
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hgcn import HGCN
from graphcaps.ops.lengths.lengths import lengths

__all__ = [
    "class_probabilities",
    "class_scores",
    "explain",
    "explain_encoded",
    "explain_members",
    "explain_store",
]


def explain(
    model: ExplainedModel,
    graph: Any,
    *,
    target: int | str | Tensor | None = None,
    x: Tensor | None = None,
    unseen: Literal["refuse", "ignore"] = "refuse",
) -> Explanation | StoreExplanation:
    """Explains the predictions of an HGCN by its capsule hierarchy and by node and edge scores.

    Of a committee, node and edge scores are means over its members, and the hierarchy is that of its first member:
    capsules of different members do not correspond. ``agreement`` says how far the members agree on the nodes.

    Of a model with companions, probabilities and predicted class are those of the whole model; scores and capsules are
    of the network, whose share in the answer is ``network_share``.

    Args:
        model: A ``FittedModel`` (from :func:`graphcaps.load`), or an :class:`graphcaps.nn.HGCN` with ``x``.
        graph: One graph (torch-geometric ``Data``, networkx, or a store of one graph such as ``store[3]``), or several
            (a store or an iterable).
        target (int, str or Tensor, optional): Class that node and edge scores refer to: its index or name, or one index
            per graph ``[G]``. (default: the predicted class of each graph)
        x (Tensor, optional): Features of all nodes ``[N, in]``, for a bare ``HGCN`` only.
        unseen (str): As in :meth:`FittedModel.scores`. (default: ``"refuse"``)

    Returns:
        Explanation or StoreExplanation: The latter for several graphs.

    Raises:
        ArgumentError: If the model has no capsules, a graph does not match its recipe, or the class is unknown.

    Example:
        >>> explanation = graphcaps.explain(graphcaps.load("mutag.safetensors"), data)   # doctest: +SKIP
        >>> explanation.node_scores, explanation.levels[0].capsule                       # doctest: +SKIP
    """
    members = unwrap_members(model)
    encoded = encode_for_model(model, graph, x=x, unseen=unseen)
    explanations = explain_members(members, encoded, target=target)
    several = isinstance(graph, (list, tuple)) or len(explanations) != 1
    return explanations if several else explanations[0]


def explain_store(
    model: ExplainedModel,
    store: Any,
    *,
    target: int | str | Tensor | None = None,
    x: Tensor | None = None,
    unseen: Literal["refuse", "ignore"] = "refuse",
    true_classes: Sequence[str] | None = None,
) -> StoreExplanation:
    """:func:`explain` with a :class:`StoreExplanation` as result, even for a single graph.

    Args:
        model, store, target, x, unseen: As in :func:`explain`.
        true_classes (sequence, optional): Class name of each graph, "" if it is unknown, for a fitted model. (default:
            those of the store, if it has classes)
    """
    members = unwrap_members(model)
    encoded = encode_for_model(model, store, x=x, unseen=unseen, true_classes=true_classes)
    return explain_members(members, encoded, target=target)


def explain_members(
    members: Sequence[HGCN], encoded: ModelInputs, *, target: int | str | Tensor | None = None
) -> StoreExplanation:
    """Explains the prediction of a committee, or of a model with companions, for graphs that are already encoded.

    Args:
        members (sequence): At least one network.
        encoded (ModelInputs): The graphs, with ``to_probabilities`` of the committee.
        target: As in :func:`explain`.
    """
    if encoded.answer is not None:
        answer, classes = encoded.answer, _target_classes(target, encoded)
        network = replace(encoded, answer=None)
        return replace(
            explain_members(
                members, network, target=answer.probabilities.argmax(-1) if classes is None else classes
            ),
            probabilities=answer.probabilities,
            part_names=answer.part_names,
            network_share=answer.network_share,
        )
    if len(members) == 1:
        return explain_encoded(members[0], encoded, target=target)
    scores = torch.stack([class_scores(member, encoded) for member in members])
    p = _probabilities(scores, encoded.store.empty_graphs, encoded)
    targets = _target_classes(target, encoded)
    each = [
        explain_encoded(member, encoded, target=p.argmax(-1) if targets is None else targets)
        for member in members
    ]
    node_scores = torch.stack([one.node_scores for one in each])
    errors = [one.reconstruction_error for one in each if one.reconstruction_error is not None]
    return replace(
        each[0],
        probabilities=p,
        node_scores=node_scores.mean(0),
        edge_scores=torch.stack([one.edge_scores for one in each]).mean(0),
        reconstruction_error=torch.stack(errors).mean(0) if errors else None,
        member_node_scores=node_scores,
        member_predicted=torch.stack([one.predicted for one in each]),
    )


def class_probabilities(model: ExplainedModel, encoded: ModelInputs) -> Tensor:
    """Class probabilities of encoded graphs without an explanation, as :func:`explain` gives them, ``[G, O]``.

    Args:
        model: A ``FittedModel`` or an :class:`graphcaps.nn.HGCN`.
        encoded (ModelInputs): Graphs that were encoded for it.
    """
    scores = torch.stack([class_scores(member, encoded) for member in unwrap_members(model)])
    return _probabilities(scores if len(scores) > 1 else scores[0], encoded.store.empty_graphs, encoded)


@torch.no_grad()
def class_scores(network: GraphModel, encoded: ModelInputs) -> Tensor:
    """Class scores of all graphs by one network in evaluation mode, on the CPU, ``[G, O]``."""
    device, was_training = next(network.parameters()).device, network.training
    network.eval()
    parts = []
    for first, end in batch_spans(encoded.store):
        store = encoded.store[torch.arange(first, end, device=encoded.store.device)].to(device)
        begin, stop = encoded.store.host_node_ptr[[first, end]].tolist()
        batch = store.batch(encoded.x[begin:stop].to(device))
        parts.append(network.forward_batch(batch).class_scores.cpu())
    network.train(was_training)
    return torch.cat(parts)


def explain_encoded(
    network: HGCN, encoded: ModelInputs, *, target: int | str | Tensor | None = None
) -> StoreExplanation:
    """Explains graphs that are already encoded; all results are on the CPU."""
    targets = _target_classes(target, encoded)
    was_training = network.training
    network.eval()
    try:
        with torch.inference_mode(False):  # gradients are needed, also inside a caller's inference mode
            parts = [_explain_span(network, encoded, targets, *span) for span in batch_spans(encoded.store)]
    finally:
        network.train(was_training)
    return replace(
        _concatenate(parts, encoded),
        mean_coefficients=network.mean_coefficients,
        assigns_groups=network.assigns_groups,
    )


def _explain_span(
    network: HGCN, encoded: ModelInputs, targets: Tensor | None, first: int, end: int
) -> dict[str, Any]:
    device = next(network.parameters()).device
    store = encoded.store[torch.arange(first, end, device=encoded.store.device)].to(device)
    begin, stop = encoded.store.host_node_ptr[[first, end]].tolist()
    batch = store.batch(encoded.x[begin:stop].to(device))
    with torch.enable_grad():
        output = network.forward_batch(batch, trace=True)
        scores = output.class_scores.detach().cpu()
        predicted = _probabilities(scores, store.empty_graphs, encoded).argmax(-1)
        target = (predicted if targets is None else targets[first:end]).to(device)
        # Without any node there is a padding row.
        attributions = node_attributions(network, output, target)[: store.num_nodes]
    source, other, count = _edges_once(store)
    probability = edge_probability(network, output, batch, source, other)
    first_node = store.node_ptr[:-1].repeat_interleave(count)
    tensors: dict[str, Any] = {
        "class_scores": output.class_scores,
        "target": target,
        "edge_count": count,
        "edges": torch.stack([source - first_node, other - first_node]),
        "node_scores": attributions,
        "edge_scores": (attributions[source] + attributions[other]) / 2,
        "reconstruction_error": None if probability is None else 1 - probability,
        "iterations": [
            level.iterations if number or level.iterations is None else level.iterations[:, : store.num_nodes]
            for number, level in enumerate(output.levels)
        ],
        "lengths": [lengths(level.capsules) for level in output.levels],
        "adjacency": [level.adjacency for level in output.levels],
    }
    traced = [level.contributions for level in output.levels]
    assert all(level is not None for level in traced), "a trace has contributions"
    tensors["contributions"] = [
        # Without any node there is a padding row.
        level.inputs if number else level.inputs[: store.num_nodes]
        for number, level in enumerate(traced)
        if level is not None
    ]
    tensors["residual_contributions"] = [level.residual for level in traced if level is not None]
    return {name: _to_cpu(value) for name, value in tensors.items()}


def _edges_once(store: GraphStore) -> tuple[Tensor, Tensor, Tensor]:
    """The smaller and the larger node of each edge as rows of the store, and the number of edges of each graph."""
    source, other = store.entry_rows()
    once = source < other
    source, other = source[once], other[once]
    return source, other, torch.bincount(store.node_graph[source], minlength=len(store))


def _to_cpu(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_cpu(item) for item in value]
    return None if value is None else value.detach().cpu()


def _concatenate(parts: list[dict[str, Any]], encoded: ModelInputs) -> StoreExplanation:
    store = encoded.store

    def together(name: str) -> Tensor:
        return torch.cat([part[name] for part in parts])

    def per_level(name: str, axis: int = 0) -> tuple[Any, ...]:
        columns = zip(*(part[name] for part in parts), strict=True)
        return tuple(None if column[0] is None else torch.cat(column, axis) for column in columns)

    scores = together("class_scores")
    non_finite = (~scores.isfinite().all(-1)).nonzero()
    if non_finite.numel():
        raise ArgumentError(
            "explain", "graph", "give finite scores", f"NaN or infinity for graph {int(non_finite[0])}",
            "Check its attributes for extreme values.",
        )  # fmt: skip
    iterations = per_level("iterations", 1)
    has_decoder = parts[0]["reconstruction_error"] is not None
    elements, bonds = _molecules(store)
    return StoreExplanation(
        class_names=encoded.class_names,
        class_scores=scores,
        probabilities=_probabilities(scores, store.empty_graphs, encoded),
        target=together("target"),
        true_class=None if encoded.true_class is None else encoded.true_class.cpu(),
        node_ptr=store.host_node_ptr,
        edge_ptr=torch.nn.functional.pad(together("edge_count").cumsum(0), (1, 0)),
        edges=torch.cat([part["edges"] for part in parts], 1),
        node_labels=None if store.node_labels is None else store.node_labels.cpu(),
        assignments=tuple(value[-1] for value in iterations),
        iterations=iterations,
        lengths=per_level("lengths"),
        adjacency=per_level("adjacency"),
        contributions=per_level("contributions"),
        residual_contributions=per_level("residual_contributions"),
        node_scores=together("node_scores"),
        edge_scores=together("edge_scores"),
        reconstruction_error=together("reconstruction_error") if has_decoder else None,
        nodes=None if encoded.nodes is None else encoded.nodes.cpu(),
        elements=elements,
        bonds=bonds,
        featurizer=store.featurizer,
        smiles=encoded.smiles,
    )


def _molecules(store: GraphStore) -> tuple[Tensor | None, Tensor | None]:
    """Elements of nodes and bond labels of edges, for graphs read from SMILES."""
    elements = store.truth.get("element")
    if elements is None or store.edge_labels is None:
        return None if elements is None else elements.cpu(), None
    source = torch.arange(store.num_nodes, device=store.device).repeat_interleave(store.degree)
    once = source - store.node_ptr[store.node_graph[source]] < store.neighbours  # in the order of _edges_once
    return elements.cpu(), store.edge_labels[once, 0].cpu()


def _probabilities(scores: Tensor, empty: Tensor, encoded: ModelInputs) -> Tensor:
    """Probabilities of the fitted model, or of a bare HGCN: lengths divided by their sum.

    ``scores`` are ``[G, O]``, or those of the members of a committee, ``[M, G, O]``. ``empty`` are the rows of graphs
    without nodes.
    """
    return (
        _normalised_lengths(scores)
        if encoded.to_probabilities is None
        else torch.from_numpy(encoded.to_probabilities(scores, empty))
    )


def _normalised_lengths(scores: Tensor) -> Tensor:
    """Lengths divided by their sum, as in a fitted model without calibration; equal if all are zero."""
    values = scores.double()
    total = values.sum(-1, keepdim=True)
    return torch.where(total > 0, values / total, torch.full_like(values, 1 / values.size(-1)))


def _target_classes(target: int | str | Tensor | None, encoded: ModelInputs) -> Tensor | None:
    """Target class index of each graph, ``[G]``; ``None`` for the predicted classes."""
    names, graphs = encoded.class_names, len(encoded.store)
    if target is None:
        return None
    if isinstance(target, str):
        if target not in names:
            raise ArgumentError("explain", "target", f"be one of {', '.join(names)}", repr(target))
        target = names.index(target)
    numbers = torch.as_tensor(target).long()
    if not numbers.dim():
        numbers = numbers.expand(graphs)
    if numbers.shape != (graphs,):
        raise ShapeError(
            "explain", "target", f"hold a class for each of the {graphs} graphs", list(numbers.shape)
        )
    invalid = (numbers < 0) | (numbers >= len(names))
    if bool(invalid.any()):
        expected = f"be a class index from 0 to {len(names) - 1}"
        raise ArgumentError("explain", "target", expected, int(numbers[invalid][0]))
    return numbers
