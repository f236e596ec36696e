"""Captured steps on a GPU: equal to eager steps, reproducible, without host–device synchronisation."""

import contextlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphcaps import load_dataset
from graphcaps.config import TrainConfig
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.models.gin import GIN
from graphcaps.nn import HGCN
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.training import EpochEnd, Replica, Trainer, stack_replicas
from graphcaps.training.batch_schedule import EpochSchedule, bucket_size
from graphcaps.training.cuda_graphs import BucketedRunner, StepSize, can_capture
from graphcaps.training.cuda_streams import lease_stream
from graphcaps.types import FeatureTable
from tests.graphs import with_kinds, with_weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

EDGE_KINDS = (3, 2)
CONFIG = TrainConfig(epochs=3, batch_size=16, learning_rate=0.002, weight_decay=0.001)


def _replicas(graphs: int) -> list[Replica]:
    """Four folds with training sets of unequal size; one is much smaller, and its test set lacks a class."""
    permutation = torch.randperm(graphs, generator=torch.Generator().manual_seed(1))
    parts = permutation.chunk(4)
    replicas = []
    for f in range(4):
        train = torch.cat([part for g, part in enumerate(parts) if g not in (f, (f + 1) % 4)])
        train = train[: len(train) - f] if f < 3 else train[:40]
        replicas.append(Replica(train, parts[(f + 1) % 4], parts[f][: 20 - 6 * f], seed=f % 2, fold=f))
    return replicas


def _trainer(
    kind: str,
    step_mode: Any,
    average_epochs: int = 1,
    weights: list[float] | None = None,
    weighted_graphs: bool = False,
    weighted_edges: bool = False,
    **arguments: Any,
) -> Trainer:
    store = load_dataset("planted-parts")[:200]
    encoded = encode_graphs(store, FeatureRecipe())
    store = with_kinds(store, EDGE_KINDS)
    store = with_weights(store) if weighted_edges else store
    sizes = (encoded.x.size(-1), store.num_classes)

    def make(lead: tuple[int, ...]) -> torch.nn.Module:
        if kind == "gin":
            # Two layers: Adam turns rounding of small gradients into steps, and more layers multiply it.
            return GIN(*sizes, hidden=32, num_layers=2, dropout=0.2, lead=lead)
        settings: dict[str, Any] = {"capsule_dim": 32, "num_capsules": (6,), "dropout": 0.2} | arguments
        return HGCN(*sizes, lead=lead, **settings)

    replicas = _replicas(len(store))
    model = stack_replicas(make, replicas).cuda()
    config = replace(CONFIG, average_epochs=average_epochs)
    class_weight = None if weights is None else torch.tensor(weights)
    graph_weight = 1 + torch.arange(len(store), dtype=torch.float64) % 5 if weighted_graphs else None
    graphs, x = store.to("cuda"), encoded.x.cuda()
    return Trainer(
        model, graphs, x, replicas, config,
        step_mode=step_mode, class_weight=class_weight, sample_weight=graph_weight,
    )  # fmt: skip


