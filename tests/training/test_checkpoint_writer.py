"""When checkpoints are copied and written."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Literal

import pytest

from graphcaps.errors import DataError
from graphcaps.training import checkpoint_writer
from graphcaps.training.checkpoint import Checkpoint, load_checkpoint
from graphcaps.training.checkpoint_writer import CheckpointWriter
from graphcaps.training.loop import TrainingLoop
from tests.training.test_early_stopping import CurveTrainer

EPOCHS = 8


class Clock:
    """A clock that moves with the epochs, and while a checkpoint is written."""

    def __init__(
        self, loop: TrainingLoop, monkeypatch: pytest.MonkeyPatch, *, epoch: float, write: float = 0.0
    ):
        self.copied: list[int] = []
        self.written: list[int] = []
        self.writing = 0.0
        take = loop.checkpoint

        def write_checkpoint(path: Path, checkpoint: Checkpoint, fingerprint: Any) -> None:
            self.written.append(checkpoint.epoch)
            self.writing += write

        def checkpoint() -> Checkpoint:
            self.copied.append(loop.epoch)
            return take()

        monkeypatch.setattr(checkpoint_writer, "monotonic", lambda: epoch * loop.trainer.epoch + self.writing)
        monkeypatch.setattr(checkpoint_writer, "write_checkpoint", write_checkpoint)
        monkeypatch.setattr(loop, "checkpoint", checkpoint)


def make(path: Path, **options: Any) -> tuple[TrainingLoop, CheckpointWriter]:
    writer = CheckpointWriter(path / "c", {}, **options)
    return TrainingLoop(CurveTrainer([1.0] * EPOCHS), [writer]), writer


@pytest.mark.parametrize(
    ("every", "seconds", "after_last", "copied", "written"),
    [
        (3, 0.0, "due", [1, 3, 6], [3, 6]),
        (4, 0.0, "due", [1, 4, 8], [4, 8]),
        (4, 0.0, "never", [1, 4], [4]),
        (None, 0.1, "due", [1], [1]),  # within a second of the first copy
        (None, 0.1, "always", [1, 8], [1, 8]),
        (None, 0.5, "due", [1, 3, 5, 7], [1]),
        (None, 7.0, "due", [*range(1, 9)], [1, 4, 7]),
        (None, 25.0, "never", [*range(1, 9)], [*range(1, 8)]),
        (None, 25.0, "due", [*range(1, 9)], [*range(1, 9)]),
    ],
)
def test_copies_and_checkpoints_follow_epochs_and_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    every: int | None,
    seconds: float,
    after_last: Literal["due", "always", "never"],
    copied: list[int],
    written: list[int],
) -> None:
    loop, _ = make(tmp_path, every=every, after_last=after_last)
    clock = Clock(loop, monkeypatch, epoch=seconds)
    loop.run_all()
    assert (clock.copied, clock.written) == (copied, written)


def test_slow_writes_become_rare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write of half a second may come every 50 seconds."""
    loop, _ = make(tmp_path)
    clock = Clock(loop, monkeypatch, epoch=21.0, write=0.5)
    loop.run_all()
    assert clock.written == [1, 4, 7]


def test_an_interrupt_writes_the_state_of_a_complete_epoch(tmp_path: Path) -> None:
    def stop(event: Any) -> None:
        if event.epoch == 3:
            raise KeyboardInterrupt

    loop, _ = make(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        loop.run_all(stop)
    assert load_checkpoint(tmp_path / "c", {}).epoch == 3
    loop.complete = False  # as after a fourth epoch that was interrupted: the copy is that of the first
    loop.interrupt()
    assert load_checkpoint(tmp_path / "c", {}).epoch == 1


def test_an_interrupt_that_ended_the_processes_of_the_trainer_writes_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(event: Any) -> None:
        if event.epoch == 3:
            monkeypatch.setattr(loop.trainer, "state", lose)
            raise KeyboardInterrupt

    def lose() -> Any:
        raise MemoryError("a training process was killed")

    loop, _ = make(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        loop.run_all(stop)
    assert load_checkpoint(tmp_path / "c", {}).epoch == 1


def test_before_the_first_epoch_nothing_is_written(tmp_path: Path) -> None:
    loop, writer = make(tmp_path, every=1)
    assert writer.last_complete(loop) is None
    loop.interrupt()
    assert not (tmp_path / "c").exists()


def test_a_resumed_loop_can_fall_back_to_its_checkpoint(tmp_path: Path) -> None:
    loop, _ = make(tmp_path, every=2)
    next(loop.run())
    next(loop.run())
    resumed, writer = make(tmp_path, every=2)
    resumed.resume(load_checkpoint(tmp_path / "c", {}))
    next(resumed.run())
    assert writer.copy is not None
    assert writer.copy.epoch == 2


def test_a_run_advances_though_it_is_killed_after_every_epoch(tmp_path: Path) -> None:
    for epoch in range(1, 4):
        loop, _ = make(tmp_path)
        if epoch > 1:
            loop.resume(load_checkpoint(tmp_path / "c", {}))
        next(loop.run())  # and no more: nothing is called as after Ctrl-C
        assert load_checkpoint(tmp_path / "c", {}).epoch == epoch


def test_failures_to_write_are_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = itertools.count(1)

    def fail(path: Path, *_: Any) -> None:
        raise DataError(path, f"no space is left at attempt {next(attempts)}")

    loop, writer = make(tmp_path, every=1)
    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", fail)
    assert len(loop.run_all()) == EPOCHS
    (note,) = writer.notes
    assert note == f"A checkpoint could not be written: {tmp_path / 'c'}: no space is left at attempt 2."
