"""On a GPU: the same explanation as on the CPU, and the measures run."""

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
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def test_device_does_not_matter() -> None:
    fitted = small_model()
    there = FittedModel(copy.deepcopy(fitted.model), fitted.config, fitted.recipe, fitted.class_names).to(
        "cuda"
    )
    expected, found = explain(fitted, planted()), explain(there, planted())
    assert found.node_scores.device.type == "cpu"
    for name in ("class_scores", "node_scores", "edge_scores", "reconstruction_error"):
        assert_equal(getattr(found, name), getattr(expected, name), name, 1e-3)
    for one, other in zip(found.rounds, expected.rounds, strict=True):
        assert_equal(one, other, "rounds", 1e-3)
    methods = ("capsules", "gradient", "gnnexplainer", "random", "kmeans-primary")
    figures = evaluate_explanations(there, planted(), sample=2, methods=methods)["methods"]
    assert all(figures[name]["seconds_per_graph"] > 0 for name in methods)
