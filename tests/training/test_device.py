"""Device, matmul precision and number of threads of a training."""

from __future__ import annotations

import pytest
import torch

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.errors import ArgumentError, DataError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.ops._triton.precision import current_precision
from graphcaps.training.device import (
    SINGLE_THREAD_ROWS,
    limit_threads,
    matmul_precision,
    on_device,
    use_threads,
)
from graphcaps.training.final_training import FinalTraining
from tests.small_models import small_model


@pytest.mark.parametrize(("jobs", "threads"), [(None, 5), (1, 1), (3, 3), (-1, 8), (-2, 7), (-20, 1)])
def test_jobs_are_counted_as_in_scikit_learn(
    jobs: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphcaps.training.device.available_cores", lambda: 8)
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    try:
        with use_threads(jobs):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 5
    finally:
        torch.set_num_threads(before)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'precision' must be one of float32, tf32, bf16"):
        TrainConfig(precision="half")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"\[training\] precision"):
        RunConfig.from_dict({"training": {"precision": 16}})
    assert RunConfig.from_dict({"training": {"precision": "tf32"}}).training.precision == "tf32"


def test_precision_is_set_inside_the_context_and_restored() -> None:
    before = torch.get_float32_matmul_precision()
    with matmul_precision("tf32", torch.device("cuda")):
        assert current_precision() == "tf32"
        assert torch.get_float32_matmul_precision() == "high"
        with matmul_precision("float32", torch.device("cuda")):
            assert torch.get_float32_matmul_precision() == "highest"
    assert current_precision() == "float32"
    assert torch.get_float32_matmul_precision() == before


def test_a_cpu_always_uses_float32() -> None:
    with matmul_precision("bf16", torch.device("cpu")):
        assert current_precision() == "float32"
        assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.usefixtures("two_threads")
def test_small_steps_use_one_thread() -> None:
    cpu = torch.device("cpu")
    for rows, threads in ((1, 1), (SINGLE_THREAD_ROWS, 1), (SINGLE_THREAD_ROWS + 1, 2)):
        with limit_threads(rows, cpu):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2
    with limit_threads(1, torch.device("meta")):
        assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="inside"), limit_threads(1, cpu):
        raise ValueError("inside")
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("batch_size", "threads"), [(4, 1), (64, 2)])
def test_a_training_sets_threads_by_the_rows_of_its_steps(
    monkeypatch: pytest.MonkeyPatch, batch_size: int, threads: int
) -> None:
    config = RunConfig(
        model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2},
        training=TrainConfig(epochs=1, batch_size=batch_size),
    )
    training = FinalTraining(planted_parts(num_graphs=90), config, device="cpu", validation=0)
    seen: list[int] = []
    run = training.trainer._runner.run
    monkeypatch.setattr(
        training.trainer._runner,
        "run",
        lambda schedule: (seen.append(torch.get_num_threads()), run(schedule)),
    )
    list(training.run())
    assert seen == [threads]
    assert torch.get_num_threads() == 2


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices that models are moved to; they stay where they are."""
    devices: list[str] = []

    def record(self: FittedModel, device: torch.device) -> FittedModel:
        devices.append(str(device))
        return self

    monkeypatch.setattr(FittedModel, "to", record)
    return devices


def test_a_model_returns_to_its_device(moves: list[str]) -> None:
    with pytest.raises(ValueError, match="inside"), on_device(small_model(), torch.device("meta")):
        raise ValueError("inside")
    assert moves == ["meta", "cpu"]


def test_the_kept_model_is_measured_on_the_device_of_the_training(moves: list[str]) -> None:
    """Means of coefficients, capsules in use, and the accuracy on the training graphs."""
    config = RunConfig(
        model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2},
        training=TrainConfig(epochs=1, batch_size=8),
    )
    training = FinalTraining(planted_parts(num_graphs=21), config, device="cpu")
    list(training.run())
    training.device = torch.device("meta")
    training.result()
    assert moves == ["meta", "cpu"] * 3
