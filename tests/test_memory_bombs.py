"""Readers refuse content that takes more memory than the bound, before they have taken it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphcaps._io.read_limit import VARIABLE
from graphcaps.errors import DataError
from tests.memory_bombs import BOMBS, read_bomb, write_bomb

ROOT = Path(__file__).parents[1]
# What the largest bombs of each kind took before there was a bound: 5 to 11 GB.
# Not among them: atoms. RDKit needs minutes to parse as many, and the lowered bound tests them.
REAL = {
    "zip-edges": 1_500_000_000,
    "zip-nodes": 1_500_000_000,
    "parquet": 5_000_000_000,
    "csv": 200_000_000,
    "json-objects": 100_000_000,
    "json-nodes": 100_000_000,
    "graphml": 100_000_000,
    "archive": 120_000_000,
    "record": 36_000_000,
}
# In CI; the others take up to a minute.
REPRESENTATIVES = {"parquet"}


def _needs(name: str) -> None:
    if name.startswith("parquet"):
        pytest.importorskip("pyarrow")
    if name == "atoms":
        pytest.importorskip("rdkit")


@pytest.mark.parametrize("name", BOMBS)
def test_a_lowered_bound_refuses_a_small_bomb(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _needs(name)
    # Bounds of these are fixed: a record, names and a preset are never large.
    fixed = {"archive": 40_000_000, "record": 20_000_000, "zip-names": 20_000_000, "preset": 2_000_000}
    sizes = fixed | {"parquet": 3_000_000}
    path = write_bomb(name, tmp_path, sizes.get(name, 300_000))
    monkeypatch.setenv(VARIABLE, "1e6")
    with pytest.raises(DataError, match=r"at most [0-9.,]+ ?(MB|bytes|values)") as caught:
        read_bomb(name, path)
    assert len(str(caught.value)) < 300 + len(str(path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name if name in REPRESENTATIVES else pytest.param(name, marks=pytest.mark.exhaustive) for name in REAL],
)
def test_a_real_bomb_stays_below_two_gigabytes(name: str, tmp_path: Path) -> None:
    _needs(name)
    path = write_bomb(name, tmp_path, REAL[name])
    command = [sys.executable, "-m", "tests.memory_bombs", name, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert "at most" in result["error"]
    assert result["bytes"] < 2.2e9


FILES = ("zip-edges", "zip-nodes", "zip-labels", "csv", "csv-entries", "json-nodes", "parquet")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    [
        *((name, 3_000_000) for name in ("zip-edges", "csv-entries", "json-nodes", "parquet")),
        *(
            pytest.param(name, size, marks=pytest.mark.exhaustive)
            for name, size in [
                *((name, 3_000_000) for name in ("zip-nodes", "zip-labels", "csv")),
                *((name, 10_000_000) for name in FILES),
            ]
        ),
    ],
)
def test_what_is_read_stays_below_the_bound(
    name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimates hold: the largest file that a bound lets through takes no more than it."""
    _needs(name)
    monkeypatch.setenv(VARIABLE, "3e8")
    path = write_bomb(name, tmp_path, size)
    command = [sys.executable, "-m", "tests.memory_bombs", name, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bytes"] < 3e8 + 1e8  # libraries that are loaded late take the rest
