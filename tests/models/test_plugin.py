"""A model of another package: installed from its folder, used by name; broken packages affect nothing else."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "plugin_model"


def run(folder: Path, *command: str, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a Python command in ``folder``, with ``packages`` as a folder of installed packages."""
    paths = [str(ROOT / "src"), *([] if packages is None else [str(packages)])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "400"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def succeed(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with the example, built and installed by pip without a network."""
    pytest.importorskip("hatchling")
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "packages"))
    shutil.copytree(EXAMPLE, source, dirs_exist_ok=True)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    succeed(run(source, "-m", "pip", "install", *options, "--target", str(target), "."))
    return target


COMMANDS = """
import json, sys
import graphcaps
from typer.testing import CliRunner
from graphcaps.cli.main import app

for command in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, f"{command}: {result.output}"
    print(json.dumps(json.loads(result.stdout) if "--json" in command else None))
print(json.dumps(graphcaps.load("sgc.safetensors").predict(graphcaps.load_dataset("planted-parts-easy")).tolist()))
"""


@pytest.mark.slow
def test_a_plugin_trains_predicts_and_evaluates_by_name(installed: Path, tmp_path: Path) -> None:
    data = "planted-parts-easy"
    commands = [
        ["info", "--models", "--json"],
        ["train", data, "--model", "sgc", "--epochs", "3", "--out", "sgc.safetensors"],
        ["info", "sgc.safetensors", "--json"],
        ["predict", "sgc.safetensors", data, "--out", "predicted.csv"],
        ["evaluate", data, "--model", "sgc", "--epochs", "2", "--folds", "3", "--no-baseline", "--json"],
    ]
    output = succeed(run(tmp_path, "-c", COMMANDS, json.dumps(commands), packages=installed))
    models, _, info, _, evaluation, predictions = map(json.loads, output.splitlines())
    (sgc,) = (model for model in models if model["name"] == "sgc")
    assert (sgc["package"], sgc["problem"]) == ("graphcaps-sgc", "")
    assert sgc["summary"] == (
        "Classifies graphs with a linear map of features that were averaged over neighbourhoods."
    )
    assert (info["model"]["name"], info["model"]["arguments"]) == ("sgc", {"hops": 2})
    with (tmp_path / "predicted.csv").open(newline="") as file:
        assert [row["class"] for row in csv.DictReader(file)] == predictions
    assert '"sgc"' in json.dumps(evaluation)

    missing = run(tmp_path, "-m", "graphcaps", "predict", "sgc.safetensors", data)
    assert missing.returncode == 2
    assert "found 'sgc'. Update graphcaps, or install the package of this model" in missing.stderr
    assert len(missing.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_example_passes_its_own_tests(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    output = succeed(run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", packages=installed))
    assert "passed" in output
