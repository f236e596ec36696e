"""Explanation metrics: structure of the result, and agreement of a model with itself."""

import json

import pytest
import torch

from graphcaps.errors import ArgumentError
from graphcaps.explanation import evaluate_explanations, explanation_stability
from graphcaps.explanation.baselines import ATTRIBUTION_METHODS, PyGBatch
from graphcaps.explanation.explanation_metrics import METHODS, METRICS
from graphcaps.explanation.pyg_explainer import GraphProbabilities
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
        assert (row["nmi"] is not None) == (row["ari"] is not None) == parts, name
        assert (row["fidelity_plus"] is not None) == (row["sparsity"] is not None) == scores, name
        assert (row["entropy"] is not None) == (row["dead_capsules"] is not None) == (name == "capsules")
        assert row["seconds_per_graph"] > 0
    assert len(metrics["sample"]["graphs"]) == 4
    assert set(metrics["sample"]["fidelity_plus"]) == set(METHODS) - {"kmeans-features", "kmeans-primary"}
    assert metrics["instances"]["graphs"] == 30  # the easy level has one part of each kind
    assert len(metrics["capsules"]["share"]) == 4


def test_graphs_without_planted_parts_and_selected_methods() -> None:
    from dataclasses import replace

    store = replace(labelled(), truth={})
    metrics = evaluate_explanations(labelled_model(), store, methods=("random", "capsules"), seed=1)
    assert list(metrics["methods"]) == ["random", "capsules"]
    assert metrics["methods"]["capsules"]["nmi"] is None
    assert metrics["instances"] is None
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
    self_labelled = replace(store, truth={"kind": capsule, "part": capsule})
    row = evaluate_explanations(fitted, self_labelled, methods=("capsules",))["methods"]["capsules"]
    assert (row["nmi"], row["nmi_all"], row["ari"]) == pytest.approx((1, 1, 1))


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
