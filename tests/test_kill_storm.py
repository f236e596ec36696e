"""Kills of a training, of that of a committee and of an evaluation lose and damage nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kill_storm import Runs, Storm, storm_on_committee, storm_on_evaluate, storm_on_train


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    """One process that imports the command line for all storms."""
    with Runs() as started:
        yield started


@pytest.mark.slow  # 5 starts each, or 12
@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("storm", [storm_on_train, storm_on_committee, storm_on_evaluate])
def test_a_storm_of_kills_ends_with_the_bits_of_a_calm_run(
    runs: Runs, tmp_path: Path, storm: Callable[[Runs, Path, int, int], Storm], kills: int
) -> None:
    hits = storm(runs, tmp_path, kills, 9)
    assert hits.kills == kills
    assert hits.writing >= kills // 3, "too few kills came during a write"
    assert hits.starting <= kills - 2 * (kills // 3), "too few kills came after a checkpoint"
