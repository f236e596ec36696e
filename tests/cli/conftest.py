"""Fixtures for the tests of commands."""

from pathlib import Path

import pytest

from tests.training.small_forests import few_trees

__all__ = ["few_trees"]


@pytest.fixture(scope="module", autouse=True)
def _small_baselines(few_trees: None) -> None:
    """Commands fit a forest beside their model unless told otherwise: with 500 trees, most of the time of a test."""


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the command in ``tmp_path``, with an empty cache and a wide terminal."""
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)
