"""Phases of a step: each is timed in the step of training, they add up, and the model does not change."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

from graphcaps.bench import Ceilings, Count, PhaseTime, phases, time_phases
from graphcaps.config import TrainConfig
from graphcaps.data.features.encoding import feature_table
from graphcaps.nn import HGCN
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.profiling import PHASES, STEP
from graphcaps.training.cuda_graphs import CudaGraphRecorder
from graphcaps.training.replicas import Replica, stack_replicas
from tests.graphs import random_graphs

CEILINGS = Ceilings(bandwidth=1e10, rate=1e11)
NONE = torch.empty(0, dtype=torch.long)
# The second has fewer graphs: steps of both have padding, and the last one has no graph of it.
REPLICAS = [
    Replica(torch.arange(10), NONE, NONE, fold=0),
    Replica(torch.arange(2, 9), NONE, NONE, fold=1),
]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "_SECONDS", 0.0)


def _time(device: str = "cpu", sparse: bool = False, **arguments: Any) -> Any:
    graphs = random_graphs([9, 12, 5, 6, 2, 8, 7, 11, 6, 10], channels=4, seed=1)

    def make(lead: tuple[int, ...]) -> HGCN:
        model_arguments = {"capsule_dim": 8, "num_capsules": (3,), "dropout": 0.3} | arguments
        return HGCN(4, 2, lead=lead, **model_arguments)

    model = stack_replicas(make, REPLICAS).to(device)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    store, x = graphs.as_store().to(device), graphs.x.float().to(device)
    x = feature_table(x, store) if sparse else x
    config = TrainConfig(batch_size=4, epochs=1, weight_decay=0.1)
    times = time_phases(model, store, x, REPLICAS, config, CEILINGS)  # type: ignore[arg-type]
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name]), name
        assert value.grad is None
    return times


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"num_capsules": (4, 3), "residual_nodes": 12},
        {"formulation": "paper"},
        {"residual": False},
    ],
    ids=["released", "two levels", "paper", "no residual"],
)
def test_every_phase_is_timed(arguments: dict[str, Any]) -> None:
    step = _time(**arguments)
    assert tuple(phase.name for phase in step.phases) == (*PHASES, "rest")
    for phase in step.phases:
        assert phase.seconds > 0
        expected = max(phase.count.bytes / 1e10, phase.count.operations / 1e11)
        assert phase.roofline == pytest.approx(expected)
    total = step.whole
    assert total.seconds == pytest.approx(sum(phase.seconds for phase in step.phases))
    assert total.count.bytes == pytest.approx(sum(phase.count.bytes for phase in step.phases))
    # The update may run beside the backward pass.
    backward, update = (next(p for p in step.phases if p.name == name) for name in ("backward", "update"))
    counted = sum(min(p.roofline, p.seconds) for p in step.phases if p not in (backward, update))
    counted += min(backward.roofline + update.roofline, backward.seconds + update.seconds)
    assert total.share == pytest.approx(counted / total.seconds)


def test_without_a_decoder_there_is_no_reconstruction() -> None:
    times = {phase.name: phase for phase in _time(reconstruction=False).phases}
    assert times["reconstruction"].seconds == 0
    assert times["reconstruction"].share is None


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_captured_steps_are_padded_and_recorded(
    formulation: str, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches padded to a few shapes as on a GPU, each step recorded; runs without a GPU."""
    recorded = []

    class Tape:
        def record(self, body: Any) -> Any:
            body()
            recorded.append(body)
            return body

    monkeypatch.setattr(phases, "CudaGraphRecorder", Tape)
    monkeypatch.setattr(phases, "can_capture", lambda *arguments: True)
    step = _time(formulation=formulation, sparse=sparse)
    assert len(recorded) == 2  # the steps of an epoch but the last, smaller one
    assert all(phase.seconds > 0 for phase in step.phases)


