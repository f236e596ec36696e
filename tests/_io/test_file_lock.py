"""Locks on output files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphcaps._io.file_lock import lock_file
from graphcaps.errors import DataError

HOLD = """
import os, sys
from graphcaps._io.file_lock import lock_file
with lock_file(sys.argv[1]):
    if "fork" in sys.argv and os.fork() == 0:
        os.read(0, 1)  # until the test closes the pipe
        os._exit(0)
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def locked(path: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Another process has the lock on ``path``."""
    command = [sys.executable, "-c", HOLD, str(path), *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process


def test_a_second_process_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "out"
    (tmp_path / "link").symlink_to(path)
    with locked(path) as process:
        for name in (path, tmp_path / "link"):
            with pytest.raises(DataError) as caught, lock_file(name):
                pass
            assert str(caught.value) == (
                f"{name}: another process is writing this file. Wait until it has ended, or name another file."
            )
        process.communicate("")
        assert process.returncode == 0
    with lock_file(path):
        assert sorted(os.listdir(tmp_path)) == [".out.lock", "link"]
    assert os.listdir(tmp_path) == ["link"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_killed_process_frees_the_lock_though_its_fork_lives(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with locked(path, "fork") as process:
        process.kill()
        process.wait()
        with lock_file(path):
            pass
    assert os.listdir(tmp_path) == []


def test_a_file_system_without_locks_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("graphcaps._io.file_lock._lock", fail)
    with lock_file(tmp_path / "out"), lock_file(tmp_path / "other"):
        pass
    assert os.listdir(tmp_path) == []
