"""HGCN with a FeatureTable: the same results as with gathered rows, without gathering them."""

from typing import Any

import pytest
import torch

from graphcaps.data.batching import collate
from graphcaps.data.features.encoding import feature_table
from graphcaps.nn import HGCN
from graphcaps.ops._triton.dispatch import use_kernels
from tests.graphs import assert_equal, random_graphs
from tests.ops.conftest import kernel_device  # noqa: F401

DRAWN = torch.tensor([[0, 2, 2, -1], [-1, -1, -1, -1]])
SMALL: dict[str, Any] = {
    "capsule_dim": 8, "num_capsules": 3, "routing_iterations": 1, "dropout": 0.3, "reconstruction": False,
    "lead": (2,),
}  # fmt: skip


@pytest.mark.parametrize("arguments", [{}, {"formulation": "paper", "factor_squash": "separate"}], ids=str)
def test_equals_gathered_rows(arguments: dict[str, Any], kernel_device: str, monkeypatch: Any) -> None:  # noqa: F811
    monkeypatch.setattr("graphcaps.ops._triton.row_products.PROGRAMS", 4)
    graphs = random_graphs([5, 9, 1], channels=6, seed=3)
    store = graphs.as_store().to(kernel_device)
    x = graphs.x.float().to(kernel_device).relu()
    results: list[dict[str, Any]] = []
    with use_kernels("always"):
        for features in (x, feature_table(x, store)):
            torch.manual_seed(0)
            model = HGCN(6, 2, **SMALL, **arguments)
            model.to(kernel_device)
            batch = collate(store, features, DRAWN)
            output = model.forward_batch(batch, batch.y)
            model.loss(output, batch.y).total.sum().backward()  # type: ignore[arg-type]
            if features is not x:
                assert "x" not in batch.__dict__  # the cached property that gathers rows was not used
            result: dict[str, Any] = {f"gradient of {name}": p.grad for name, p in model.named_parameters()}
            result |= {name: b.clone() for name, b in model.named_buffers() if b.is_floating_point()}
            result["scores"] = output.class_scores[:1]
            results.append(result)
    gathered, from_table = results
    for name, value in gathered.items():
        assert_equal(from_table[name], value, name, 1e-4)
