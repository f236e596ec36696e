"""Fixtures of the tests of training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _short_epochs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of tests have one step or a few per epoch. Tests of the rule for such epochs set another number."""
    monkeypatch.setattr("graphcaps.training.early_stopping.MIN_STEPS", 1)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads of torch, on every machine: two processes. A patched function would stay patched in the forks."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
