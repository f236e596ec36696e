"""Metrics of a model's explanations on a set of graphs, compared with other explanation methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.explanation.agreement import (
    capsule_usage,
    graphs_with_distinct_kinds,
    partition_agreement,
    rank_correlation,
)
from graphcaps.explanation.explainer import explain_encoded
from graphcaps.explanation.explanation import StoreExplanation
from graphcaps.explanation.model_inputs import (
    EncodedGraphs,
    ExplainedModel,
    encode_for_model,
    select_graphs,
    unwrap_hgcn,
    unwrap_members,
)
from graphcaps.nn.hgcn import HGCN

__all__ = ["FAST_METHODS", "METHODS", "METRICS", "evaluate_explanations", "explanation_stability"]

METRICS = (
    *("nmi", "nmi_all", "ari", "fidelity_plus", "fidelity_minus", "sparsity"),
    *("entropy", "dead_capsules", "seconds_per_graph"),
)
"""Metrics of a method; ``None`` if one does not apply."""

METHODS = (
    *("capsules", "kmeans-features", "kmeans-primary"),
    *("gradient", "integrated-gradients", "gnnexplainer", "random"),
)
"""Methods: HGCN's capsules, two clusterings of nodes, and four node attributions."""

FAST_METHODS = ("capsules", "kmeans-features", "kmeans-primary", "gradient", "random")
"""Methods that take seconds for thousands of graphs; the report uses these."""

SAMPLED_METHODS = ("gnnexplainer",)
"""Methods that are evaluated on a sample of the graphs only, because they are slow."""


