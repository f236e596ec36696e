"""Rungs of few epochs, so that searches of tests have several of them."""

import pytest

from graphcaps.search import successive_halving


@pytest.fixture(autouse=True)
def _short_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(successive_halving, "MIN_RUNG", 1)
