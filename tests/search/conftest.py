"""Rungs of few epochs, so that searches of tests have several of them."""

import pytest

from graphcaps.search import successive_halving
from tests.training.small_forests import few_trees

__all__ = ["few_trees"]


@pytest.fixture(scope="module", autouse=True)
def _small_importances(few_trees: None) -> None:
    """Each search ends with pictures, and most of its time would be the forest of one of them."""


@pytest.fixture(autouse=True)
def _short_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(successive_halving, "MIN_RUNG", 1)
