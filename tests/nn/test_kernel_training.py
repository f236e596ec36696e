"""The loss of an HGCN and its gradients in kernels of their own: those of its layers in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.data.batching import collate
from graphcaps.data.features.encoding import feature_table
from graphcaps.data.store import GraphStore
from graphcaps.nn import HGCN
from graphcaps.nn.fused_training import KernelTraining
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import use_precision
from graphcaps.ops.reconstruction.adjacency_bits import pack_adjacency
from graphcaps.types import FeatureTable, GraphBatch, LossOptions, Precision
from tests.graphs import assert_equal, random_graphs, with_empty_graphs, with_weights
from tests.ops.conftest import kernel_device  # noqa: F401

DRAWN = torch.tensor([[0, 3, 1, 5], [2, 2, -1, 4]])
MODEL: dict[str, Any] = {"capsule_dim": 16, "num_capsules": (5,), "dropout": 0.3, "lead": (2,)}


def _store(sizes: list[int], classes: int, weighted: bool = False) -> tuple[GraphStore, Tensor]:
    graphs = random_graphs(sizes, channels=6, classes=classes, seed=3)
    store = graphs.as_store()
    return with_weights(store) if weighted else store, graphs.x


def _batch(
    store: GraphStore, x: Tensor | FeatureTable, drawn: Tensor = DRAWN, with_bits: bool = True
) -> GraphBatch:
    batch = collate(store, x, drawn)
    bits = pack_adjacency(store.edge_ptr, store.neighbours, store.sizes) if with_bits else None
    return replace(batch, edges=replace(batch.edges, bits=bits))


def _model(options: dict[str, Any], classes: int) -> HGCN:
    torch.manual_seed(0)
    model = HGCN(6, classes, **{**MODEL, **options})
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # γ and β of every normalisation, and biases, are not those of the start
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def _run(model: HGCN, batch: GraphBatch, options: LossOptions, *, fused: bool) -> dict[str, Tensor]:
    """Two steps: the second has another dropout mask and updated running statistics."""
    compute = model.training_function() if fused else model.training_loss
    for _ in range(2):
        model.zero_grad()
        loss = compute(batch, options)
        loss.backward()
    results: dict[str, Any] = {"loss": loss.terms.total, "scores": loss.class_scores, **loss.terms.terms}
    results |= {f"gradient of {name}": value.grad for name, value in model.named_parameters()}
    results |= {name: value for name, value in model.named_buffers() if value.is_floating_point()}
    return {name: value.detach().cpu().double() for name, value in results.items() if value is not None}


def _compare(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    options: dict[str, Any],
    *,
    classes: int = 3,
    sizes: list[int] | None = None,
    weighted: bool = False,
    bits: bool = True,
    loss: LossOptions | None = None,
    tolerance: float | None = None,
    precision: Precision = "float32",
) -> None:
    store, x = _store(sizes or [9, 33, 1, 2, 17, 5], classes, weighted)
    loss = loss or LossOptions()
    if (
        tolerance is None
    ):  # the gradient of the reconstruction loss amplifies rounding where products are near 1
        tolerance = 3e-5 if options.get("reconstruction") is False else 2e-3
    exact = _model(options, classes).double()
    with use_kernels("off"):
        expected = _run(exact, _batch(store, x), loss, fused=False)
    there = store.to(device)
    model, features = _model(options, classes).to(device), feature_table(x.float().to(device), there)
    with use_kernels("always"), use_precision(precision):
        assert isinstance(model.training_function(), KernelTraining)
        monkeypatch.setattr(model, "training_loss", None)  # else the layers could be compared with themselves
        actual = _run(model, _batch(there, features, with_bits=bits), loss, fused=True)
    assert actual.keys() == expected.keys()
    real = DRAWN >= 0
    for name, value in expected.items():
        found, value = (each[real] if name == "scores" else each for each in (actual[name], value))
        scale = max(1e-3, float(value.abs().max()))
        assert_equal(found / scale, value / scale, name, tolerance)


def test_equals_the_layers(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    _compare(monkeypatch, kernel_device, {})
    _compare(monkeypatch, kernel_device, {"reconstruction": False})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"residual_nodes": 40, "num_capsules": (3,), "reconstruction": False}, {"classes": 2}),
        ({"class_residual": False, "dropout": 0.0, "reconstruction": False}, {"classes": 6}),
        ({"residual": False, "routing_iterations": 2, "reconstruction": False}, {}),
        ({"reconstruction": False, "capsule_dim": 20}, {"classes": 2}),
        ({"routing_iterations": 4, "reconstruction": False}, {"weighted": True}),
        ({}, {"loss": LossOptions(reconstruction_weight=0.0)}),
        ({}, {"bits": False}),
    ],
    ids=str,
)
def test_options(
    options: dict[str, Any],
    settings: dict[str, Any],
    kernel_device: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _compare(monkeypatch, kernel_device, options, **settings)


@pytest.mark.slow
def test_each_replica_has_its_own_numbers(kernel_device: str) -> None:  # noqa: F811
    """Dropout, margins and weight of the reconstruction loss."""
    numbers: dict[str, Any] = {
        "dropout": torch.tensor([0.2, 0.5]),
        "upper_margin": torch.tensor([0.9, 0.8]),
        "lower_margin": torch.tensor([0.1, 0.2]),
    }
    store, x = _store([9, 33, 1, 2, 17, 5], 2)
    results = []
    for fused in (False, True):
        model = _model(numbers, 2)
        device = kernel_device if fused else "cpu"
        model = model.to(device) if fused else model.double()
        weight = torch.tensor([0.1, 0.7], device=device, dtype=torch.float32 if fused else torch.float64)
        there = store.to(device)
        features: Any = feature_table(x.float().to(device), there) if fused else x
        with use_kernels("always" if fused else "off"):
            results.append(
                _run(model, _batch(there, features), LossOptions(reconstruction_weight=weight), fused=fused)
            )
    expected, actual = results
    for name, value in expected.items():
        found, value = (each[DRAWN >= 0] if name == "scores" else each for each in (actual[name], value))
        scale = max(1e-3, float(value.abs().max()))
        assert_equal(found / scale, value / scale, name, 2e-3)


@pytest.mark.exhaustive
def test_a_graph_of_several_chunks(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Without reconstruction, whose gradient amplifies rounding where products are near 1."""
    _compare(
        monkeypatch,
        kernel_device,
        {"residual_nodes": 900, "reconstruction": False},
        sizes=[9, 700, 1, 2, 17, 5],
    )


