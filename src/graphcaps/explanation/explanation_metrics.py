"""All measures of a model's explanations on a store, for every method compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
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
from graphcaps.explanation.model_inputs import EncodedGraphs, encode_for_model, select_graphs, unwrap_hgcn

__all__ = ["FAST_METHODS", "METHODS", "METRICS", "evaluate_explanations", "explanation_stability"]

METRICS = (
    *("nmi", "nmi_all", "ari", "fidelity_plus", "fidelity_minus", "sparsity"),
    *("entropy", "dead_capsules", "seconds_per_graph"),
)
"""Figures of a method; ``None`` where one does not apply."""

METHODS = (
    *("capsules", "kmeans-features", "kmeans-primary"),
    *("gradient", "integrated-gradients", "gnnexplainer", "random"),
)
"""What is compared: HGCN's own, two ways to find parts, and four to score nodes."""

FAST_METHODS = ("capsules", "kmeans-features", "kmeans-primary", "gradient", "random")
"""Methods that take seconds for thousands of graphs: those of a report."""

SAMPLED_METHODS = ("gnnexplainer",)
"""Methods that are measured on a sample of the graphs."""


def evaluate_explanations(
    model: Any,
    graphs: Any,
    *,
    methods: Sequence[str] = METHODS,
    sample: int = 30,
    share: float = 0.2,
    seed: int = 0,
    on_step: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measures explanations before anybody looks at them.

    Agreement needs graphs whose parts are known (``store.truth``). Figures on the sample alone stand under
    ``sample``, for all scoring methods, so that slow ones are compared on the same graphs.

    Args:
        model: A ``FittedModel`` around an HGCN.
        graphs: As in :func:`graphcaps.explain`.
        methods (Sequence): Some of :data:`METHODS`.
        sample (int): Graphs, drawn with ``seed``, on which slow methods run. (default: 30)
        share (float): Of a graph's nodes that are the explanation. (default: 0.2)
        seed (int): Of the sample, of k-means, of GNNExplainer and of chance. (default: 0)
        on_step (Callable, optional): Told the name of each method before it runs.

    Returns:
        dict: ``methods`` (name → :data:`METRICS`), ``sample``, ``capsules``, and what they were made with, in
        JSON's own types.

    Raises:
        ArgumentError: If a method is not known.
    """
    for name in methods:
        if name not in METHODS:
            raise ArgumentError(
                "evaluate_explanations", "methods", f"be among {', '.join(METHODS)}", repr(name)
            )
    if sample < 1:
        raise ArgumentError("evaluate_explanations", "sample", "be at least 1", sample)
    tell = on_step or (lambda name: None)
    encoded = encode_for_model(model, graphs)
    tell("capsules")
    found, seconds = _timed(lambda: explain_encoded(unwrap_hgcn(model), encoded))
    rows: dict[str, dict[str, Any]] = {name: dict.fromkeys(METRICS) for name in methods}
    report: dict[str, Any] = {
        "graphs": len(encoded.store),
        "classes_right": None if found.true_class is None else _right(found),
        "share": share,
        "seed": seed,
        "methods": rows,
        "capsules": capsule_usage(found.assignments[0], found.node_ptr),
    }
    if "capsules" in rows:
        rows["capsules"] |= {name: report["capsules"][name] for name in ("entropy", "dead_capsules")}
    _measure_parts(model, encoded, found, rows, seed, tell)
    report["instances"] = _instances(encoded.store, found)
    report["sample"] = _measure_scores(model, encoded, found, rows, sample, share, seed, tell)
    if "capsules" in rows:  # of the whole explanation: rounds, coarse graphs and errors too
        rows["capsules"]["seconds_per_graph"] = seconds / len(encoded.store)
    return report


def explanation_stability(models: Sequence[Any], graphs: Any) -> dict[str, Any]:
    """Whether models that differ in their seed explain alike; each class is the first model's prediction.

    Args:
        models (Sequence): Two or more models.
        graphs: As in :func:`graphcaps.explain`.

    Returns:
        dict: Mean over all pairs of models of ``nmi`` and ``ari`` between their hard assignments inside a graph,
        and of ``rank``, Spearman's correlation of their node scores inside a graph.
    """
    if len(models) < 2:
        raise ArgumentError("explanation_stability", "models", "be two or more", len(models))
    first = explain_encoded(unwrap_hgcn(models[0]), encode_for_model(models[0], graphs))
    found = [first]
    for model in models[1:]:
        other = explain_encoded(unwrap_hgcn(model), encode_for_model(model, graphs), target=first.predicted)
        if not torch.equal(other.node_ptr, first.node_ptr) or other.class_names != first.class_names:
            raise ArgumentError(
                "explanation_stability", "models", "read the same nodes and name the same classes", "others"
            )
        found.append(other)
    pairs = [(a, b) for place, a in enumerate(found) for b in found[place + 1 :]]
    same = [partition_agreement(a.capsule, b.capsule, a.node_ptr) for a, b in pairs]
    ranks = [rank_correlation(a.node_scores, b.node_scores, a.node_ptr) for a, b in pairs]
    return {
        "models": len(models),
        "nmi": sum(row["nmi"] for row in same) / len(pairs),
        "ari": sum(row["ari"] for row in same) / len(pairs),
        "rank": sum(ranks) / len(pairs),
    }


def _right(found: StoreExplanation) -> float | None:
    """Share of the graphs of a known class that are told right; ``None`` where the model knows none of them."""
    assert found.true_class is not None
    known = found.true_class >= 0
    return float((found.predicted == found.true_class)[known].double().mean()) if bool(known.any()) else None


def _measure_parts(
    model: Any,
    encoded: EncodedGraphs,
    found: StoreExplanation,
    rows: dict[str, dict[str, Any]],
    seed: int,
    tell: Callable[[str], None],
) -> None:
    """Agreement with planted kinds, of the capsules and of k-means with as many clusters as there are kinds."""
    kind = encoded.store.truth.get("kind")
    if kind is None:
        return
    ptr, clusters = found.node_ptr, int(kind.unique().numel())
    if "capsules" in rows:
        rows["capsules"] |= partition_agreement(found.capsule, kind, ptr)
    for name in ("kmeans-features", "kmeans-primary"):
        if name not in rows:
            continue
        tell(name)
        columns = encoded.x if name == "kmeans-features" else _primary(unwrap_hgcn(model), encoded)
        labels, seconds = _timed(partial(_kmeans, columns, clusters, seed))
        rows[name] |= partition_agreement(labels, kind, ptr)
        rows[name]["seconds_per_graph"] = seconds / len(encoded.store)


def _instances(store: GraphStore, found: StoreExplanation) -> dict[str, Any] | None:
    """Agreement of the capsules with planted parts, in graphs where no two are of one kind."""
    kind, part = store.truth.get("kind"), store.truth.get("part")
    if kind is None or part is None:
        return None
    graphs = graphs_with_distinct_kinds(kind, part, found.node_ptr)
    if not bool(graphs.any()):
        return None
    return {"graphs": int(graphs.sum())} | partition_agreement(found.capsule, part, found.node_ptr, graphs)


def _measure_scores(
    model: Any,
    encoded: EncodedGraphs,
    found: StoreExplanation,
    rows: dict[str, dict[str, Any]],
    sample: int,
    share: float,
    seed: int,
    tell: Callable[[str], None],
) -> dict[str, Any] | None:
    """Fidelity of node scores, on all graphs where it is cheap and on the same sample for all."""
    from graphcaps.explanation.baselines import ATTRIBUTION_METHODS, attribute_nodes
    from graphcaps.explanation.fidelity import node_fidelity, pyg_batches
    from graphcaps.explanation.pyg_explainer import GraphProbabilities

    scoring = [name for name in rows if name in ATTRIBUTION_METHODS]
    if not scoring or encoded.store.edge_weight is not None:
        return None  # torch-geometric's call has no place for weights: it would mask another model's graphs
    module = GraphProbabilities(model, centred=True)
    longest = found.class_scores.argmax(-1)  # the class that this module gives, calibrated or not
    draw = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(encoded.store), generator=draw)[:sample].sort().values
    few, few_target = select_graphs(encoded, chosen), longest[chosen]
    result: dict[str, Any] = {"graphs": chosen.tolist(), "fidelity_plus": {}, "fidelity_minus": {}}
    for name in scoring:
        tell(name)
        for part, target in ((encoded, longest), (few, few_target)):
            whole = part is encoded
            if whole and name in SAMPLED_METHODS:
                continue

            def run(part: EncodedGraphs = part, target: Tensor = target, name: str = name) -> Tensor:
                given = pyg_batches(module, part, target)
                return torch.cat([attribute_nodes(name, module, graphs, seed).cpu() for graphs in given])

            scores, seconds = _timed(run)
            quality = node_fidelity(module, part, target, scores, share)
            if whole or name in SAMPLED_METHODS:
                rows[name] |= {
                    "fidelity_plus": quality.plus,
                    "fidelity_minus": quality.minus,
                    "sparsity": quality.sparsity,
                    "seconds_per_graph": seconds / len(part.store),
                }
            if not whole:
                result["fidelity_plus"][name] = quality.plus
                result["fidelity_minus"][name] = quality.minus
    return result


@torch.no_grad()
def _primary(network: Any, encoded: EncodedGraphs) -> Tensor:
    device = next(network.parameters()).device
    capsules: Tensor = network.eval().primary(encoded.x.to(device)).cpu()
    return capsules


def _kmeans(columns: Tensor, clusters: int, seed: int) -> Tensor:
    from sklearn.cluster import KMeans

    labels = KMeans(clusters, n_init=10, random_state=seed).fit_predict(columns.numpy())
    return torch.from_numpy(labels).long()


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began
