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
from graphcaps.nn.fused_training import KernelTraining, VoteTraining
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import use_precision
from graphcaps.ops.fused_loss.written_out_loss import WrittenOutLoss
from graphcaps.ops.reconstruction.adjacency_bits import pack_adjacency
from graphcaps.training.optimizer import ReplicaAdam
from graphcaps.types import FeatureTable, GraphBatch, LossOptions, Precision, TrainingLoss
from tests.graphs import assert_equal, random_graphs, with_empty_graphs, with_kinds, with_weights
from tests.ops.conftest import kernel_device  # noqa: F401

pytestmark = pytest.mark.usefixtures("empty_is_nan")
DRAWN = torch.tensor([[0, 3, 1, 5], [2, 2, -1, 4]])
MODEL: dict[str, Any] = {"capsule_dim": 16, "num_capsules": (5,), "dropout": 0.3, "lead": (2,)}


def _store(sizes: list[int], classes: int, weights_from: float | None = None) -> tuple[GraphStore, Tensor]:
    """Graphs and features; with edge weights from a number up to 1.4 more, if that is given."""
    graphs = random_graphs(sizes, channels=6, classes=classes, seed=3)
    store = graphs.as_store()
    if weights_from is not None:
        store = with_weights(store)
        assert store.edge_weight is not None
        lowest = float(store.edge_weight.min())
        store = replace(store, edge_weight=store.edge_weight - lowest + weights_from)
    return store, graphs.x


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
    results |= dict(model.named_buffers())  # also numbers of steps, on which samples depend
    return {name: value.detach().cpu().double() for name, value in results.items() if value is not None}