def _assert_close(one: list[EpochEnd], other: list[EpochEnd], tolerance: float) -> None:
    for a, b in zip(one, other, strict=True):
        # Losses above 1, those of sums over nodes, are rounded in proportion.
        assert a.train_loss == pytest.approx(b.train_loss, abs=tolerance, rel=tolerance)
        assert a.validation_loss == pytest.approx(b.validation_loss, abs=tolerance, rel=tolerance)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("hgcn", {}),
        ("gin", {}),
        ("hgcn", {"num_capsules": (8, 3)}),
        ("hgcn", {"formulation": "paper"}),
        ("hgcn", {"reconstruction": False, "residual_nodes": 50}),
        ("hgcn", {"disentangle": False}),
        ("hgcn", {"average_epochs": 2}),
        ("hgcn", {"context": "residual"}),
        ("hgcn", {"context": "gated", "context_layers": 1}),
        ("hgcn", {"context": "gin", "context_jumping": True}),
        ("hgcn", {"context": "residual", "formulation": "paper"}),
        ("hgcn", {"parts": "blocks"}),
        ("hgcn", {"reconstruct_up_to": 12}),
        ("hgcn", {"reconstruct_up_to": 12, "formulation": "paper"}),
        ("hgcn", {"reconstruct_up_to": 1, "weighted_edges": True}),
        ("hgcn", {"trunk": "gin", "trunk_layers": 2}),
        ("hgcn", {"trunk": "sage"}),
        ("hgcn", {"trunk": "gat"}),
        ("hgcn", {"trunk": "gat", "edge_kinds": EDGE_KINDS}),
        ("hgcn", {"trunk": "gine", "edge_kinds": EDGE_KINDS}),
        ("hgcn", {"edge_kinds": EDGE_KINDS}),
        ("hgcn", {"context": "residual", "edge_kinds": EDGE_KINDS}),
        ("hgcn", {"context": "gin", "edge_kinds": EDGE_KINDS}),
        ("hgcn", {"weights": [0.5, 1.0, 3.0]}),
        ("hgcn", {"weighted_graphs": True}),
        ("hgcn", {"weighted_edges": True}),
        ("gin", {"weighted_edges": True}),
        ("hgcn", {"weighted_edges": True, "num_capsules": (8, 3)}),
        ("hgcn", {"weighted_edges": True, "context": "gated", "context_layers": 1}),
        ("hgcn", {"weighted_edges": True, "context": "residual", "edge_kinds": EDGE_KINDS}),
        ("hgcn", {"weighted_edges": True, "parts": "blocks"}),
    ],
    ids=lambda value: str(value),
)
def test_captured_steps_equal_eager_steps(kind: str, arguments: dict[str, Any]) -> None:
    captured = _trainer(kind, "auto", **arguments)
    assert captured.captured
    # The same shapes without capture give identical bits.
    bucketed = _trainer(kind, "bucketed", **arguments)
    one, two = list(captured.run()), list(bucketed.run())
    assert [event.train_loss for event in one] == [event.train_loss for event in two]
    state = bucketed.state()
    assert all(torch.equal(value, state[name]) for name, value in captured.state().items())
    _assert_close(one, two, 1e-5)  # validation batches differ
    # Other shapes, and torch without kernels, round differently; differences grow with the steps.
    eager = _trainer(kind, "eager", **arguments)
    _assert_close(one[:1], [eager.run_epoch()], 2e-3)
    with use_kernels("off"):
        plain = _trainer(kind, "eager", **arguments)
        _assert_close(one[:1], [plain.run_epoch()], 1e-2)
    assert captured.adam.steps.tolist() == [3 * step for step in eager.adam.steps.tolist()]


def test_captures_find_their_kernels_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    trainer, late = _trainer("hgcn", "captured", capsule_dim=48), list[str]()
    compile_first = trainer._compile_kernels

    def compile_and_listen(schedule: EpochSchedule) -> None:
        compile_first(schedule)
        monkeypatch.setattr(
            knobs.runtime, "jit_cache_hook", lambda *, repr, **_: late.append(repr), raising=False
        )

    monkeypatch.setattr(trainer, "_compile_kernels", compile_and_listen)
    trainer.run_epoch()
    assert late == []