def test_a_labelled_graph_without_nodes_has_no_gradient(kernel_device: str) -> None:  # noqa: F811
    """Its scores are 0, as those of the layers."""
    store, x = _store([9, 33, 1, 2, 17, 5], 2)
    store, _ = with_empty_graphs(store, [0, 1, 0, 0, 0, 0, 0], y=1)  # graph 1 has no nodes
    drawn, there = torch.tensor([[0, 1, 4, 2], [3, 5, 6, 1]]), store.to(kernel_device)
    with use_kernels("off"):
        exact = _model({"reconstruction": False}, 2).double()
        expected = _run(exact, _batch(store, x, drawn), LossOptions(), fused=False)
    with use_kernels("always"):
        model = _model({"reconstruction": False}, 2).to(kernel_device)
        batch = _batch(there, feature_table(x.float().to(kernel_device), there), drawn)
        actual = _run(model, batch, LossOptions(), fused=True)
    assert not actual["scores"][0, 1].any()
    assert not actual["scores"][1, 3].any()
    for name, value in expected.items():
        scale = max(1e-3, float(value.abs().max()))
        assert_equal(actual[name] / scale, value / scale, name, 3e-5)


@pytest.mark.slow
def test_a_replica_without_graphs_changes_nothing(kernel_device: str) -> None:  # noqa: F811
    """As the last step of an epoch in which other replicas have graphs left."""
    store, x = _store([9, 33, 1, 2, 17, 5], 2)
    there = store.to(kernel_device)
    model, features = _model({}, 2).to(kernel_device), feature_table(x.float().to(kernel_device), there)
    before = {name: value.clone() for name, value in model.named_buffers()}
    batch = _batch(there, features, torch.tensor([[0, 3, 1, 5], [-1, -1, -1, -1]]))
    with use_kernels("always"):
        loss = model.training_function()(batch, LossOptions())
        loss.backward()
    assert loss.terms.total[1] == 0
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all(), name
        assert not parameter.grad[1].any(), name
    for name, value in model.named_buffers():
        assert torch.equal(value[1], before[name][1]), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize(
    ("precision", "width", "tolerance"),
    [
        ("float32", 128, 1e-4),
        ("tf32", 128, 0.05),
        ("bf16", 128, 0.3),
        ("tf32", 64, 0.05),
        ("tf32", 32, 0.05),
    ],
)
def test_precisions(
    precision: Precision, width: int, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without reconstruction, whose gradient amplifies rounding where products are near 1."""
    sizes = [30, 70, 1, 2, 17, 600]
    options = {"capsule_dim": width, "num_capsules": (10,), "reconstruction": False}
    _compare(monkeypatch, "cuda", options, sizes=sizes, precision=precision, tolerance=tolerance)
