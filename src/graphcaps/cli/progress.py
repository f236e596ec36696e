"""A progress bar over the epochs of a training, on the error stream, so that the output stays clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from graphcaps.training.trainer import EpochEnd

__all__ = ["describe", "training_progress"]


@contextmanager
def training_progress(
    total_epochs: int,
    title: str,
    *,
    start: int = 0,
    quiet: bool = False,
    console: Console | None = None,
) -> Iterator[Callable[[EpochEnd], None]]:
    """A bar that moves with every :class:`~graphcaps.training.trainer.EpochEnd` handed to what it yields.

    Nothing is drawn where the error stream is no terminal (a log file, a pipe) or ``quiet`` is set.

    Args:
        total_epochs (int): Where the bar ends.
        title (str): What is trained, left of the bar.
        start (int): Epochs that a resumed training has behind it. (default: 0)
        quiet (bool): Draw nothing. (default: ``False``)
        console (Console, optional): Where to draw. (default: the error stream)
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = console or Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[figures]}", style="dim", markup=False),
    )
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task(title, total=total_epochs, completed=start, figures="")

        def update(event: EpochEnd) -> None:
            progress.update(task, completed=event.epoch, figures=describe(event))

        yield update


def describe(event: EpochEnd) -> str:
    """The figures of an epoch in a few words, averaged over replicas."""
    words = [f"loss {_mean(event.train_loss):.4f}"]
    if event.validation_accuracy:
        words.append(f"validation {100 * _mean(event.validation_accuracy):.1f} %")
    if event.test_accuracy:
        words.append(f"test {100 * _mean(event.test_accuracy):.1f} %")
    return "  ".join(words)


def _mean(values: Sequence[float]) -> float:
    """Over the replicas that have a value: an empty part gives NaN."""
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else float("nan")
