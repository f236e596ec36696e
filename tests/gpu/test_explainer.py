"""Explanations on a GPU equal those on a CPU, and their metrics can be computed."""

import copy

import pytest
import torch

from graphcaps import explain
from graphcaps.explanation import evaluate_explanations
from graphcaps.inference.fitted_model import FittedModel
from tests.graphs import assert_equal
from tests.small_models import planted, small_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_explanation_equals_cpu() -> None:
    fitted = small_model()
    on_gpu = FittedModel(copy.deepcopy(fitted.model), fitted.config, fitted.recipe, fitted.class_names).to(
        "cuda"
    )
    expected, actual = explain(fitted, planted()), explain(on_gpu, planted())
    assert actual.node_scores.device.type == "cpu"
    for name in ("class_scores", "node_scores", "edge_scores", "reconstruction_error"):
        assert_equal(getattr(actual, name), getattr(expected, name), name, 1e-3)
    for one, other in zip(actual.iterations, expected.iterations, strict=True):
        assert_equal(one, other, "iterations", 1e-3)
    methods = ("capsules", "gradient", "gnnexplainer", "random", "kmeans-primary")
    metrics = evaluate_explanations(on_gpu, planted(), sample=2, methods=methods)["methods"]
    assert all(metrics[name]["seconds_per_graph"] > 0 for name in methods)
