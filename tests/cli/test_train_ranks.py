"""``torchrun -m graphcaps train``: who prints and writes, Ctrl-C, SIGTERM, and processes that see different files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from graphcaps.cli import output, processes
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.errors import UsageError
from tests.cli.training import invoke, write_inputs

ROOT = Path(__file__).resolve().parents[2]
LAUNCHED = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "1"}


def launch(*command: object) -> subprocess.Popen[str]:
    """Starts ``torchrun`` with two processes."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *map(str, command)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        words, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
    )


def test_other_verbs_are_refused(monkeypatch):
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        UsageError, match=r"torchrun starts graphcaps train only; start graphcaps evaluate without"
    ):
        processes.check_verb("evaluate")
    processes.check_verb("train")
    monkeypatch.setenv("WORLD_SIZE", "1")
    processes.check_verb("evaluate")


def test_one_process_prints_errors(monkeypatch):
    assert processes.claim_message()
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    assert not processes.claim_message()
    assert (invoke("evaluate", "MUTAG").exit_code, invoke("evaluate", "MUTAG").output) == (2, "")
    monkeypatch.setenv("RANK", "0")
    assert invoke("evaluate", "MUTAG").stderr.startswith("graphcaps: torchrun starts graphcaps train only")


def test_muted_notes_are_dropped(monkeypatch, capsys):
    monkeypatch.setattr(output, "_muted", False)
    output.note("first")
    output.mute_notes()
    output.note("second")
    assert capsys.readouterr().err == "first\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_two_processes_stop_at_a_signal_and_one_resumes(tmp_path, number):
    arguments = write_inputs(tmp_path, epochs=100_000)
    model = tmp_path / "model.safetensors"
    options = [*arguments, "--split", "random", "--no-baseline"]
    process = launch("-m", "graphcaps", *options, "--out", model, "--checkpoint-every", 1)
    checkpoint = Path(f"{model}.checkpoint")
    deadline = time.monotonic() + 600
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, number)  # as a terminal or a batch system does: to torchrun and to both processes
    out, err = process.communicate(timeout=600)
    assert process.returncode != 0
    assert out == ""
    lines = [line for line in err.splitlines() if not re.match(r"[WE]\d{4} ", line)]
    assert lines[0].startswith("12 graphs of SMALL")
    assert lines[1] == "2 processes (gloo) hold 5 and 4 of the training and validation graphs."
    (stopped,) = [line for line in lines if line.startswith("Stopped after epoch")]
    epoch = int(re.findall(r"\d+", stopped)[0])
    assert "continue with: torchrun --nproc-per-node=2 -m graphcaps train " in stopped
    assert stopped.endswith(" --resume")
    assert "graphcaps:" not in err

    resumed = invoke(*options, "--out", model, "--resume", "--epochs", epoch + 2)
    assert resumed.exit_code == 0, resumed.output
    assert f"Continuing after epoch {epoch}." in resumed.stderr
    alone = tmp_path / "alone.safetensors"
    assert invoke(*options, "--out", alone, "--epochs", epoch + 2).exit_code == 0
    histories = [json.loads(Path(f"{path}.history.json").read_text()) for path in (model, alone)]
    assert [len(history) for history in histories] == [epoch + 2] * 2
    losses = [[row["train_loss"] for row in history[:3]] for history in histories]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    first, second = load_file(model), load_file(alone)
    assert first.keys() == second.keys()
    assert torch.equal(first["split_hashes.training"], second["split_hashes.training"])


@pytest.mark.slow
def test_processes_that_see_different_files_end_with_one_sentence(tmp_path):
    arguments = write_inputs(tmp_path, epochs=2)
    (tmp_path / "SMALL").rename(tmp_path / "SMALL-0")
    write_tu(planted_parts(num_graphs=15), tmp_path / "SMALL-1")
    words = [sys.executable, "-m", "graphcaps", *arguments, "--out", str(tmp_path / "model.safetensors")]
    command = " ".join(words).replace("SMALL", "SMALL-$RANK")
    process = launch("--no-python", "sh", "-c", f"exec {command}")
    out, err = process.communicate(timeout=600)
    assert out == ""
    sentences = [line for line in err.splitlines() if line.startswith("graphcaps:")]
    assert sentences == [
        "graphcaps: Process 1 reads other graphs than process 0; all processes that torchrun starts must see the same "
        "files."
    ]
    assert "exitcode  : 2" in err
    assert not list(tmp_path.glob("model*"))


FAILING_RANK = """
import atexit, os
from graphcaps.cli import processes
from graphcaps.cli.main import main
from graphcaps.training.ranks import Ranks

processes._ranks = {ranks}
atexit.register(os.abort)
main()
"""


@pytest.mark.parametrize(("ranks", "code"), [("None", -signal.SIGABRT), ("Ranks(0, 2)", 2)])
def test_a_failing_process_keeps_its_exit_code_where_torch_would_abort(ranks, code):
    script = FAILING_RANK.format(ranks=ranks)
    words = [sys.executable, "-c", script, "data", "info", "no-such-set", "--root", "."]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.startswith("graphcaps: ")
    assert len(ended.stderr.splitlines()) == 1
