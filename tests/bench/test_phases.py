"""Phases of a step: each is timed, the model does not change, and wrong phases are caught before timing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphcaps.bench import PHASES, Ceilings, CheckError, Count, PhaseTime, phases, time_phases
from graphcaps.config import TrainConfig
from graphcaps.data.features.encoding import feature_table
from graphcaps.nn import HGCN
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
        assert phase.seconds > 0 or phase.name in ("backward", "rest")
        expected = max(phase.count.bytes / 1e10, phase.count.operations / 1e11)
        assert phase.roofline == pytest.approx(expected)
    total = step.whole
    assert total.count.bytes == pytest.approx(sum(phase.count.bytes for phase in step.phases))
    counted = sum(min(phase.roofline, phase.seconds) for phase in step.phases)
    assert total.share == pytest.approx(counted / total.seconds)


def test_without_a_decoder_there_is_no_reconstruction() -> None:
    times = {phase.name: phase for phase in _time(reconstruction=False).phases}
    assert times["reconstruction"].seconds == 0
    assert times["reconstruction"].share is None


def test_phases_that_differ_from_the_model_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "RELEASED_EPSILON", 0.5)
    with pytest.raises(CheckError, match="phases of a step do not give the class capsules"):
        _time()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_captured_phases_are_padded_and_recorded(
    formulation: str, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches padded to a few shapes as on a GPU, each phase recorded; runs without a GPU."""
    recorded = []

    class Tape:
        def record(self, body: Any) -> Any:
            body()
            recorded.append(body)
            return body

    monkeypatch.setattr(phases, "CudaGraphRecorder", Tape)
    monkeypatch.setattr(phases, "can_capture", lambda *arguments: True)
    times = _time(formulation=formulation, sparse=sparse)
    assert len(recorded) % (len(PHASES) + 1) == 0  # phases but backward, the forward pass, the whole step
    assert tuple(phase.name for phase in times.phases) == (*PHASES, "rest")


def test_share_is_roofline_time_over_measured_time() -> None:
    assert PhaseTime("hop", 2.0, Count(1, 1), 0.5).share == 0.25
    assert PhaseTime("hop", 0.0, Count(1, 1), 0.5).share is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_on_a_gpu_phases_are_replayed(sparse: bool) -> None:
    times = _time("cuda", sparse=sparse)
    assert all(phase.seconds > 0 for phase in times.phases if phase.name not in ("backward", "rest"))
