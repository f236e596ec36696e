"""The commands and the Python example of the README run as printed, with fewer epochs."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphcaps.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
SECTION = (ROOT / "README.md").read_text("utf-8").split("## Your own graphs", 1)[1].split("\n## ", 1)[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("rdkit", reason="molecules need the extra chem")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_commands_of_the_readme(folder: Path) -> None:
    (block,) = re.findall(r"```\n(graphcaps .*?)```", SECTION, re.S)
    train, predict, explain = (shlex.split(line)[1:] for line in block.strip().splitlines())
    for words in ([*train, "--epochs", "2"], predict, explain):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    with (folder / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows[:2]] == ["M001", "M002"]
    assert len(rows) == 500
    assert {row["class"] for row in rows} <= {"alcohol", "ether"}
    assert "<svg" in (folder / "why.svg").read_text("utf-8")


@pytest.mark.exhaustive  # 90 s of CPU time each
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_commands_give_what_the_readme_says(folder: Path, seed: int) -> None:
    """The whole training: capsules do not collapse, and the ether group has a capsule and the highest scores."""
    (block,) = re.findall(r"```\n(graphcaps .*?)```", SECTION, re.S)
    train, _, explain = (shlex.split(line)[1:] for line in block.strip().splitlines())
    result = CliRunner().invoke(app, [*train, "--no-baseline", "--seed", str(seed)])
    assert result.exit_code == 0, result.output
    assert "capsules in use" in result.stdout
    assert "Only 1 of 10 capsules" not in result.stderr
    result = CliRunner().invoke(app, [*explain, "--json"])
    one = json.loads(result.stdout)["explanation"]
    assert (one["id"], one["predicted"]) == ("M003", "ether")
    oxygen = 7  # O8 in the picture
    neighbours = {a + b - oxygen for a, b in one["edges"] if oxygen in (a, b)}
    group = {oxygen, *neighbours}
    scores = one["node_scores"]
    assert set(sorted(range(len(scores)), key=lambda node: -scores[node])[:3]) == group
    capsule = one["levels"][0]["capsule"]
    assert len({capsule[node] for node in group}) == 1
    assert len(set(capsule)) > 1


@pytest.mark.slow
def test_python_example_of_the_readme(folder: Path) -> None:
    (block,) = re.findall(r"```py\n(.*?)```", SECTION, re.S)
    assert len(block.strip().splitlines()) <= 15
    quick, changed = re.subn(r"verbose=20", "epochs=2", block)
    assert changed == 1
    result = subprocess.run(
        [sys.executable, "-c", quick], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert 0 <= float(result.stdout.split()[0]) <= 1
    assert {path.name for path in folder.iterdir()} == {"examples", "mine.safetensors", "why.svg"}
