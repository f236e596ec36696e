"""Metrics of a model's explanations on a set of graphs, compared with other explanation methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, check_at_least
from graphcaps.explanation.agreement import (
    capsule_usage,
    graphs_with_distinct_kinds,
    partition_agreement,
    rank_correlation,
)
from graphcaps.explanation.explainer import class_scores, explain_encoded
from graphcaps.explanation.explanation import StoreExplanation
from graphcaps.explanation.model_inputs import (
    ExplainedModel,
    ModelInputs,
    encode_for_model,
    select_graphs,
    unwrap_network,
)
from graphcaps.explanation.truth_metrics import group_agreement, partition_shape, purity, score_auc
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hgcn import HGCN

if TYPE_CHECKING:
    from graphcaps.explanation.pyg_explainer import GraphProbabilities

__all__ = [
    "CAPSULE_METHODS",
    "FAST_METHODS",
    "METHODS",
    "METRICS",
    "SAMPLED_METHODS",
    "applicable_methods",
    "evaluate_explanations",
    "explanation_stability",
]

METRICS = (
    *("auc_nodes", "auc_edges", "group_recall", "group_overlap", "nmi", "nmi_all", "ari", "purity"),
    *("fidelity_plus", "fidelity_minus", "sparsity"),
    *("connected", "capsules_per_graph", "entropy", "dead_capsules", "seconds_per_graph"),
)
"""Metrics of a method; ``None`` if one does not apply."""

METHODS = (
    *("capsules", "kmeans-features", "kmeans-primary"),
    *(
        "gradient",
        "integrated-gradients",
        "occlusion",
        "group-occlusion",
        "gnnexplainer",
        "pgexplainer",
        "random",
    ),
)
"""Methods: HGCN's capsules, two clusterings of nodes, and seven other attributions."""

CAPSULE_METHODS = ("capsules", "kmeans-primary", "group-occlusion")
"""Methods for an HGCN only."""

FAST_METHODS = ("capsules", "kmeans-features", "kmeans-primary", "gradient", "random")
"""Methods that take seconds for thousands of graphs; the report uses these."""

SAMPLED_METHODS = ("occlusion", "gnnexplainer", "pgexplainer")
"""Methods that are evaluated on a sample of the graphs only, because they are slow."""


def applicable_methods(model: ExplainedModel) -> tuple[str, ...]:
    """The names of :data:`METHODS` that a model can be explained with."""
    if isinstance(unwrap_network(model), HGCN):
        return METHODS
    return tuple(name for name in METHODS if name not in CAPSULE_METHODS)