@pytest.mark.parametrize(
    "arguments",
    [{}, {"reconstruct_up_to": 12}, {"formulation": "paper"}, {"parts": "blocks"}],
    ids=str,
)
def test_repeated_and_resumed_trainings_are_identical(arguments: dict[str, Any]) -> None:
    one, two = (_trainer("hgcn", "captured", **arguments) for _ in range(2))
    events, again = list(one.run()), [two.run_epoch()]
    state = {name: value.clone() for name, value in two.state().items()}
    resumed = _trainer("hgcn", "captured", **arguments)
    resumed.load_state(state)
    again += list(resumed.run())
    assert [event.train_loss for event in events] == [event.train_loss for event in again]
    assert [event.validation_loss for event in events] == [event.validation_loss for event in again]
    final = resumed.state()
    assert all(torch.equal(value.cpu(), final[name].cpu()) for name, value in one.state().items())


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize(
    "arguments", [{}, {"weighted_edges": True}, {"reconstruct_up_to": 12}, {"formulation": "paper"}], ids=str
)
def test_steps_need_no_host_synchronisation(arguments: dict[str, Any]) -> None:
    trainer = _trainer("hgcn", "captured", **arguments)
    trainer.run_epoch()
    runner = trainer._runner
    assert isinstance(runner, BucketedRunner)
    trainer.run_epoch()
    schedule = trainer._draw_schedule(trainer.epoch)
    known = {size.num_rows for size in runner.steps}
    if any(bucket_size(rows) not in known for rows in schedule.num_rows):
        runner.run(schedule)  # captures missing buckets
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        runner.run(schedule)
        for name, evaluator in trainer._evaluators.items():
            assert evaluator is not None
            trainer._evaluate(name, evaluator)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("dtype", "learned"), [(torch.float64, False), (torch.float32, True)])
def test_weights_without_kernels_are_not_captured(dtype: torch.dtype, learned: bool) -> None:
    trainer = _trainer("hgcn", "eager", weighted_edges=True)
    weight = trainer.store.edge_weight
    assert weight is not None
    assert isinstance(trainer.x, FeatureTable)
    assert can_capture(trainer.model, trainer.store, trainer.x.x)
    store = trainer.store.with_unchecked(edge_weight=weight.to(dtype).requires_grad_(learned))
    assert not can_capture(trainer.model, store, trainer.x.x)


def test_capturing_changes_no_state() -> None:
    trainer = _trainer("hgcn", "captured")
    runner = trainer._runner
    assert isinstance(runner, BucketedRunner)
    trainer.run_epoch()
    before = {name: value.clone() for name, value in trainer.state().items()}
    trainer.model.train()
    trainer._metrics.clear()  # as at the start of an epoch
    sums = trainer._metrics.read()
    runner._prepare(StepSize(4096, trainer.store.max_size))
    after = trainer.state()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    for name, value in trainer._metrics.read()["sums"].items():
        assert torch.equal(value, sums["sums"][name])


def test_a_store_on_the_host_is_streamed() -> None:
    resident = _trainer("hgcn", "eager")
    assert isinstance(resident.x, FeatureTable)
    features = resident.x.x.cpu()
    streamed = Trainer(
        _trainer("hgcn", "eager").model, resident.store.to("cpu"), features, resident.replicas, CONFIG
    )
    assert not streamed.captured
    _assert_close(list(resident.run()), list(streamed.run()), 1e-3)


@pytest.mark.parametrize("shared", [True, False])
def test_work_on_a_captured_stream_is_lost_and_on_another_stream_is_not(shared: bool) -> None:
    """Why streams are leased: what another thread launches on a captured stream is recorded or fails."""
    captured, other = lease_stream(), lease_stream()
    graph, x = torch.cuda.CUDAGraph(), torch.ones(8, device="cuda")

    def add_on(stream: torch.cuda.Stream) -> None:
        with contextlib.suppress(RuntimeError), torch.cuda.stream(stream):
            x.add_(1)

    with torch.cuda.stream(captured.stream):
        y = x + 1
        torch.cuda.synchronize()
        graph.capture_begin(capture_error_mode="thread_local")
        y.mul_(2)
        thread = threading.Thread(target=add_on, args=((captured if shared else other).stream,))
        thread.start()
        thread.join()
        with contextlib.suppress(RuntimeError):
            graph.capture_end()
    torch.cuda.synchronize()
    assert torch.equal(x.cpu(), torch.full((8,), 1.0 if shared else 2.0))
