"""Explanation metrics: structure of the result, and agreement of a model with itself."""

import json

import pytest
import torch

from graphcaps.errors import ArgumentError
from graphcaps.explanation import evaluate_explanations, explanation_stability
from graphcaps.explanation.baselines import ATTRIBUTION_METHODS
from graphcaps.explanation.explanation_metrics import (
    CAPSULE_METHODS,
    METHODS,
    METRICS,
    applicable_methods,
)
from graphcaps.explanation.pyg_explainer import GraphProbabilities, PyGBatch
from graphcaps.explanation.truth_metrics import connected_groups
from tests.small_models import (
    bonded,
    bonded_model,
    labelled,
    labelled_model,
    planted,
    small_model,
    train_small,
)


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcaps.explanation.baselines.GNN_EXPLAINER_EPOCHS", 2)
    monkeypatch.setattr("graphcaps.explanation.baselines.PG_EXPLAINER_EPOCHS", 2)
    monkeypatch.setattr("graphcaps.explanation.baselines.INTEGRATION_STEPS", 2)


def test_slow_methods_run_on_the_sample_only(monkeypatch: pytest.MonkeyPatch) -> None:
    batch_sizes: list[int] = []

    def slow(model: GraphProbabilities, graphs: PyGBatch) -> torch.Tensor:
        batch_sizes.append(graphs.target.numel())
        return torch.rand(graphs.x.size(0))

    monkeypatch.setitem(ATTRIBUTION_METHODS, "gnnexplainer", slow)
    metrics = evaluate_explanations(small_model(), planted(), sample=4, methods=("capsules", "gnnexplainer"))
    assert batch_sizes == [4]
    plus = metrics["sample"]["fidelity_plus"]
    assert metrics["methods"]["gnnexplainer"]["fidelity_plus"] == plus["gnnexplainer"]


@pytest.mark.usefixtures("few_epochs")
def test_every_method_has_every_applicable_metric() -> None:
    steps: list[str] = []
    metrics = json.loads(
        json.dumps(evaluate_explanations(small_model(), planted(), sample=4, on_step=steps.append))
    )
    assert set(metrics["methods"]) == set(METHODS) <= set(steps)
    for name, row in metrics["methods"].items():
        assert tuple(row) == METRICS
        parts, scores = name.startswith(("capsules", "kmeans")), not name.startswith("kmeans")
        for metric in (
            "nmi",
            "ari",
            "purity",
            "group_recall",
            "group_overlap",
            "connected",
            "capsules_per_graph",
        ):
            assert (row[metric] is not None) == parts, (name, metric)
        for metric in ("auc_nodes", "auc_edges"):
            assert (row[metric] is not None) == scores, (name, metric)
        assert (row["fidelity_plus"] is not None) == (row["sparsity"] is not None) == scores, name
        assert (row["entropy"] is not None) == (row["dead_capsules"] is not None) == (name == "capsules")
        assert row["seconds_per_graph"] > 0
    assert len(metrics["sample"]["graphs"]) == 4
    assert set(metrics["sample"]["fidelity_plus"]) == set(METHODS) - {"kmeans-features", "kmeans-primary"}
    assert metrics["truth"]["graphs"] == 30
    assert set(metrics["sample"]["auc_nodes"]) == set(metrics["sample"]["fidelity_plus"])
    assert metrics["instances"]["graphs"] == 30  # the easy level has one part of each kind
    assert len(metrics["capsules"]["share"]) == 4


def test_graphs_without_planted_parts_and_selected_methods() -> None:
    from dataclasses import replace

    store = replace(labelled(), truth={})
    metrics = evaluate_explanations(labelled_model(), store, methods=("random", "capsules"), seed=1)
    assert list(metrics["methods"]) == ["random", "capsules"]
    assert metrics["methods"]["capsules"]["nmi"] is None
    assert metrics["instances"] is metrics["truth"] is None
    assert metrics["methods"]["capsules"]["auc_nodes"] is None
    assert metrics["methods"]["capsules"]["fidelity_plus"] is not None
    with pytest.raises(ArgumentError, match="'methods' must be names from capsules"):
        evaluate_explanations(labelled_model(), store, methods=("lime",))
    with pytest.raises(ArgumentError, match="'sample' must be at least 1"):
        evaluate_explanations(labelled_model(), store, sample=0)


