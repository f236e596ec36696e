"""``graphcaps serve``: it prints its address, or one sentence with exit code 2."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

import graphcaps.serve
from graphcaps.cli.main import app
from tests.small_models import small_model

pytestmark = pytest.mark.usefixtures("isolated_folders")
pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install 'graphcaps[serve]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'graphcaps[serve]'")
pytest.importorskip(
    "python_multipart", reason="python-multipart is not installed: pip install 'graphcaps[serve]'"
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.safetensors"
    small_model().save(path)
    return path


def error_of(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == 2, result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("graphcaps: ")
    return last


def test_a_missing_model(tmp_path: Path) -> None:
    assert "none.safetensors: file not found." in error_of(str(tmp_path / "none.safetensors"), "--port", "0")


@pytest.mark.slow
def test_a_file_that_is_not_a_model(tmp_path: Path) -> None:
    path = tmp_path / "text.safetensors"
    path.write_text("no model")
    command = [sys.executable, "-m", "graphcaps", "serve", str(path), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[1:] == [
        f"graphcaps: {path}: expected a file written by graphcaps, found text."
    ]


def test_a_port_in_use_and_an_unknown_address(model: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"port {port} is in use; choose another with --port." in error_of(
            str(model), "--port", str(port)
        )
    assert "--host" in error_of(str(model), "--host", "no such host", "--port", "0")
    assert "--host" in error_of(str(model), "--host", "192.0.2.1", "--port", "0")


@pytest.mark.parametrize("package", ["fastapi", "python_multipart", "uvicorn"])
def test_a_missing_extra_names_its_install_line(
    model: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(graphcaps.serve, "serve", raising=False)  # an attribute since its first use
    monkeypatch.setitem(sys.modules, package, None)
    assert "pip install 'graphcaps[serve]'" in error_of(str(model), "--port", "0")


@pytest.mark.parametrize("ending", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_it_responds_and_ends_cleanly(model: Path, ending: signal.Signals) -> None:
    command = [sys.executable, "-m", "graphcaps", "serve", str(model), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.match(r"Serving at (http://127\.0\.0\.1:\d+) \(3 classes\)", line)
    assert match is not None, line
    with urllib.request.urlopen(f"{match[1]}/health", timeout=120) as response:
        assert json.load(response)["status"] == "ok"
    children = _children(process.pid)
    assert len(children) == 1
    process.send_signal(ending)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == (0 if ending == signal.SIGINT else -signal.SIGTERM)
    assert "Traceback" not in errors
    assert errors.splitlines()[-1] == "Stopped."
    end = time.monotonic() + 120
    while any(Path(f"/proc/{child}").exists() for child in children):  # the worker ends with it
        assert time.monotonic() < end, "the worker still runs"
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if not listed.exists():
        pytest.skip("this system does not list child processes")
    return [int(child) for child in listed.read_text().split()]