def test_a_phase_has_the_time_of_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    routing = import_module("graphcaps.ops.fused_loss.fused_loss")._Routing  # what small graphs on a CPU take
    coarsen = routing.coarsen

    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1e-5
        return now

    def slow(*arguments: Any) -> Any:
        nonlocal now
        now += 0.1
        return coarsen(*arguments)

    monkeypatch.setattr(phases.time, "perf_counter", clock)
    monkeypatch.setattr(routing, "coarsen", slow)
    step = _time()
    times = {phase.name: phase.seconds for phase in step.phases}
    assert 0.1 < times.pop("coarsening") < step.whole.seconds
    assert max(times.values()) < 0.1


def test_clock_sums_the_ranges_of_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 1.5, 2.0, 10.0, 11.0, 14.0, 20.0, 21.0, 30.0])
    monkeypatch.setattr(phases.time, "perf_counter", lambda: next(now))
    clock = phases.HostClock()
    with clock.time(STEP), clock.time("hop"):  # 0 to 2, and 1 to 1.5
        pass
    assert clock.read() == {"hop": 0.5, STEP: 2.0}
    with clock.time(STEP):  # 10 to 30
        with clock.time("hop"):  # 11 to 14
            pass
        with clock.time("hop"):  # 20 to 21
            pass
    assert clock.read() == {"hop": 4.0, STEP: 20.0}


class FakeEvent:
    """An event of a GPU whose time is the number of events recorded before it, in milliseconds."""

    recorded = 0

    def __init__(self, **options: bool) -> None:
        assert options == {"enable_timing": True, "external": True}

    def record(self) -> None:
        self.time = FakeEvent.recorded
        FakeEvent.recorded += 1

    def elapsed_time(self, end: FakeEvent) -> float:
        return float(end.time - self.time)


def test_only_the_named_ranges_have_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of phases take time of their own, so that the whole step is timed without them."""
    monkeypatch.setattr(phases.torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(phases.torch.cuda, "synchronize", lambda: None)
    for names, expected in ((None, {"hop": 1e-3, STEP: 3e-3}), ((STEP,), {STEP: 1e-3})):
        clock = phases.EventClock(names)
        with clock.time(STEP), clock.time("hop"):
            pass
        assert clock.read() == expected


def test_share_is_roofline_time_over_measured_time() -> None:
    assert PhaseTime("hop", 2.0, Count(1, 1), 0.5).share == 0.25
    assert PhaseTime("hop", 0.0, Count(1, 1), 0.5).share is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_on_a_gpu_the_events_are_in_the_replayed_graph(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = []

    class Recorder(CudaGraphRecorder):
        def record(self, body: Any) -> Any:
            recorded.append(body)
            return super().record(body)

    monkeypatch.setattr(phases, "CudaGraphRecorder", Recorder)
    step = _time("cuda", sparse=sparse)
    assert len(recorded) == 4  # two steps, each with the events of its phases and without them
    assert all(phase.seconds > 0 for phase in step.phases)
    assert 0 < step.whole.seconds < sum(phase.seconds for phase in step.phases)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_steps_without_kernels_are_timed_eagerly() -> None:
    with use_kernels("off"):
        step = _time("cuda")
    assert all(phase.seconds > 0 for phase in step.phases)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_events_in_a_graph_are_recorded_by_every_replay() -> None:
    clock, x = phases.EventClock(), torch.rand(4096, 4096, device="cuda")
    count = torch.zeros(1, device="cuda")

    def step() -> None:
        with clock.time(STEP):
            with clock.time("hop"):
                for _ in range(20):
                    torch.mm(x, x)
            with clock.time("routing"):
                count.add_(1)

    replay = CudaGraphRecorder().record(step)
    for _ in range(2):
        replay()
        seconds = clock.read()
        assert seconds["hop"] > 10 * seconds["routing"] > 0
        assert seconds["hop"] + seconds["routing"] <= seconds[STEP] * 1.001
    assert int(count) == 3  # once before the capture, and in each replay
