"""Branches of a capture: where they wait, what they keep, and that nothing changes without them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from graphcaps.ops._triton.branches import fork, use_side_streams


class _Stream:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_stream(self, other: _Stream) -> None:
        self.log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: _Event) -> None:
        self.log.append(f"{self.name} waits for the end of {event.stream}")


class _Event:
    stream = ""

    def record(self, stream: _Stream) -> None:
        self.stream = stream.name


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What streams wait for; the current one is the innermost that is entered."""
    found: list[str] = []
    stack = [_Stream("main", found)]

    @contextlib.contextmanager
    def enter(stream: Any) -> Iterator[None]:
        stack.append(stream)
        try:
            yield
        finally:
            stack.pop()

    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stack[-1])
    monkeypatch.setattr(torch.cuda, "stream", enter)
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    return found


def _streams(log: list[str], *names: str) -> Any:
    return [_Stream(name, log) for name in names]


def test_without_streams_a_block_is_a_part_of_the_sequence(log: list[str]) -> None:
    with fork(torch.ones(2)) as branch:
        pass
    branch.join()
    assert log == []


def test_a_branch_starts_after_what_is_before_it_and_ends_before_the_join(log: list[str]) -> None:
    with use_side_streams(_streams(log, "one", "two")):
        with fork() as first:
            log.append("work of the first")
        with fork(stream=1) as second:
            log.append("work of the second")
        second.join()
        first.join()
    assert log == [
        "one waits for main",
        "work of the first",
        "two waits for main",
        "work of the second",
        "main waits for the end of two",
        "main waits for the end of one",
    ]


def test_a_second_join_waits_for_nothing(log: list[str]) -> None:
    with use_side_streams(_streams(log, "one")):
        with fork() as branch:
            pass
        branch.join()
        count = len(log)
        branch.join()
    assert len(log) == count


def test_branches_share_streams_if_there_are_fewer(log: list[str]) -> None:
    with use_side_streams(_streams(log, "one", "two")), fork(stream=2) as branch:
        pass
    assert log == ["one waits for main"]
    branch.join()


def test_a_branch_may_wait_for_another(log: list[str]) -> None:
    with use_side_streams(_streams(log, "one", "two")):
        with fork() as first:
            pass
        with fork(stream=1) as second:
            first.join()
        second.join()
    assert "two waits for the end of one" in log


def test_what_a_branch_reads_lives_until_the_join(log: list[str]) -> None:
    """Freed before, its memory would be written by what follows."""
    import weakref

    with use_side_streams(_streams(log, "one")):
        tensor = torch.ones(2)
        alive = weakref.ref(tensor)
        with fork(tensor) as branch:
            pass
        del tensor
        assert alive() is not None
        branch.join()
        assert alive() is None


def test_an_exception_joins_the_branches(log: list[str]) -> None:
    """Those that have launches: waiting for another stream would be an error of the capture."""

    def fails() -> None:
        with use_side_streams(_streams(log, "one", "two", "three")):
            with fork(stream=1):
                pass
            with fork(stream=2):
                raise MemoryError

    with pytest.raises(MemoryError):
        fails()
    assert log[-2:] == ["main waits for two", "main waits for three"]
    assert not any("one" in line for line in log)


def test_other_computations_have_no_streams(log: list[str]) -> None:
    with use_side_streams(_streams(log, "one")):
        pass
    with fork():
        pass
    assert log == []