def test_agreement_is_one_if_the_truth_is_the_assignment() -> None:
    from dataclasses import replace

    from graphcaps.explanation import explain_store

    store, fitted = planted(), small_model()
    capsule = explain_store(fitted, store).capsule
    groups = connected_groups(capsule, store)
    reason = (
        groups
        - groups.new_zeros(len(store)).scatter_reduce(
            0, store.node_graph, groups, "amin", include_self=False
        )[store.node_graph]
    )
    self_labelled = replace(store, truth={"kind": capsule, "part": capsule, "reason": reason})
    row = evaluate_explanations(fitted, self_labelled, methods=("capsules",))["methods"]["capsules"]
    agreement = [row[name] for name in ("nmi", "nmi_all", "ari", "purity", "group_recall", "group_overlap")]
    assert agreement == pytest.approx([1] * 6)


def test_a_network_without_capsules() -> None:
    methods = ("kmeans-features", "gradient", "random")
    fitted = train_small(planted(), "gin")
    metrics = evaluate_explanations(fitted, planted(), methods=methods, sample=3)
    assert metrics["capsules"] is metrics["instances"] is None
    assert 0 <= metrics["classes_right"] <= 1
    assert metrics["methods"]["gradient"]["auc_nodes"] != metrics["methods"]["random"]["auc_nodes"]
    assert 0 <= metrics["methods"]["gradient"]["fidelity_plus"] <= 1
    assert applicable_methods(fitted) == tuple(name for name in METHODS if name not in CAPSULE_METHODS)
    with pytest.raises(ArgumentError, match=r"got 'capsules'. The model has no capsules"):
        evaluate_explanations(fitted, planted(), methods=("capsules",))
    other = train_small(planted(), "gin", epochs=3)
    stability = explanation_stability([fitted, other], planted(), methods=("gradient",))
    assert stability["nmi"] is stability["rank"] is None
    assert -1 <= stability["ranks"]["gradient"] < 0.999


def test_scores_are_compared_with_the_deciding_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    reason = planted().truth["reason"]
    monkeypatch.setitem(ATTRIBUTION_METHODS, "random", lambda model, graphs: (reason >= 0).float())
    row = evaluate_explanations(small_model(), planted(), methods=("random",), sample=30)["methods"]["random"]
    assert row["auc_nodes"] == 1  # the edge of two deciding nodes has the score 1
    assert row["auc_edges"] == 1
    without = replace(planted(), truth={"reason": torch.full_like(reason, -1)})
    metrics = evaluate_explanations(small_model(), without, methods=("random",), sample=30)
    assert metrics["methods"]["random"]["auc_nodes"] is None
    assert metrics["truth"]["graphs"] == 0


@pytest.mark.filterwarnings("ignore::graphcaps.data.features.truncate.TruncationWarning")
def test_stability_is_one_for_equal_models_and_less_otherwise() -> None:
    store, fitted = planted(), small_model()
    same = explanation_stability([fitted, fitted], store)
    assert same == pytest.approx({"models": 2, "nmi": 1, "ari": 1, "rank": 1})
    torch.manual_seed(5)
    other = train_small(store, arguments={"capsule_dim": 8, "num_capsules": (4,), "formulation": "paper"})
    assert explanation_stability([fitted, other, fitted], store)["rank"] < 0.999
    with pytest.raises(ArgumentError, match="hold at least two, got 1"):
        explanation_stability([fitted], store)
    cut = train_small(store, max_nodes=20)
    with pytest.raises(ArgumentError, match="have the same classes and node limit"):
        explanation_stability([fitted, cut], store)


def test_graphs_with_edge_weights_have_no_fidelity() -> None:
    """torch-geometric's explainers do not pass edge weights, so the masked graphs would be other graphs."""
    from dataclasses import replace

    from tests.small_models import planted, small_model

    store = planted()
    weighted = replace(store, edge_weight=torch.full((store.neighbours.numel(),), 0.5))
    metrics = evaluate_explanations(small_model(), weighted, methods=("capsules", "gradient"))
    assert metrics["sample"] is None
    assert metrics["methods"]["gradient"]["fidelity_plus"] is None
    assert metrics["methods"]["capsules"]["entropy"] is not None


@pytest.mark.usefixtures("few_epochs")
def test_a_model_that_reads_edge_labels() -> None:
    metrics = evaluate_explanations(bonded_model(), bonded()[:8], sample=3)
    for name in ATTRIBUTION_METHODS:
        assert 0 <= metrics["sample"]["fidelity_plus"][name] <= 1
