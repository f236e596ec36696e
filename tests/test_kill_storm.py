"""Six kills of a training, of that of a committee and of an evaluation lose and damage nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kill_storm import Storm, storm_on_committee, storm_on_evaluate, storm_on_train


@pytest.mark.slow  # 8 starts each
@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
@pytest.mark.parametrize("storm", [storm_on_train, storm_on_committee, storm_on_evaluate])
def test_a_storm_of_kills_ends_with_the_bits_of_a_calm_run(
    tmp_path: Path, storm: Callable[[Path, int, int], Storm]
) -> None:
    hits = storm(tmp_path, 6, 9)  # a seed with three kills during a write
    assert hits.kills == 6
    assert hits.writing >= 1, "no kill came during a write"
    assert hits.starting < 6, "hardly any kill came after a checkpoint"
