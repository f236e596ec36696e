"""Damaged files of every format are read or refused in one sentence; and the fuzzing itself can fail."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from graphcaps.errors import UsageError
from tests import fuzz_readers
from tests.fuzz_readers import FORMATS, Format, outcome_table, run_input, run_inputs


def raising(error: Exception):
    def read(_: Path) -> None:
        raise error

    return read


@pytest.mark.parametrize("name", FORMATS)
def test_the_undamaged_files_of_each_format_are_read(tmp_path: Path, name: str) -> None:
    for file, content in FORMATS[name].files().items():
        (tmp_path / file).write_bytes(content)
    FORMATS[name].read(tmp_path)


def test_an_input_depends_on_its_seed_and_number_alone(tmp_path: Path) -> None:
    contents = []
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        run_input(5, seed=1 if folder == "c" else 0, folder=tmp_path / folder)
        contents.append([path.read_bytes() for path in sorted((tmp_path / folder).iterdir())])
    assert contents[0] == contents[1] != contents[2]


def never_ending(_: Path) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (raising(KeyError("epochs")), "foreign exception: Traceback"),
        (raising(UsageError("x " * 200)), "message of 400 characters"),
        (raising(UsageError("one\ntwo")), "message of several lines"),
        (lambda _: warnings.warn("overflow", RuntimeWarning, stacklevel=1), "overflow"),
        (never_ending, "took more than 0.1 s of CPU time"),
    ],
)
def test_failures_are_found(tmp_path: Path, monkeypatch, read, expected: str) -> None:
    monkeypatch.setattr(fuzz_readers, "FORMATS", {"x": Format(lambda: {"x.txt": b"x"}, read)})
    monkeypatch.setattr(fuzz_readers, "MAX_SECONDS", 0.1)
    outcome = run_input(0, 0, tmp_path)
    assert outcome.kind == "failed"
    assert expected in outcome.problem


@pytest.mark.slow
@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_damaged_files_are_read_or_refused(count: int, capfd) -> None:
    outcomes = run_inputs(count, seed=0)
    assert [outcome for outcome in outcomes if outcome.kind == "failed"] == []
    kinds = [outcome.kind for outcome in outcomes]
    assert min(kinds.count("read"), kinds.count("refused")) > 0.15 * count, outcome_table(outcomes)
    assert capfd.readouterr() == ("", "")
