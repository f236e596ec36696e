"""Fixtures for the tests of commands."""

from pathlib import Path

import pytest


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the command in ``tmp_path``, with an empty cache and a wide terminal."""
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)