def evaluate_explanations(
    model: ExplainedModel,
    graphs: Any,
    *,
    methods: Sequence[str] | None = None,
    sample: int = 30,
    share: float = 0.2,
    seed: int = 0,
    true_classes: Sequence[str] | None = None,
    on_step: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Evaluates explanation methods: agreement with known reasons and parts, fidelity, capsule use and run time.

    Of a committee they are of the first member, whose capsules its explanations show.

    Graphs without nodes are left out. Agreement needs graphs with known parts and reasons (``store.truth``). Entry
    ``sample`` holds fidelity and areas under the ROC curve of all attribution methods on the same sample of graphs, so
    that slow methods are compared on equal terms. Networks without capsules are evaluated with the other methods.

    Args:
        model: A ``FittedModel`` with an HGCN or another network.
        graphs: As in :func:`graphcaps.explain`.
        methods (Sequence, optional): Names from :data:`METHODS`. (default: all that apply to the model)
        sample (int): Number of graphs for slow methods, drawn at random. (default: 30)
        share (float): Fraction of a graph's nodes in an explanation. (default: 0.2)
        seed (int): Seed of the sample, k-means, GNNExplainer, PGExplainer and random scores. (default: 0)
        true_classes (sequence, optional): As in :func:`graphcaps.explanation.explain_store`.
        on_step (Callable, optional): Called with the name of each method before it runs.

    Returns:
        dict: JSON values: ``methods`` (name → :data:`METRICS`), ``sample``, ``truth``, ``capsules``, ``instances`` and
        the settings. ``capsules`` and ``instances`` are ``None`` for a network without capsules.

    Raises:
        ArgumentError: If a method is unknown or does not apply, or ``sample`` is below 1.
    """
    applicable = applicable_methods(model)
    selected = applicable if methods is None else tuple(methods)
    for name in selected:
        if name not in applicable:
            expected = f"be names from {', '.join(applicable)}"
            fix = "The model has no capsules." if name in METHODS else ""
            raise ArgumentError("evaluate_explanations", "methods", expected, repr(name), fix)
    check_at_least("evaluate_explanations", 1, sample=sample)
    notify = on_step or (lambda name: None)
    encoded = _encode_with_nodes(model, graphs, "evaluate_explanations", true_classes)
    rows: dict[str, dict[str, Any]] = {name: dict.fromkeys(METRICS) for name in selected}
    network, members = (
        unwrap_network(model),
        model.members if isinstance(model, FittedModel) else (model,),
    )
    report: dict[str, Any] = {
        "graphs": len(encoded.store),
        "members": len(members),
        "classes_right": None,
        "share": share,
        "seed": seed,
        "methods": rows,
        "truth": _describe_truth(encoded.store),
        "capsules": None,
        "instances": None,
    }
    seconds = None
    if isinstance(network, HGCN):
        notify("capsules")
        explanations, seconds = _timed(lambda: explain_encoded(network, encoded))
        scores, predicted = explanations.class_scores, explanations.predicted
        shape = partition_shape(explanations.capsule, encoded.store)
        report["capsules"] = capsule_usage(
            explanations.assignments[0], explanations.capsule, explanations.node_ptr
        ) | {
            "used_low": shape.low,
            "used_high": shape.high,
            "connected": shape.connected,
        }
        if "capsules" in rows:
            rows["capsules"] |= {name: report["capsules"][name] for name in ("entropy", "dead_capsules")}
        report["instances"] = _instance_agreement(encoded.store, explanations)
        _evaluate_partition(rows.get("capsules"), explanations.capsule, encoded.store, None)
    else:
        scores = class_scores(network, encoded)
        predicted = scores.argmax(-1)
    report["classes_right"] = _accuracy(predicted, encoded.true_class)
    _evaluate_clusterings(network, encoded, rows, seed, notify)
    report["sample"] = _evaluate_attributions(
        network, encoded, scores.argmax(-1), rows, sample, share, seed, notify
    )
    if (
        "capsules" in rows and seconds is not None
    ):  # time of the complete explanation, not of the node scores alone
        rows["capsules"]["seconds_per_graph"] = seconds / len(encoded.store)
    return report


def explanation_stability(
    models: Sequence[ExplainedModel], graphs: Any, *, methods: Sequence[str] = ()
) -> dict[str, Any]:
    """Agreement of the explanations of models that differ in their seed.

    Node scores of all models refer to the class that the first model predicts.

    Args:
        models (Sequence): At least two models, of HGCNs or of other networks.
        graphs: As in :func:`graphcaps.explain`.
        methods (Sequence): Further attribution methods, from :data:`METHODS`, whose node scores are compared.
            (default: none)

    Returns:
        dict: Means over all pairs of models: ``nmi`` and ``ari`` of their hard assignments within a graph, and
        ``rank``, the Spearman correlation of their node scores within a graph, all ``None`` for networks without
        capsules; ``ranks`` (name → correlation) for ``methods``.
    """
    from graphcaps.explanation.baselines import attribute
    from graphcaps.explanation.fidelity import pyg_batches

    if len(models) < 2:
        raise ArgumentError("explanation_stability", "models", "hold at least two", len(models))
    owner = "explanation_stability"
    networks = [unwrap_network(model) for model in models]
    everything = [_encode_with_nodes(model, graphs, owner) for model in models]
    target = class_scores(networks[0], everything[0]).argmax(-1)
    capsules: list[StoreExplanation] = []
    for network, encoded in zip(networks, everything, strict=True):
        same_nodes = torch.equal(encoded.store.node_ptr, everything[0].store.node_ptr)
        if not same_nodes or encoded.class_names != everything[0].class_names:
            expected = "have the same classes and node limit"
            raise ArgumentError("explanation_stability", "models", expected, "models that differ")
        if isinstance(network, HGCN):
            chosen = None if not capsules else capsules[0].predicted
            capsules.append(explain_encoded(network, encoded, target=chosen))
    result: dict[str, Any] = {"models": len(models), "nmi": None, "ari": None, "rank": None}
    if len(capsules) == len(models):
        pairs = list(combinations(capsules, 2))
        agreements = [partition_agreement(a.capsule, b.capsule, a.node_ptr) for a, b in pairs]
        ranks = [rank_correlation(a.node_scores, b.node_scores, a.node_ptr) for a, b in pairs]
        result |= {name: sum(row[name] for row in agreements) / len(pairs) for name in ("nmi", "ari")}
        result["rank"] = sum(ranks) / len(pairs)
    if methods:
        result["ranks"] = {}
    for name in methods:
        scores = []
        for network, encoded in zip(networks, everything, strict=True):
            module = _probabilities_of(network, encoded)
            batches = pyg_batches(module, encoded, target)
            scores.append(torch.cat([attribute(name, module, batch).nodes.cpu() for batch in batches]))
        ptr = everything[0].store.host_node_ptr
        each = [rank_correlation(a, b, ptr) for a, b in combinations(scores, 2)]
        result["ranks"][name] = sum(each) / len(each)
    return result


def _encode_with_nodes(
    model: ExplainedModel, graphs: Any, owner: str, true_classes: Sequence[str] | None = None
) -> ModelInputs:
    """The encoded graphs without those that have no nodes, of which there is nothing to evaluate."""
    encoded = encode_for_model(model, graphs, true_classes=true_classes)
    kept = (encoded.store.sizes > 0).nonzero().squeeze(-1)
    if not kept.numel():
        raise ArgumentError(owner, "graphs", "hold at least one graph with nodes", "none")
    return encoded if kept.numel() == len(encoded.store) else select_graphs(encoded, kept)


def _accuracy(predicted: Tensor, true_class: Tensor | None) -> float | None:
    """Accuracy over the graphs whose true class is a class of the model; ``None`` if there are none."""
    if true_class is None or not bool((true_class >= 0).any()):
        return None
    valid = true_class >= 0
    return float((predicted == true_class)[valid].double().mean())


def _describe_truth(store: GraphStore) -> dict[str, Any] | None:
    """Number of graphs with deciding nodes, and the fraction of their nodes that are; ``None`` if they are unknown."""
    reason = store.truth.get("reason")
    if reason is None:
        return None
    counts = torch.zeros(len(store), dtype=torch.long).index_add_(0, store.node_graph, (reason >= 0).long())
    with_reason = counts > 0
    share = (
        float((counts[with_reason] / store.sizes[with_reason]).mean()) if bool(with_reason.any()) else None
    )
    return {"graphs": int(with_reason.sum()), "deciding_share": share}


def _evaluate_partition(
    row: dict[str, Any] | None, partition: Tensor, store: GraphStore, seconds: float | None
) -> None:
    """Agreement of a partition of the nodes with kinds and deciding groups, and its shape.

    Graphs in which all nodes are of one kind do not count for the agreement, if there are others.
    """
    if row is None:
        return
    shape = partition_shape(partition, store)
    row |= {"connected": shape.connected, "capsules_per_graph": shape.parts_per_graph}
    kind, reason = store.truth.get("kind"), store.truth.get("reason")
    if kind is not None:
        low, high = (
            torch.zeros(len(store), dtype=kind.dtype).scatter_reduce(
                0, store.node_graph, kind, how, include_self=False
            )
            for how in ("amin", "amax")
        )
        several = low < high
        counted = several if bool(several.any()) else None
        row |= partition_agreement(partition, kind, store.host_node_ptr, counted)
        row["purity"] = purity(partition, kind)
    groups = None if reason is None else group_agreement(partition, reason, store)
    if groups is not None:
        row |= {"group_recall": groups.recall, "group_overlap": groups.overlap}
    if seconds is not None:
        row["seconds_per_graph"] = seconds / len(store)


def _evaluate_clusterings(
    network: GraphModel,
    encoded: ModelInputs,
    rows: dict[str, dict[str, Any]],
    seed: int,
    notify: Callable[[str], None],
) -> None:
    """The same for k-means with one cluster per kind, where kinds are known."""
    kind = encoded.store.truth.get("kind")
    if kind is None:
        return
    clusters = int(kind.unique().numel())
    for name in ("kmeans-features", "kmeans-primary"):
        if name not in rows:
            continue
        notify(name)
        columns = encoded.x
        if name == "kmeans-primary":
            assert isinstance(network, HGCN)
            columns = _primary(network, encoded)
        labels, seconds = _timed(partial(_kmeans, columns, clusters, seed))
        _evaluate_partition(rows[name], labels, encoded.store, seconds)


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


def _probabilities_of(network: GraphModel, encoded: ModelInputs) -> GraphProbabilities:
    """The network for centred features; the reference of one without capsules is the mean row of these graphs."""
    from graphcaps.explanation.pyg_explainer import GraphProbabilities

    reference = None if isinstance(network, HGCN) else encoded.x.mean(0)
    return GraphProbabilities(network, centred=True, reference=reference)


def _evaluate_attributions(
    network: GraphModel,
    encoded: ModelInputs,
    predicted: Tensor,
    rows: dict[str, dict[str, Any]],
    sample: int,
    share: float,
    seed: int,
    notify: Callable[[str], None],
) -> dict[str, Any] | None:
    """Fidelity and ROC AUC of scores: fast methods on all graphs, and all methods on the same sample.

    ``predicted`` are the classes of the uncalibrated probabilities, which the methods explain.
    """
    from graphcaps.explanation.baselines import ATTRIBUTION_METHODS, Attribution, attribute
    from graphcaps.explanation.fidelity import node_fidelity, pyg_batches

    selected = [name for name in rows if name in ATTRIBUTION_METHODS]
    if not selected or encoded.store.edge_weight is not None:
        return None  # torch-geometric's explainers do not pass edge weights to the model
    module = _probabilities_of(network, encoded)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(encoded.store), generator=generator)[:sample].sort().values
    sampled, sampled_target = select_graphs(encoded, chosen), predicted[chosen]
    result: dict[str, Any] = {"graphs": chosen.tolist()} | {name: {} for name in _SAMPLE_METRICS}
    for name in selected:
        notify(name)
        for part, target in ((encoded, predicted), (sampled, sampled_target)):
            is_all = part is encoded
            if is_all and name in SAMPLED_METHODS:
                continue

            def run(part: ModelInputs = part, target: Tensor = target, name: str = name) -> Attribution:
                each = [attribute(name, module, batch, seed) for batch in pyg_batches(module, part, target)]
                return Attribution(
                    torch.cat([one.nodes.cpu() for one in each]), torch.cat([one.edges.cpu() for one in each])
                )

            scores, seconds = _timed(run)
            quality = node_fidelity(module, part, target, scores.nodes, share)
            areas = _areas(part.store, scores.nodes, scores.edges)
            metrics = areas | {"fidelity_plus": quality.plus, "fidelity_minus": quality.minus}
            if is_all or name in SAMPLED_METHODS:
                rows[name] |= metrics | {
                    "sparsity": quality.sparsity,
                    "seconds_per_graph": seconds / len(part.store),
                }
            if not is_all:
                for metric in _SAMPLE_METRICS:
                    result[metric][name] = metrics[metric]
    return result


_SAMPLE_METRICS = ("fidelity_plus", "fidelity_minus", "auc_nodes", "auc_edges")


def _areas(store: GraphStore, nodes: Tensor, edges: Tensor) -> dict[str, float | None]:
    """Areas under the ROC curve of node and edge scores, ``None`` if the deciding nodes are unknown."""
    reason = store.truth.get("reason")
    if reason is None:
        return {"auc_nodes": None, "auc_edges": None}
    deciding = reason >= 0
    source, target = store.entry_rows()
    return {
        "auc_nodes": score_auc(nodes, deciding, store.host_node_ptr),
        "auc_edges": score_auc(edges, deciding[source] & deciding[target], store.host_entry_ptr),
    }


@torch.no_grad()
def _primary(network: HGCN, encoded: ModelInputs) -> Tensor:
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
