"""The wheel contains all files of the package, its metadata and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from graphcaps import __version__

TREE = Path(__file__).resolve().parents[1]
PACKAGE = TREE / "src" / "graphcaps"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(TREE)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def test_every_file_of_the_package_is_included(wheel):
    expected = {
        f"graphcaps/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    included = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert included == expected
    assert "graphcaps/py.typed" in included
    presets = {name for name in expected if name.endswith(".toml")}
    assert presets <= included


def test_no_tests_are_included(wheel):
    # graphcaps/testing holds the checks of the model contract for other packages, and no tests.
    assert not [name for name in wheel.namelist() if re.search(r"(^|/)(tests?/|test_|conftest)", name)]


def test_the_command_is_declared(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "graphcaps = graphcaps.__main__:main" in wheel.read(name).decode()


def test_metadata(metadata):
    assert (metadata["Name"], metadata["Version"]) == ("graphcaps", __version__)
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "torch>=2.6" in metadata.get_all("Requires-Dist")
    extras = tomllib.loads((TREE / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {"chem", "serve", "tables", "export", "docs", "dev"} <= set(extras)
    assert set(metadata.get_all("Provides-Extra")) == set(extras)


def test_the_licence_is_included(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    assert "MIT License" in wheel.read(name).decode()
