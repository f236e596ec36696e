"""Fixtures that several test files share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.testing

# Imported only here: importing the fixture in a second conftest would start a second browser.
from tests.browser.axe import axe_source  # noqa: F401
from tests.browser.fixtures import browser, visit  # noqa: F401

# Tests run in two processes on two cores.
torch.set_num_threads(1)
# Examples of a property; every run draws others. A machine that is busy exceeds any deadline.
if find_spec("hypothesis") is not None:
    from hypothesis import settings

    settings.register_profile("graphcaps", max_examples=30, deadline=None)
    settings.load_profile("graphcaps")
# Typer builds all verbs with their options for every call, which takes 65 ms.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]
# Commands that tests interrupt would ignore it like this process does after nohup, or in the background of a script.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Kernels are interpreted where there is no GPU; Triton reads this when a kernel is defined.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


# CPU time in seconds above which a test is expected to carry the mark slow.
SLOW_SECONDS = 5.0
# CPU time in seconds that all tests may take in two processes: without the slow ones, and with them.
TEST_BUDGET, SLOW_BUDGET = 840, 1260
# A table by folder is printed after a run of more CPU seconds.
SUMMARY_SECONDS = 60.0


def _cpu_seconds() -> float:
    """CPU time of this process and of its finished child processes: unlike wall-clock time, independent of load."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _measure(item: pytest.Item, name: str) -> Generator[None, Any, Any]:
    start = _cpu_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append((name, _cpu_seconds() - start))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _measure(item, "cpu_seconds_setup"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _measure(item, "cpu_seconds"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _measure(item, "cpu_seconds_teardown"))


_MARKS = {"slow", "exhaustive"}
# Of each folder of tests: number of tests, their CPU seconds with fixtures, and those of marked tests alone.
_FOLDERS: dict[str, list[float]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds the CPU time of a test to its folder; the report of the teardown, the last one, has all parts of it."""
    if report.when == "teardown":
        seconds = sum(value for name, value in report.user_properties if name.startswith("cpu_seconds"))
        parts = report.nodeid.split("::")[0].split("/")
        row = _FOLDERS.setdefault("/".join(parts[: min(2, len(parts) - 1)]), [0, 0.0, 0.0])
        row[0] += 1
        row[1] += seconds
        row[2] += seconds if _MARKS & set(report.keywords) else 0.0


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """CPU time of each folder of tests, and tests that take long and have no mark.

    It is a report: no test fails because of it.
    """
    total, marked = (sum(row[column] for row in _FOLDERS.values()) for column in (1, 2))
    if total > SUMMARY_SECONDS:
        terminalreporter.section("CPU time of the tests, with their fixtures")
        for folder, row in sorted(_FOLDERS.items(), key=lambda entry: -entry[1][1]):
            terminalreporter.write_line(f"{row[1]:6.0f} s  {folder} ({row[0]:.0f} tests)")
        terminalreporter.write_line(
            f"{total - marked:6.0f} s  without marked tests; at most {TEST_BUDGET} s fit into 'make test'"
        )
        if marked:
            terminalreporter.write_line(f"{total:6.0f} s  with them; at most {SLOW_BUDGET} s fit into CI")
    seconds = {
        report.nodeid: dict(report.user_properties).get("cpu_seconds", 0.0)
        for report in terminalreporter.getreports("passed")
        if report.when == "call" and not _MARKS & set(report.keywords)
    }
    long = {name: value for name, value in seconds.items() if value > SLOW_SECONDS}
    if long:
        terminalreporter.section(f"tests of more than {SLOW_SECONDS:g} s of CPU time without a mark")
        for name, value in sorted(long.items(), key=lambda entry: -entry[1]):
            terminalreporter.write_line(f"{value:6.1f} s  {name}")


def pytest_collection_finish() -> None:
    """Exempts what exists after collection from garbage collection.

    A training ends with a full collection, which takes 0.4 s where all test modules are imported, and less than a
    millisecond once their 700,000 objects are exempt.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the paper's eleven data sets: $GRAPHCAPS_DATA, or shared/data next to the repository."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GRAPHCAPS_DATA", default)).resolve()  # tests change the working directory
    if not folder.is_dir():
        pytest.skip("data sets of the paper not found; set GRAPHCAPS_DATA to the folder with their zip files")
    return folder


@pytest.fixture(scope="session")
def molecule_data(shared_data: Path) -> Path:
    """Folder of the public molecule sets bace.csv, bbbp.csv and hiv.csv: ``molecules`` beside the other data sets."""
    folder = shared_data / "molecules"
    if not folder.is_dir():
        pytest.skip("molecule sets not found; put bace.csv and bbbp.csv into $GRAPHCAPS_DATA/molecules")
    return folder


@pytest.fixture
def empty_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fills new uninitialised tensors with NaN, so that a value that is read before it is written shows."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        original = getattr(owner, name)

        def filled(*args: Any, _original: Any = original, **kwargs: Any) -> torch.Tensor:
            tensor: torch.Tensor = _original(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        monkeypatch.setattr(owner, name, filled)


@pytest.fixture
def isolated_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's cache and data folders are under ``tmp_path``; the TU collection cannot be reached."""
    monkeypatch.delenv("GRAPHCAPS_DATA", raising=False)
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("GRAPHCAPS_TU_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "*")
