"""Projection straight from the store by kernels, against gathered rows in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.data.batching import collate
from graphcaps.data.features.encoding import feature_table
from graphcaps.nn import PrimaryCapsules
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import use_precision
from graphcaps.ops.projection.projection import (
    feature_statistics,
    project,
    project_gathered,
    projects_with_norm,
    projects_without_gather,
)
from graphcaps.types import FeatureRows
from tests.graphs import assert_equal, masked_segments, random_graphs

TOLERANCE = {"float32": 2e-5, "tf32": 5e-3, "bf16": 4e-2}
SIZES = [9, 33, 1, 63, 2, 65, 100, 31]
DRAWN = {
    "one model": [0, 3, 1, 5, 2],
    "one model, padded": [4, -1, 6, 6],
    "replicas": [[0, 3, 1, -1], [2, 2, 5, 4], [-1, -1, -1, -1], [6, 7, 2, 0]],
    "replicas of one node": [[2], [2]],
    "nothing but padding": [[-1, -1], [-1, 2]],
}


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fills new memory with NaN, and uses few programs, each with several tiles."""
    monkeypatch.setattr("graphcaps.ops._triton.row_products.PROGRAMS", 16)


def _features(nodes: int, channels: int, seed: int = 0) -> Tensor:
    """Mostly zeros; a constant column, rare ones, and from four columns on real numbers far from zero."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.nn.functional.one_hot(
        torch.randint(0, channels, (nodes,), generator=generator), channels
    ).float()
    x += (torch.rand(nodes, channels, generator=generator) < 3 / channels).float()
    x[:, 0] = 1
    if channels > 3:
        x[:, 1] = 0
        x[5, 1] = 2.0  # in one graph alone
        x[:, 2] = 1000 + torch.randn(nodes, generator=generator)
        x[:, 3] = torch.arange(nodes) % 50 == 0
    return x


def _dense_features(nodes: int, channels: int) -> Tensor:
    """Hardly a zero; one column is far from zero, and one is constant."""
    x = torch.randn(nodes, channels, generator=torch.Generator().manual_seed(0))
    x[:, 0] += 1000
    x[:, -1] = 3
    return x


def _rows(drawn: Any, channels: int, device: str, dtype: torch.dtype, *, dense: bool = False) -> FeatureRows:
    store = random_graphs(SIZES).as_store().to(device)
    x = (_dense_features if dense else _features)(store.num_nodes, channels)
    table = feature_table(x.to(device=device, dtype=dtype), store)
    assert table.sparse is not dense
    rows = collate(store, table, torch.tensor(drawn)).features
    assert isinstance(rows, FeatureRows)
    return rows


def _layer(channels: int, d: int, lead: tuple[int, ...], **inputs: Any) -> PrimaryCapsules:
    torch.manual_seed(1)
    layer = PrimaryCapsules(channels, d, num_factors=1, lead=lead, **inputs)
    with torch.no_grad():
        if layer.norm is not None:
            for tensor in (layer.norm.weight, layer.norm.bias, layer.norm.running_mean):
                tensor.normal_()
            layer.norm.running_var.uniform_(0.5, 2.0)
        layer.bias.normal_()
    return layer


def _run(
    layer: PrimaryCapsules, rows: FeatureRows, grad_output: Tensor, exact: bool = False
) -> dict[str, Tensor]:
    """What a step and a pass in evaluation leave."""
    inputs: FeatureRows | Tensor = rows
    if exact:
        inputs = rows.gather()
    else:
        outside = (rows.node < 0).unsqueeze(-1)
        grad_output = grad_output.masked_fill(outside, float("nan"))
    actual = {"capsules": layer(inputs, batch=masked_segments(rows.node >= 0))}
    names, parameters = zip(*layer.named_parameters(), strict=True)
    grads = torch.autograd.grad(actual["capsules"], parameters, grad_output)
    actual |= {f"gradient of {name}": value for name, value in zip(names, grads, strict=True)}
    if layer.norm is not None:
        actual |= {f"running {name}": value.clone() for name, value in layer.norm.named_buffers()}
    with torch.no_grad():
        actual["capsules in evaluation"] = layer.eval()(inputs, batch=masked_segments(rows.node >= 0))
    return {name: value.detach().cpu().double() for name, value in actual.items()}


@pytest.mark.parametrize(
    ("drawn", "channels", "d", "inputs"),
    [
        ("one model", 19, 8, {}),
        ("one model, padded", 130, 33, {}),
        ("one model, padded", 7, 130, {}),
        ("replicas", 70, 8, {}),
        ("one model", 7, 128, {}),
        ("replicas", 3, 1, {}),
        ("replicas", 16, 20, {"formulation": "paper"}),
        ("replicas of one node", 1, 32, {}),
        ("nothing but padding", 64, 32, {"dropout": 0.3}),
    ],
)
def test_capsules_and_gradients(
    drawn: str, channels: int, d: int, inputs: dict[str, Any], kernel_device: str
) -> None:
    rows = _rows(DRAWN[drawn], channels, kernel_device, torch.float32)
    exact = _rows(DRAWN[drawn], channels, "cpu", torch.float64)
    lead = tuple(rows.node.shape[:-1])
    grad = torch.randn(*rows.node.shape, d)
    with use_kernels("always"):
        layer = _layer(channels, d, lead, **inputs).to(kernel_device)
        assert projects_without_gather(rows, layer.weight)
        actual = _run(layer, rows, grad.to(kernel_device))
    with use_kernels("off"):
        clean = grad.masked_fill((exact.node < 0).unsqueeze(-1), 0)
        expected = _run(_layer(channels, d, lead, **inputs).double(), exact, clean.double(), exact=True)
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        assert_equal(actual[name], value, name, TOLERANCE["float32"])


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize(
    ("drawn", "channels", "d", "inputs"),
    [
        ("replicas", 40, 24, {}),
        ("one model, padded", 70, 33, {"dropout": 0.3}),
        ("replicas", 186, 128, {}),
        ("nothing but padding", 40, 32, {}),
    ],
)
def test_capsules_of_features_that_are_not_sparse(
    drawn: str, channels: int, d: int, inputs: dict[str, Any], precision: Any, kernel_device: str
) -> None:
    """Read from the store like sparse ones; a step leaves what gathered rows in float64 leave."""
    rows = _rows(DRAWN[drawn], channels, kernel_device, torch.float32, dense=True)
    exact = _rows(DRAWN[drawn], channels, "cpu", torch.float64, dense=True)
    lead = tuple(rows.node.shape[:-1])
    grad = torch.randn(*rows.node.shape, d)
    with use_kernels("always"), use_precision(precision):
        layer = _layer(channels, d, lead, **inputs).to(kernel_device)
        assert not projects_without_gather(rows, layer.weight)
        assert projects_with_norm(rows, layer.weight)
        actual = _run(layer, rows, grad.to(kernel_device))
    with use_kernels("off"):
        clean = grad.masked_fill((exact.node < 0).unsqueeze(-1), 0)
        expected = _run(_layer(channels, d, lead, **inputs).double(), exact, clean.double(), exact=True)
    for name, value in expected.items():
        if name.startswith("gradient") and precision != "float32":
            # Rounding changes the sign of a few numbers before the ReLU, and with it single gradients.
            error = float((actual[name] - value).norm() / value.norm().clamp_min(1e-9))
            assert error <= 0.05, f"{name} differs by {error:.3g}"
        else:
            kind = "float32" if name.startswith("running") else precision
            assert_equal(actual[name], value, name, TOLERANCE[kind])


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize(
    ("channels", "d", "drawn"),
    [(40, 24, "replicas"), (70, 5, "one model, padded"), (130, 80, "replicas")],
)
def test_projection_equals_the_reference(
    channels: int, d: int, drawn: str, precision: Any, kernel_device: str
) -> None:
    """Also of columns that do not vary in the batch: centred first, they leave nothing to be rounded."""
    rows = _rows(DRAWN[drawn], channels, kernel_device, torch.float32)
    exact = _rows(DRAWN[drawn], channels, "cpu", torch.float64)
    lead = rows.node.shape[:-1]
    how = {"training": True, "momentum": 0.1, "epsilon": 1e-5}
    torch.manual_seed(0)
    weight, scale = torch.randn(*lead, channels, d), torch.randn(*lead, channels)
    gradient = torch.randn(*rows.node.shape, d)
    actual: dict[str, Tensor] = {}
    expected: dict[str, Tensor] = {}
    for result, inputs, mode in ((actual, rows, "always"), (expected, exact, "off")):
        x = inputs.table.x
        running = (x.new_zeros(*lead, channels), x.new_ones(*lead, channels))
        W, s = (t.to(x).requires_grad_() for t in (weight, scale))
        with use_kernels(mode), use_precision(precision):  # type: ignore[arg-type]
            mean, result["rstd"] = feature_statistics(inputs, running, **how)  # type: ignore[arg-type]
            result["running mean"], result["running variance"] = running
            multiply = project if mode == "always" else project_gathered
            result["z"] = multiply(inputs, W, s * result["rstd"], mean)
        away = gradient.to(x).masked_fill(
            (inputs.node < 0).unsqueeze(-1), float("nan") if mode == "always" else 0
        )
        result["gradient of W"], result["gradient of s"] = torch.autograd.grad(result["z"], (W, s), away)
    for name, value in expected.items():
        kind = precision if name.startswith("gradient") else "float32"
        assert_equal(actual[name].cpu().double(), value, name, TOLERANCE[kind])


def test_statistics_are_those_of_the_rows(kernel_device: str) -> None:
    rows = _rows(DRAWN["replicas"], 40, kernel_device, torch.float32)
    running = (torch.zeros(4, 40, device=kernel_device), torch.ones(4, 40, device=kernel_device))
    with use_kernels("always"):
        mean, rstd = feature_statistics(rows, running, training=True, momentum=0.1, epsilon=1e-5)
    for replica in (0, 1, 3):
        real = rows.gather()[replica][rows.node[replica] >= 0].double()
        var, centre = torch.var_mean(real, 0, correction=0)
        assert_equal((mean[replica] + rows.table.shift).double(), centre, "mean", 1e-7)
        assert_equal(rstd[replica].double(), (var + 1e-5).rsqrt(), "rstd", 1e-6)
    assert running[0][2].eq(0).all()  # without a graph nothing moves
    assert running[1][2].eq(1).all()


def test_a_repeated_step_gives_the_same_bits(kernel_device: str) -> None:
    rows = _rows(DRAWN["one model, padded"], 20, kernel_device, torch.float32)
    grad = torch.randn(*rows.node.shape, 24, device=kernel_device)
    with use_kernels("always"):
        one, two = (_run(_layer(20, 24, ()).to(kernel_device), rows, grad) for _ in range(2))
    for name, value in one.items():
        assert torch.equal(value, two[name]), name


@pytest.mark.parametrize("inputs", [{"formulation": "paper"}, {"factor_squash": "separate"}], ids=str)
def test_other_layers_gather_dense_tables(inputs: dict[str, Any], kernel_device: str) -> None:
    rows = _rows([[0, 1], [2, -1]], 40, kernel_device, torch.float32, dense=True)
    layer = _layer(40, 8, (2,), **inputs).to(kernel_device).eval()
    batch = masked_segments(rows.node >= 0)
    with use_kernels("always"):
        assert not projects_without_gather(rows, layer.weight)
        actual = layer(rows, batch=batch)
        expected = layer(rows.gather().masked_fill((rows.node < 0).unsqueeze(-1), 0), batch=batch)
    assert_equal(actual, expected)