def _compare(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    options: dict[str, Any],
    *,
    classes: int = 3,
    sizes: list[int] | None = None,
    drawn: Tensor = DRAWN,
    weights_from: float | None = None,
    bits: bool = True,
    labelled: bool = False,
    loss: LossOptions | None = None,
    tolerance: float | None = None,
    precision: Precision = "float32",
    kind: type[KernelTraining] | type[VoteTraining] = KernelTraining,
) -> None:
    store, x = _store(sizes or [9, 33, 1, 2, 17, 5], classes, weights_from)
    if labelled:
        store = with_kinds(store, (3,))
    loss = loss or LossOptions()
    if tolerance is None:
        # The gradient of the reconstruction loss amplifies rounding where products are near 1.
        tolerance = 3e-5 if options.get("reconstruction") is False else 2e-3
    exact = _model(options, classes).double()
    with use_kernels("off"):
        expected = _run(exact, _batch(store, x, drawn), loss, fused=False)
    there = store.to(device)
    model, features = _model(options, classes).to(device), feature_table(x.float().to(device), there)
    with use_kernels("always"), use_precision(precision):
        assert type(model.training_function()) is kind
        monkeypatch.setattr(model, "training_loss", None)  # else the layers could be compared with themselves
        actual = _run(model, _batch(there, features, drawn, with_bits=bits), loss, fused=True)
    assert actual.keys() == expected.keys()
    real = drawn >= 0
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
        ({"routing_iterations": 4, "reconstruction": False}, {"weights_from": 0.1}),
        ({"reconstruction": False}, {"weights_from": -1.0, "tolerance": 5e-4}),  # sums of both signs
        ({}, {"loss": LossOptions(reconstruction_weight=0.0)}),
        ({}, {"bits": False}),
        ({"reconstruct_up_to": 8}, {}),
        ({"reconstruct_up_to": 8}, {"loss": LossOptions(reconstruction_weight=0.0)}),
        ({"reconstruct_up_to": 40, "dropout": 0.0}, {"classes": 2}),
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


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"context": "gin", "reconstruction": False}, {}),
        ({"trunk": "sage"}, {}),
        ({"context": "residual", "residual": False, "reconstruction": False}, {"weights_from": 0.1}),
        ({"context": "gated", "class_residual": False}, {"loss": LossOptions(reconstruction_weight=0.0)}),
        (
            {"trunk": "gin", "residual_nodes": 40, "routing_iterations": 2, "reconstruction": False},
            {"classes": 6},
        ),
        ({"trunk": "gat", "reconstruction": False}, {"classes": 2}),
        ({"trunk": "sage", "reconstruct_up_to": 8}, {}),
        ({"factor_squash": "separate"}, {}),
        ({"trunk": "sage", "lead": (), "reconstruction": False}, {"drawn": DRAWN[0]}),
        ({"disentangle": False, "capsule_dim": 6, "reconstruction": False}, {}),
    ],
    ids=str,
)
def test_options_below_the_votes(
    options: dict[str, Any],
    settings: dict[str, Any],
    kernel_device: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Layers compute what the votes read, and autograd its gradients."""
    _compare(monkeypatch, kernel_device, options, **settings, kind=VoteTraining)


def test_edge_labels_below_the_votes(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    options = {"edge_kinds": (3,), "reconstruction": False}
    _compare(monkeypatch, kernel_device, options, labelled=True, kind=VoteTraining)


def test_frozen_parts_have_no_gradient(kernel_device: str) -> None:  # noqa: F811
    """Everything below the votes, or the votes themselves; the other gradients do not change."""
    store, x = _store([9, 33, 1, 2, 17, 5], 3)
    there = store.to(kernel_device)
    batch = _batch(there, feature_table(x.float().to(kernel_device), there))
    with use_kernels("always"):
        expected = _run(_model({"trunk": "sage"}, 3).to(kernel_device), batch, LossOptions(), fused=True)
        for names in (("primary.", "layers.0.norm", "layers.0.trunk"), ("layers.0.weight", "layers.0.bias")):
            model = _model({"trunk": "sage"}, 3).to(kernel_device)
            frozen = {name for name, _ in model.named_parameters() if name.startswith(names)}
            assert frozen
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(name not in frozen)
            found = _run(model, batch, LossOptions(), fused=True)
            assert found.keys() == expected.keys() - {f"gradient of {name}" for name in frozen}
            for name, value in found.items():
                assert_equal(value, expected[name], name, 1e-6)


@pytest.mark.parametrize("options", [{}, {"trunk": "sage"}], ids=str)
def test_weights_from_the_votes_on_are_updated_before_the_end(
    options: dict[str, Any],
    kernel_device: str,  # noqa: F811
) -> None:
    """With the bits of an update at the end: what comes later does not read them."""
    store, x = _store([9, 33, 1, 2, 17, 5], 3)
    there = store.to(kernel_device)
    batch = _batch(there, feature_table(x.float().to(kernel_device), there))
    results, updated = [], set()
    for early in (False, True):
        model = _model(options, 3).to(kernel_device)
        adam = ReplicaAdam(model, 2, weight_decay=0.1)
        adam.set_rate(0.1)

        def update(model: HGCN = model, adam: ReplicaAdam = adam) -> None:
            updated.update(name for name, parameter in model.named_parameters() if parameter.grad is not None)
            adam.step(counted=True)
            adam.zero_grad()

        with use_kernels("always"):
            for _ in range(2):
                loss = model.training_function()(batch, LossOptions())
                assert adam.count_step()
                loss.backward(update if early else None)
                assert early == bool(updated)
                adam.step(counted=True)
                adam.zero_grad()
        results.append({**model.state_dict(), **adam.state()})
    below = ("primary.", "layers.0.norm", "layers.0.trunk")
    assert updated == {name for name, _ in model.named_parameters() if not name.startswith(below)}
    for name, value in results[0].items():
        assert torch.equal(results[1][name], value), name


def test_a_module_of_the_user_as_primary(kernel_device: str) -> None:  # noqa: F811
    class Mine(torch.nn.Module):
        def forward(self, x: Any, edges: Any, segments: Any) -> Tensor:
            result: Tensor = inner(x, edges, segments)
            return result

    store, x = _store([9, 33, 1, 2, 17, 5], 3)
    there = store.to(kernel_device)
    batch, model = _batch(there, x.float().to(kernel_device)), _model({}, 3).to(kernel_device)
    inner, model.primary = model.primary, Mine()
    with use_kernels("always"):
        loss = model.training_function()(batch, LossOptions())
        loss.backward()
        assert isinstance(loss, WrittenOutLoss)
    assert all(parameter.grad is not None for parameter in inner.parameters())


def test_autocast_below_the_votes(kernel_device: str) -> None:  # noqa: F811
    """The kernels read and return float32; autograd continues with the type of the layers."""

    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(16, 16)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            result: Tensor = self.linear(x)
            assert result.dtype == torch.bfloat16
            return result

    store, x = _store([9, 33, 1, 2, 17, 5], 3)
    there, results = store.to(kernel_device), []
    features = feature_table(x.float().to(kernel_device), there)
    for fused in (False, True):
        torch.manual_seed(2)
        options = {"trunk": Linear(), "lead": (), "reconstruction": False}
        model, batch = _model(options, 3).to(kernel_device), _batch(there, features, DRAWN[0])
        with use_kernels("always"), torch.autocast(torch.device(kernel_device).type, dtype=torch.bfloat16):
            results.append(_run(model, batch, LossOptions(), fused=fused))
    for name, value in results[0].items():
        scale = max(1e-3, float(value.abs().max()))
        assert_equal(results[1][name] / scale, value / scale, name, 2e-2)


@pytest.mark.slow
def test_more_graphs_than_a_tile(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Sums over graphs, which the gradients of normalisations need, are made of several parts."""
    drawn = torch.stack([torch.arange(37), torch.arange(37) * 3 % 40])
    drawn[1, 30:] = -1
    sizes = [index * 7 % 11 + 1 for index in range(40)]
    options = {"num_capsules": (17,), "capsule_dim": 20, "reconstruction": False}
    _compare(monkeypatch, kernel_device, options, classes=5, sizes=sizes, drawn=drawn)


def test_tf32_keeps_as_many_bits_as_products_read(
    kernel_device: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The interpreter does not round products, so that the error is that of the stored capsules: float16."""
    tolerance = 5e-3 if kernel_device == "cpu" else 0.05
    _compare(monkeypatch, kernel_device, {"reconstruction": False}, precision="tf32", tolerance=tolerance)


def test_tf32_with_large_edge_weights(kernel_device: str) -> None:  # noqa: F811
    """Degrees of negative weights count as 1, so that sums over neighbours can leave the range of float16."""
    store, x = _store([9, 33, 1, 2, 17, 5], 3, -3e4)
    there = store.to(kernel_device)
    model, features = _model({}, 3).to(kernel_device), feature_table(x.float().to(kernel_device), there)
    with use_kernels("always"), use_precision("tf32"):
        loss = model.training_function()(_batch(there, features), LossOptions())
    assert loss.terms.total.isfinite().all()


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


def _used_layers(model: HGCN, batch: GraphBatch, options: LossOptions) -> bool:
    """Whether a training step is computed by the layers."""
    training = model.training_function()
    if not isinstance(training, KernelTraining | VoteTraining):
        return True
    calls = []
    loss, model.training_loss = model.training_loss, lambda *arguments: calls.append(arguments)  # type: ignore
    training(batch, options)
    model.training_loss = loss  # type: ignore[method-assign]
    return bool(calls)


def test_layers_compute_what_the_kernels_lack(kernel_device: str) -> None:  # noqa: F811
    store, x = _store([9, 33, 1, 2, 17, 5], 3, 0.1)
    there = store.to(kernel_device)
    table = feature_table(x.float().to(kernel_device), there)
    batch, model = _batch(there, table), _model({}, 3).to(kernel_device)
    y = batch.y
    assert y is not None
    weights = torch.ones(3, device=kernel_device)
    assert there.edge_weight is not None
    learned = replace(batch.edges, weight=there.edge_weight.clone().requires_grad_())
    wide = feature_table(torch.cat([x, x], 1).float().to(kernel_device), there)
    with use_kernels("always"):
        assert not _used_layers(model, batch, LossOptions())
        assert not _used_layers(model, batch, LossOptions(reconstruction_weight=0.5))
        assert _used_layers(model, batch, LossOptions(class_weight=weights))
        assert _used_layers(model, batch, LossOptions(graph_weight=torch.ones_like(y, dtype=torch.float32)))
        assert _used_layers(model, replace(batch, edges=learned), LossOptions())
        assert _used_layers(model, _batch(there, wide), LossOptions())
        assert _used_layers(model, _batch(there, x.float().to(kernel_device)), LossOptions())
        for classes in (y.T, y.reshape(-1), y.float(), None):
            assert _used_layers(model, replace(batch, y=classes), LossOptions())
        model.primary.norm.eval()  # type: ignore[union-attr]
        assert _used_layers(model, batch, LossOptions())
        below = _model({"trunk": "sage"}, 3).to(kernel_device)
        plain = replace(batch, edges=replace(batch.edges, weight=None))
        assert not _used_layers(below, plain, LossOptions())
        assert _used_layers(below, plain, LossOptions(class_weight=weights))
        with torch.no_grad():
            assert _used_layers(below, plain, LossOptions())
        for options in ({}, {"trunk": "sage"}):  # a decoder in evaluation has always the same sample
            sampling = _model({**options, "reconstruct_up_to": 8}, 3).to(kernel_device)
            assert not _used_layers(sampling, plain, LossOptions())
            assert sampling.decoder is not None
            sampling.decoder.eval()
            assert _used_layers(sampling, plain, LossOptions())


@pytest.mark.parametrize(
    ("options", "classes"),
    [
        ({"num_capsules": (65,)}, 2),
        ({}, 7),
        ({"routing_iterations": 1}, 2),
        ({"num_capsules": (5, 4)}, 2),
        ({"formulation": "paper"}, 2),
        ({"context": "gated", "num_capsules": (65,)}, 2),
        ({"trunk": "gin", "routing_iterations": 1}, 2),
        ({"disentangle": False}, 2),
        ({"parts": "blocks"}, 2),
    ],
    ids=str,
)
def test_options_without_kernels(options: dict[str, Any], classes: int, kernel_device: str) -> None:  # noqa: F811
    store, x = _store([9, 33, 1, 2, 17, 5], classes)
    there = store.to(kernel_device)
    batch = _batch(there, feature_table(x.float().to(kernel_device), there))
    with use_kernels("always"):
        assert _used_layers(_model(options, classes).to(kernel_device), batch, LossOptions())


def test_a_loss_of_a_subclass_is_used() -> None:
    class Own(HGCN):
        def training_loss(self, batch: GraphBatch, options: LossOptions) -> TrainingLoss:
            return super().training_loss(batch, options)

    model = Own(6, 3, capsule_dim=16, num_capsules=(5,))
    for mode in ("off", "always"):
        with use_kernels(mode):  # type: ignore[arg-type]
            assert model.training_function() == model.training_loss


@pytest.mark.slow
def test_weights_and_offsets_in_any_layout(kernel_device: str) -> None:  # noqa: F811
    """One reconstruction weight for both replicas, and offsets that share their memory."""
    store, x = _store([9, 33, 1, 2, 17, 5], 3)
    there = store.to(kernel_device)
    batch = _batch(there, feature_table(x.float().to(kernel_device), there), DRAWN[:1].expand(2, -1))
    ptr = batch.segments.ptr[:1].clone().expand(2, -1)
    expanded = replace(
        batch,
        segments=replace(batch.segments, ptr=ptr),
        edges=replace(batch.edges, graphs=ptr),
    )
    weight = torch.tensor(0.3, device=kernel_device)
    with use_kernels("always"):
        expected = _run(
            _model({}, 3).to(kernel_device), batch, LossOptions(reconstruction_weight=0.3), fused=True
        )
        for shape in ((), (2,)):
            options = LossOptions(reconstruction_weight=weight.expand(shape))
            actual = _run(_model({}, 3).to(kernel_device), expanded, options, fused=True)
            for name, value in expected.items():
                assert_equal(actual[name], value, name, 1e-6)


def test_a_number_beyond_the_classes_leaves_no_memory_unwritten(kernel_device: str) -> None:  # noqa: F811
    """New memory is NaN. The code of the graph is that of the last class."""
    store, x = _store([9, 33, 1, 2, 17, 5], 3)
    there = store.to(kernel_device)
    batch = _batch(there, feature_table(x.float().to(kernel_device), there))
    model = _model({}, 2).to(kernel_device)
    assert batch.y is not None
    assert int(batch.y.max()) == 2
    with use_kernels("always"):
        loss = model.training_function()(batch, LossOptions())
        loss.backward()
    assert loss.terms.total.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_nan_reaches_the_gradient_of_the_code(kernel_device: str) -> None:  # noqa: F811
    store, x = _store([9, 33, 1, 2, 17, 5], 3)
    there = store.to(kernel_device)
    batch = _batch(there, feature_table(x.float().to(kernel_device), there))
    model = _model({}, 3).to(kernel_device)
    with torch.no_grad():
        model.layers[1].weight[0, :, 0, 0] = float("nan")  # type: ignore[index]
    with use_kernels("always"):
        model.training_function()(batch, LossOptions()).backward()
    assert model.decoder is not None
    for parameter in model.decoder.parameters():
        assert parameter.grad is not None
        assert parameter.grad[0].isnan().any()
        assert parameter.grad[1].isfinite().all()


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
