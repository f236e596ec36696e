"""What users of torch do with a module, one habit per test: autocast, compile, half, state dicts, hooks and others."""

from __future__ import annotations

import copy
import io
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader as TorchDataLoader
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from graphcaps.models.gcn import GCN
from graphcaps.models.gin import GIN
from graphcaps.nn import (
    HGCN,
    AdjacencyDecoder,
    CapsuleLayer,
    GraphModel,
    PrimaryCapsules,
    ReplicaGCNConv,
    ReplicaGINConv,
    ReplicaMLP,
    ReplicaSAGEConv,
)

ROOT = Path(__file__).parent.parent
CHANNELS, CLASSES = 5, 3
MODELS: dict[str, Callable[[], GraphModel]] = {
    "hgcn": lambda: HGCN(CHANNELS, CLASSES, capsule_dim=16, num_capsules=(4,)),
    "hgcn, two levels, dropout": lambda: HGCN(
        CHANNELS, CLASSES, capsule_dim=16, num_capsules=(6, 3), dropout=0.5
    ),
    "hgcn of the paper": lambda: HGCN(CHANNELS, CLASSES, capsule_dim=16, formulation="paper"),
    "hgcn, parts": lambda: HGCN(CHANNELS, CLASSES, capsule_dim=16, parts="blocks"),
    "hgcn, trunk": lambda: HGCN(CHANNELS, CLASSES, capsule_dim=16, trunk="gin"),
    "hgcn, context": lambda: HGCN(CHANNELS, CLASSES, capsule_dim=16, context="gin"),
    # Two layers: normalisation over few rows multiplies rounding errors, and each layer has two.
    "gin": lambda: GIN(CHANNELS, CLASSES, hidden=16, num_layers=2),
    "gcn": lambda: GCN(CHANNELS, CLASSES, hidden=16),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
three_models = pytest.mark.parametrize("name", ["hgcn", "gin", "gcn"])


def make_graphs(count: int = 8, *, seed: int = 0) -> list[Data]:
    """Cycles of 3 to 9 nodes with a chord; their class is in the features."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for number in range(count):
        n, label = 3 + number % 7, number % CLASSES
        ring = torch.arange(n)
        edge_index = torch.stack([ring, (ring + 1) % n])
        x = torch.rand(n, CHANNELS, generator=generator)
        x[:, label] += 1
        graphs.append(Data(x=x, edge_index=edge_index, y=torch.tensor([label])))
    return graphs


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Batch.from_data_list(make_graphs())


def build(make: Callable[[], GraphModel], seed: int = 0) -> GraphModel:
    torch.manual_seed(seed)
    return make()


def total_loss(model: GraphModel, batch: Batch, call: Callable[..., Any] | None = None) -> Tensor:
    call = model if call is None else call  # a compiled model has no truth value
    output = call(batch.x, batch.edge_index, batch.batch, y=batch.y)
    return model.loss(output, batch.y).total


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """Compares gradients in units of the largest entry of each tensor.

    A hundredth of the largest entry of all is the smallest unit: the gradient of a bias before a BatchNorm is zero up
    to rounding.
    """
    assert found.keys() == expected.keys()
    smallest = 0.01 * max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        scale = max(float(value.abs().max()), smallest)
        assert found[name].dtype == value.dtype, name
        assert float((found[name] - value).abs().max()) <= tolerance * scale, name


# ---------------------------------------------------------------------- precision
@every_model
@pytest.mark.parametrize("where", ["forward", "forward and backward"])
def test_autocast_in_bfloat16_is_close_to_float32(
    make: Callable[[], GraphModel], where: str, batch: Batch
) -> None:
    exact, cast = build(make), build(make)
    expected = total_loss(exact, batch)
    expected.backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = total_loss(cast, batch)
        if where != "forward":
            found.backward()
    if where == "forward":
        found.backward()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.01)
    # bfloat16 has eight bits: a product is right to 0.4 %, and normalisation over few rows multiplies the error.
    direction = nn.functional.cosine_similarity(
        torch.cat([value.reshape(-1) for value in gradients(cast).values()]),
        torch.cat([value.reshape(-1) for value in gradients(exact).values()]),
        dim=0,
    )
    assert float(direction) > 0.98


def test_autocast_computes_projections_in_bfloat16_and_routing_in_float32(batch: Batch) -> None:
    seen: dict[str, torch.dtype] = {}
    model = build(MODELS["hgcn"])
    exact = model(batch.x, batch.edge_index, batch.batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(batch.x, batch.edge_index, batch.batch)
        seen["projection"] = (batch.x @ torch.rand(CHANNELS, 2)).dtype
    assert seen["projection"] == torch.bfloat16
    assert output.class_scores.dtype == torch.float32
    assert not torch.equal(output.class_scores, exact.class_scores), "autocast had no effect"


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "CapsuleLayer": lambda: CapsuleLayer(CHANNELS, 8, num_capsules=3),
    "PrimaryCapsules": lambda: PrimaryCapsules(CHANNELS, 8),
    "ReplicaGCNConv": lambda: ReplicaGCNConv(CHANNELS, 8),
    "ReplicaGINConv": lambda: ReplicaGINConv(ReplicaMLP((CHANNELS, 8, 8))),
    "ReplicaSAGEConv": lambda: ReplicaSAGEConv(CHANNELS, 8),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
@pytest.mark.parametrize("features", [torch.float32, torch.bfloat16], ids=str)
def test_a_layer_alone_works_in_autocast(
    make: Callable[[], nn.Module], features: torch.dtype, batch: Batch
) -> None:
    """Also after a layer of torch, whose output is bfloat16 there."""
    torch.manual_seed(0)
    layer = make()
    expected = _tensor_of(layer(batch.x, batch.edge_index, batch.batch))
    x = batch.x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = _tensor_of(layer(x.to(features), batch.edge_index, batch.batch))
    found.float().sum().backward()
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


def _tensor_of(result: Any) -> Tensor:
    return result if isinstance(result, Tensor) else result.capsules


def test_the_decoder_works_in_autocast(batch: Batch) -> None:
    torch.manual_seed(0)
    decoder = AdjacencyDecoder(CLASSES, class_dim=8, capsule_dim=CHANNELS)
    capsules = torch.rand(len(batch.y), CLASSES, 8)
    graph = (batch.edge_index, batch.batch)
    expected = decoder(batch.x, *graph, class_capsules=capsules, y=batch.y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = decoder(batch.x, *graph, class_capsules=capsules, y=batch.y)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.01)


@three_models
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_a_model_of_another_type(name: str, dtype: torch.dtype, batch: Batch) -> None:
    exact, model = build(MODELS[name]), build(MODELS[name]).to(dtype)
    expected = exact(batch.x, batch.edge_index, batch.batch).class_scores
    output = model(batch.x.to(dtype), batch.edge_index, batch.batch, y=batch.y)
    assert output.class_scores.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float64 else 0.1
    torch.testing.assert_close(output.class_scores.float(), expected, rtol=tolerance, atol=tolerance)
    model.loss(output, batch.y).total.backward()
    assert all(bool(value.isfinite().all()) for value in gradients(model).values())


# ---------------------------------------------------------------------- torch.compile
@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer of torch warns of its own code
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()


compiler_test = pytest.mark.usefixtures("fresh_compiler")


cpp_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("gcn", "aot_eager"),
        pytest.param("hgcn", "aot_eager", marks=pytest.mark.slow),
        pytest.param("gin", "aot_eager", marks=pytest.mark.exhaustive),
        pytest.param("gcn", "inductor", marks=[cpp_compiler, pytest.mark.exhaustive]),
        pytest.param("hgcn", "inductor", marks=[cpp_compiler, pytest.mark.exhaustive]),
        pytest.param("gin", "inductor", marks=[cpp_compiler, pytest.mark.exhaustive]),
    ],
)
@compiler_test
def test_a_compiled_model_trains_like_an_eager_one(name: str, backend: str, batch: Batch) -> None:
    eager, model = build(MODELS[name]), build(MODELS[name])
    compiled = torch.compile(model, backend=backend)
    expected = total_loss(eager, batch)
    expected.backward()
    found = total_loss(model, batch, compiled)
    found.backward()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    # Inductor fuses operations and reorders sums in float32.
    assert_close(gradients(model), gradients(eager), 1e-3 if backend == "inductor" else 1e-4)


@pytest.mark.slow
@compiler_test
def test_a_compiled_model_has_two_graphs(batch: Batch) -> None:
    """One up to the reconstruction loss, one after it; the batch is checked before them."""
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(build(MODELS["hgcn"]), backend="eager")
    compiled(batch.x, batch.edge_index, batch.batch, y=batch.y)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


@compiler_test
def test_a_compiled_capsule_layer(batch: Batch) -> None:
    torch.manual_seed(0)
    layer = CapsuleLayer(CHANNELS, 8, num_capsules=3).eval()
    expected = layer(batch.x, batch.edge_index, batch.batch).capsules
    found = torch.compile(layer, backend="aot_eager")(batch.x, batch.edge_index, batch.batch).capsules
    torch.testing.assert_close(found, expected)


# ---------------------------------------------------------------------- copies and files
@every_model
def test_a_deep_copy_is_independent(make: Callable[[], GraphModel], batch: Batch) -> None:
    model = build(make).eval()
    twin = copy.deepcopy(model)
    before = model(batch.x, batch.edge_index, batch.batch).class_scores
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(model(batch.x, batch.edge_index, batch.batch).class_scores, before)


@every_model
def test_a_state_dict_round_trip(make: Callable[[], GraphModel], batch: Batch, tmp_path: Path) -> None:
    model, other = build(make), build(make, seed=1)
    total_loss(model, batch)  # changes running averages and the step of dropout
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    torch.testing.assert_close(total_loss(other, batch), total_loss(model, batch), rtol=0, atol=0)


@three_models
def test_a_whole_model_can_be_pickled_by_torch_save(name: str, batch: Batch) -> None:
    model = build(MODELS[name]).eval()
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    expected = model(batch.x, batch.edge_index, batch.batch).class_scores
    assert torch.equal(again(batch.x, batch.edge_index, batch.batch).class_scores, expected)


def test_moving_a_model_returns_it() -> None:
    model = build(MODELS["hgcn"])
    assert model.to("cpu") is model
    assert model.to(torch.device("meta")).layers[0].weight.is_meta


# ---------------------------------------------------------------------- modes, hooks and gradients
def test_train_and_eval_differ_by_dropout_and_statistics(batch: Batch) -> None:
    model = build(MODELS["hgcn, two levels, dropout"])
    arguments = (batch.x, batch.edge_index, batch.batch)
    first, second = (model(*arguments).class_scores for _ in range(2))
    assert not torch.equal(first, second)
    mean = model.primary.norm.running_mean.clone()
    model.eval()
    first, second = (model(*arguments).class_scores for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(model.primary.norm.running_mean, mean)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_scores_without_gradient(mode: Callable[[], Any], batch: Batch) -> None:
    model = build(MODELS["hgcn"]).eval()
    expected = model(batch.x, batch.edge_index, batch.batch).class_scores
    with mode():
        found = model(batch.x, batch.edge_index, batch.batch).class_scores
    assert not found.requires_grad
    torch.testing.assert_close(found, expected)


def test_hooks_are_called(batch: Batch) -> None:
    model = build(MODELS["hgcn"])
    calls: list[str] = []
    model.register_forward_pre_hook(lambda module, inputs: calls.append("before"))
    model.register_forward_hook(lambda module, inputs, output: calls.append("after"))
    model.primary.register_forward_hook(lambda module, inputs, output: calls.append("primary"))
    model.layers[0].weight.register_hook(lambda gradient: calls.append("gradient"))
    total_loss(model, batch).backward()
    assert calls == ["before", "primary", "after", "gradient"]


def test_gradient_clipping_and_accumulation(batch: Batch) -> None:
    model = build(MODELS["hgcn"]).eval()
    for _ in range(2):
        total_loss(model, batch).backward()
    twice = gradients(model)
    twin = build(MODELS["hgcn"]).eval()
    total_loss(twin, batch).backward()
    assert_close(twice, {name: 2 * value for name, value in gradients(twin).items()}, 1e-5)
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    assert float(nn.utils.get_total_norm(gradients(model).values())) <= 0.0101


def test_frozen_parameters_keep_their_values(batch: Batch) -> None:
    model = build(MODELS["hgcn"])
    model.primary.requires_grad_(False)
    before = model.primary.weight.clone()
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=1.0)
    total_loss(model, batch).backward()
    optimizer.step()
    assert torch.equal(model.primary.weight, before)
    assert model.primary.weight.grad is None


def test_the_gradient_of_the_input(batch: Batch) -> None:
    model = build(MODELS["hgcn"])
    x = batch.x.clone().requires_grad_()
    model(x, batch.edge_index, batch.batch).class_scores.sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().sum()) > 0


# ---------------------------------------------------------------------- loops
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_a_loop_with_the_loader_of_torch_geometric_learns(optimizer: type[torch.optim.Optimizer]) -> None:
    model = build(MODELS["hgcn"])
    steps = optimizer(model.parameters(), lr=0.5 if optimizer is torch.optim.SGD else 0.01)  # type: ignore[call-arg]
    loader = DataLoader(make_graphs(24), batch_size=8, shuffle=True)
    losses = []
    for _ in range(12):
        for batch in loader:
            steps.zero_grad()
            loss = total_loss(model, batch)
            loss.backward()
            steps.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


def test_a_loop_with_the_loader_of_torch() -> None:
    model = build(MODELS["hgcn"])
    loader = TorchDataLoader(make_graphs(6), batch_size=3, collate_fn=Batch.from_data_list)
    for batch in loader:
        total_loss(model, batch).backward()
    assert gradients(model)


def test_distributed_data_parallel() -> None:
    # In a process of its own that ends at once: torch joins the threads of a process group that a wrapper was the last
    # to hold without giving up the interpreter lock, and a thread that frees a tensor waits for that lock, for ever.
    code = (
        "import os; from tests.test_torch_habits import compare_with_one_process as run; run(); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def compare_with_one_process() -> None:
    batch = Batch.from_data_list(make_graphs())
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    single, model = build(MODELS["hgcn"]), build(MODELS["hgcn"])
    parallel = DistributedDataParallel(model)
    total_loss(single, batch).backward()
    total_loss(model, batch, parallel).backward()
    assert_close(gradients(model), gradients(single), 1e-6)