def evaluate_explanations(
    model: ExplainedModel,
    graphs: Any,
    *,
    methods: Sequence[str] = METHODS,
    sample: int = 30,
    share: float = 0.2,
    seed: int = 0,
    true_classes: Sequence[str] | None = None,
    on_step: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Evaluates explanation methods: agreement with planted parts, fidelity, capsule use and run time.

    Of a committee they are of the first member, whose capsules its explanations show.

    Graphs without nodes are left out. Agreement needs graphs with known parts (``store.truth``). Entry ``sample`` holds
    the fidelity of all attribution methods on the same sample of graphs, so that slow methods are compared on equal
    terms.

    Args:
        model: A ``FittedModel`` with an HGCN.
        graphs: As in :func:`graphcaps.explain`.
        methods (Sequence): Names from :data:`METHODS`. (default: all)
        sample (int): Number of graphs for slow methods, drawn at random. (default: 30)
        share (float): Fraction of a graph's nodes in an explanation. (default: 0.2)
        seed (int): Seed of the sample, k-means, GNNExplainer and random scores. (default: 0)
        true_classes (sequence, optional): As in :func:`graphcaps.explanation.explain_store`.
        on_step (Callable, optional): Called with the name of each method before it runs.

    Returns:
        dict: JSON values: ``methods`` (name → :data:`METRICS`), ``sample``, ``capsules``, ``instances`` and the
        settings.

    Raises:
        ArgumentError: If a method is unknown or ``sample`` is below 1.
    """
    for name in methods:
        if name not in METHODS:
            raise ArgumentError(
                "evaluate_explanations", "methods", f"be names from {', '.join(METHODS)}", repr(name)
            )
    if sample < 1:
        raise ArgumentError("evaluate_explanations", "sample", "be at least 1", sample)
    notify = on_step or (lambda name: None)
    encoded = _encode_with_nodes(model, graphs, "evaluate_explanations", true_classes)
    notify("capsules")
    explanations, seconds = _timed(lambda: explain_encoded(unwrap_hgcn(model), encoded))
    rows: dict[str, dict[str, Any]] = {name: dict.fromkeys(METRICS) for name in methods}
    report: dict[str, Any] = {
        "graphs": len(encoded.store),
        "members": len(unwrap_members(model)),
        "classes_right": None if explanations.true_class is None else _accuracy(explanations),
        "share": share,
        "seed": seed,
        "methods": rows,
        "capsules": capsule_usage(explanations.assignments[0], explanations.node_ptr),
    }
    if "capsules" in rows:
        rows["capsules"] |= {name: report["capsules"][name] for name in ("entropy", "dead_capsules")}
    _evaluate_partitions(model, encoded, explanations, rows, seed, notify)
    report["instances"] = _instance_agreement(encoded.store, explanations)
    report["sample"] = _evaluate_attributions(model, encoded, explanations, rows, sample, share, seed, notify)
    if "capsules" in rows:  # time of the complete explanation, not of the node scores alone
        rows["capsules"]["seconds_per_graph"] = seconds / len(encoded.store)
    return report


def explanation_stability(models: Sequence[ExplainedModel], graphs: Any) -> dict[str, Any]:
    """Agreement of the explanations of models that differ in their seed.

    Node scores of all models refer to the class that the first model predicts.

    Args:
        models (Sequence): At least two models.
        graphs: As in :func:`graphcaps.explain`.

    Returns:
        dict: Means over all pairs of models: ``nmi`` and ``ari`` of their hard assignments within a graph; ``rank``,
        the Spearman correlation of their node scores within a graph.
    """
    if len(models) < 2:
        raise ArgumentError("explanation_stability", "models", "hold at least two", len(models))
    owner = "explanation_stability"
    first = explain_encoded(unwrap_hgcn(models[0]), _encode_with_nodes(models[0], graphs, owner))
    explanations = [first]
    for model in models[1:]:
        encoded = _encode_with_nodes(model, graphs, owner)
        other = explain_encoded(unwrap_hgcn(model), encoded, target=first.predicted)
        if not torch.equal(other.node_ptr, first.node_ptr) or other.class_names != first.class_names:
            expected = "have the same classes and node limit"
            raise ArgumentError("explanation_stability", "models", expected, "models that differ")
        explanations.append(other)
    pairs = list(combinations(explanations, 2))
    agreements = [partition_agreement(a.capsule, b.capsule, a.node_ptr) for a, b in pairs]
    ranks = [rank_correlation(a.node_scores, b.node_scores, a.node_ptr) for a, b in pairs]
    return {
        "models": len(models),
        "nmi": sum(row["nmi"] for row in agreements) / len(pairs),
        "ari": sum(row["ari"] for row in agreements) / len(pairs),
        "rank": sum(ranks) / len(pairs),
    }


def _encode_with_nodes(
    model: ExplainedModel, graphs: Any, owner: str, true_classes: Sequence[str] | None = None
) -> EncodedGraphs:
    """The encoded graphs without those that have no nodes, of which there is nothing to evaluate."""
    encoded = encode_for_model(model, graphs, true_classes=true_classes)
    kept = (encoded.store.sizes > 0).nonzero().squeeze(-1)
    if not kept.numel():
        raise ArgumentError(owner, "graphs", "hold at least one graph with nodes", "none")
    return encoded if kept.numel() == len(encoded.store) else select_graphs(encoded, kept)


def _accuracy(explanations: StoreExplanation) -> float | None:
    """Accuracy over the graphs whose true class is a class of the model; ``None`` if there are none."""
    assert explanations.true_class is not None
    valid = explanations.true_class >= 0
    correct = (explanations.predicted == explanations.true_class)[valid]
    return float(correct.double().mean()) if bool(valid.any()) else None


def _evaluate_partitions(
    model: ExplainedModel,
    encoded: EncodedGraphs,
    explanations: StoreExplanation,
    rows: dict[str, dict[str, Any]],
    seed: int,
    notify: Callable[[str], None],
) -> None:
    """Agreement with the planted kinds, of the capsules and of k-means with one cluster per kind."""
    kind = encoded.store.truth.get("kind")
    if kind is None:
        return
    ptr, clusters = explanations.node_ptr, int(kind.unique().numel())
    if "capsules" in rows:
        rows["capsules"] |= partition_agreement(explanations.capsule, kind, ptr)
    for name in ("kmeans-features", "kmeans-primary"):
        if name not in rows:
            continue
        notify(name)
        columns = encoded.x if name == "kmeans-features" else _primary(unwrap_hgcn(model), encoded)
        labels, seconds = _timed(partial(_kmeans, columns, clusters, seed))
        rows[name] |= partition_agreement(labels, kind, ptr)
        rows[name]["seconds_per_graph"] = seconds / len(encoded.store)


def _instance_agreement(store: GraphStore, explanations: StoreExplanation) -> dict[str, Any] | None:
    """Agreement of the capsules with the planted parts, in graphs whose parts are of different kinds."""
    kind, part = store.truth.get("kind"), store.truth.get("part")
    if kind is None or part is None:
        return None
    graphs = graphs_with_distinct_kinds(kind, part, explanations.node_ptr)
    if not bool(graphs.any()):
        return None
    return {"graphs": int(graphs.sum())} | partition_agreement(
        explanations.capsule, part, explanations.node_ptr, graphs
    )


def _evaluate_attributions(
    model: ExplainedModel,
    encoded: EncodedGraphs,
    explanations: StoreExplanation,
    rows: dict[str, dict[str, Any]],
    sample: int,
    share: float,
    seed: int,
    notify: Callable[[str], None],
) -> dict[str, Any] | None:
    """Fidelity of node scores: fast methods on all graphs, and all methods on the same sample."""
    from graphcaps.explanation.baselines import ATTRIBUTION_METHODS, attribute_nodes
    from graphcaps.explanation.fidelity import node_fidelity, pyg_batches
    from graphcaps.explanation.pyg_explainer import GraphProbabilities

    selected = [name for name in rows if name in ATTRIBUTION_METHODS]
    if not selected or encoded.store.edge_weight is not None:
        return None  # torch-geometric's explainers do not pass edge weights to the model
    module = GraphProbabilities(unwrap_hgcn(model), centred=True)
    predicted = explanations.class_scores.argmax(-1)  # of the uncalibrated probabilities, as in the module
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(encoded.store), generator=generator)[:sample].sort().values
    sampled, sampled_target = select_graphs(encoded, chosen), predicted[chosen]
    result: dict[str, Any] = {"graphs": chosen.tolist(), "fidelity_plus": {}, "fidelity_minus": {}}
    for name in selected:
        notify(name)
        for part, target in ((encoded, predicted), (sampled, sampled_target)):
            is_all = part is encoded
            if is_all and name in SAMPLED_METHODS:
                continue

            def run(part: EncodedGraphs = part, target: Tensor = target, name: str = name) -> Tensor:
                batches = pyg_batches(module, part, target)
                return torch.cat([attribute_nodes(name, module, batch, seed).cpu() for batch in batches])

            scores, seconds = _timed(run)
            quality = node_fidelity(module, part, target, scores, share)
            if is_all or name in SAMPLED_METHODS:
                rows[name] |= {
                    "fidelity_plus": quality.plus,
                    "fidelity_minus": quality.minus,
                    "sparsity": quality.sparsity,
                    "seconds_per_graph": seconds / len(part.store),
                }
            if not is_all:
                result["fidelity_plus"][name] = quality.plus
                result["fidelity_minus"][name] = quality.minus
    return result


@torch.no_grad()
def _primary(network: HGCN, encoded: EncodedGraphs) -> Tensor:
    device = next(network.parameters()).device
    capsules: Tensor = network.eval().primary(encoded.x.to(device)).cpu()
    return capsules


def _kmeans(columns: Tensor, clusters: int, seed: int) -> Tensor:
    from sklearn.cluster import KMeans

    labels = KMeans(clusters, n_init=10, random_state=seed).fit_predict(columns.numpy())
    return torch.from_numpy(labels).long()


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Result and seconds."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began
