"""Helpers for tests of ``graphcaps train``: small inputs, invocation of the command, comparison of model files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from graphcaps.cli.main import app
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu

PRESET = """
[model]
name = "hgcn"
capsule_dim = 8
num_capsules = 3
num_factors = 2
dropout = 0.2

[training]
epochs = {epochs}
batch_size = 8
learning_rate = 0.02
"""


def write_inputs(folder: Path, epochs: int) -> list[str]:
    """Writes a TU folder of 12 graphs and a preset; returns the arguments of ``train`` except ``--out``."""
    write_tu(planted_parts(num_graphs=12), folder / "SMALL")
    (folder / "small.toml").write_text(PRESET.format(epochs=epochs))
    return ["train", str(folder / "SMALL"), "--preset", str(folder / "small.toml"), "--device", "cpu"]


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refusal(*arguments: object) -> str:
    """The error message, the last line of stderr, of a command with exit code 2 and empty stdout."""
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    *_, sentence = result.stderr.splitlines()
    assert "Traceback" not in result.stderr
    return sentence.removeprefix("graphcaps: ")


def same_weights(one: Path, two: Path) -> bool:
    first, second = load_file(one), load_file(two)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
