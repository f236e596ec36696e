"""Processes that torchrun starts: their environment, and trainings by two of them with gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphcaps.config import RunConfig
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.training.final_training import FinalTraining, make_training
from graphcaps.training.graph_shards import check_layers
from graphcaps.training.ranks import LaunchedRank, RankError, Ranks, connect_ranks, launched_rank
from tests.small_models import labelled
from tests.training.rank_program import MODELS, make_trainer, run_config
from tests.training.thread_ranks import run_ranks

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
}


def launch(*program: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Runs a program in two processes, and returns their output together."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *program]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=timeout, check=False
    )


# ---------------------------------------------------------------------- environment


def test_without_torchrun_there_are_no_ranks():
    assert launched_rank({"RANK": "0", "WORLD_SIZE": "2"}) is None
    assert launched_rank(VARIABLES | {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}) is None


def test_the_rank_comes_from_the_environment():
    assert launched_rank(VARIABLES) == LaunchedRank(1, 2, 1)


def test_several_machines_are_refused():
    with pytest.raises(UsageError, match=r"starts 4 processes, 2 of them here; use --nnodes=1\."):
        launched_rank(VARIABLES | {"WORLD_SIZE": "4"})


def test_a_missing_variable_is_named():
    with pytest.raises(UsageError, match="one is missing: 'LOCAL_RANK'"):
        launched_rank({name: value for name, value in VARIABLES.items() if name != "LOCAL_RANK"})


def test_more_processes_than_gpus_are_refused(monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match="2 processes need as many GPUs, and there are 1; start fewer"):
        connect_ranks("auto")


def test_processes_that_cannot_be_connected_are_reported(monkeypatch):
    for name, value in (VARIABLES | {"MASTER_ADDR": "localhost"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(RankError, match=r"The 2 processes could not be connected: .*MASTER_PORT"):
        connect_ranks("cpu")


# ---------------------------------------------------------------------- what is refused


def test_a_companion_is_refused():
    with pytest.raises(ArgumentError, match="'companion' must be left out with several processes"):
        FinalTraining(labelled(), run_config("gin"), companion="wl-forest", ranks=Ranks(0, 2))


def test_a_classical_model_is_refused():
    with pytest.raises(
        ArgumentError, match="'model' must be a network with several processes, got 'majority'"
    ):
        make_training(labelled(), RunConfig(dataset="labelled", model="majority"), ranks=Ranks(0, 2))


def test_layers_of_torch_that_depend_on_the_batch_are_refused():
    with pytest.raises(UsageError, match="The layer BatchNorm1d of this model cannot be divided"):
        check_layers(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))


def test_ranks_with_other_graphs_are_refused():
    def run(ranks: Ranks) -> None:
        store = labelled()
        FinalTraining(store if ranks.is_first else store[1:], run_config("gin"), device="cpu", ranks=ranks)

    with pytest.raises(UsageError, match="Process 1 reads other graphs than process 0"):
        run_ranks(2, run)


def test_ranks_with_other_options_are_refused():
    def run(ranks: Ranks) -> None:
        config = run_config("gin").with_training(learning_rate=0.01 * (1 + ranks.rank))
        FinalTraining(labelled(), config, device="cpu", ranks=ranks)

    with pytest.raises(
        UsageError, match=r"Process 1 .*: training.learning_rate 0.02 \(process 0: 0.01\)\. Give all"
    ):
        run_ranks(2, run)


# ---------------------------------------------------------------------- final training


def test_a_rank_holds_its_own_graphs():
    def run(ranks: Ranks) -> list[int]:
        training = FinalTraining(labelled(), run_config("gin"), device="cpu", ranks=ranks)
        assert training.shard is not None
        assert len(training.trainer.store) == training.shard.owned.numel()
        return training.shard.owned.tolist()

    first, second = run_ranks(2, run)
    assert abs(len(first) - len(second)) <= 1
    assert sorted(first + second) == list(range(len(labelled())))


def test_a_run_of_two_ranks_is_resumed_by_three_and_by_one(tmp_path):
    """In float32, whose rounding differs by more than 1e-6 after some steps; test_graph_shards has float64."""
    options = {"device": "cpu", "patience": 5, "class_weight": torch.tensor([0.5, 2.0, 1.0])}

    def run(ranks: Ranks | None, epochs: int, resume: bool) -> dict[str, torch.Tensor]:
        training = FinalTraining(labelled(), run_config("gin", epochs), ranks=ranks, **options)
        if resume:
            training.resume(tmp_path / "checkpoint")
        else:  # threads share torch's generator
            training.trainer.load_state(initial)
        for _ in training.run():
            pass
        if ranks is None or ranks.is_first:
            training.save(tmp_path / "checkpoint")
        return {name: value.clone() for name, value in training.trainer.state().items()}

    start = FinalTraining(labelled(), run_config("gin", 3), **options).trainer.state()
    initial = {name: value.clone() for name, value in start.items()}
    whole = run(None, 3, resume=False)
    run_ranks(2, lambda ranks: run(ranks, 1, resume=False))
    run_ranks(3, lambda ranks: run(ranks, 2, resume=True))
    resumed = run(None, 3, resume=True)
    assert resumed["epoch"] == 3
    for name, value in whole.items():
        torch.testing.assert_close(resumed[name], value, rtol=1e-2, atol=1e-3)


# ---------------------------------------------------------------------- processes


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    result = launch(str(ROOT / "tests/training/rank_program.py"), "train", str(tmp_path))
    assert result.returncode == 0, result.stderr
    for model in MODELS:
        alone = make_trainer(model, None)
        *_, last = alone.run()
        state = torch.load(tmp_path / f"{model}.pt")
        assert state.keys() == alone.state().keys()
        for name, value in alone.state().items():
            torch.testing.assert_close(state[name], value, rtol=1e-9, atol=1e-9)
        summary = json.loads((tmp_path / f"{model}.json").read_text())
        assert summary["loss"] == pytest.approx(last.train_loss, rel=1e-9)
        assert summary["graphs"] == [12, 11]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("other graphs", "Process 1 reads other graphs than process 0"),
        ("killed", "rank 0: Another process of this training has ended or does not answer"),
    ],
)
def test_a_failure_ends_all_processes(tmp_path, case, message):
    result = launch(str(ROOT / "tests/training/rank_program.py"), case, str(tmp_path))
    assert result.returncode != 0
    assert message in result.stderr
