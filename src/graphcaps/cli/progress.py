"""Progress bars over the epochs of trainings, on the error stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphcaps.cli.output import terminal

if TYPE_CHECKING:
    from rich.console import Console

    from graphcaps.evaluation import GroupEpoch
    from graphcaps.training.trainer import EpochEnd

__all__ = ["cross_validation_progress", "describe", "error_console", "training_progress"]


def error_console() -> Console:
    """The console of the error stream. It is a terminal only if the stream is one, whatever FORCE_COLOR says.

    In a file, a bar would be a new line at every update.
    """
    return terminal(to_errors=True, force_terminal=sys.stderr.isatty())


@contextmanager
def training_progress(
    total_epochs: int,
    title: str,
    *,
    start: int = 0,
    quiet: bool = False,
    console: Console | None = None,
) -> Iterator[Callable[[EpochEnd], None]]:
    """Yields a function that moves the bar; call it with every :class:`~graphcaps.training.trainer.EpochEnd`.

    Nothing is drawn if the error stream is not a terminal (a log file, a pipe) or ``quiet`` is set.

    Args:
        total_epochs (int): Number of epochs at the end of the bar.
        title (str): Text left of the bar.
        start (int): Epochs that a resumed training has completed. (default: 0)
        quiet (bool): Draw nothing. (default: ``False``)
        console (Console, optional): Console to draw on. (default: the error stream)
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = console or error_console()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[metrics]}", style="dim", markup=False),
    )
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task(title, total=total_epochs, completed=start, metrics="")

        def update(event: EpochEnd) -> None:
            progress.update(task, completed=event.epoch, metrics=describe(event))

        yield update


@contextmanager
def cross_validation_progress(
    epochs: int, title: str = "", *, quiet: bool = False
) -> Iterator[Callable[[GroupEpoch], None]]:
    """One progress bar after another, for each group of models; with a single epoch one bar over all groups.

    Args:
        epochs (int): Number of epochs.
        title (str): Text left of the bar. (default: the data set)
        quiet (bool): Draw nothing. (default: ``False``)
    """
    with ExitStack() as stack:
        bars: dict[int, Any] = {}

        def update(event: GroupEpoch) -> None:
            if epochs == 1:
                name = f"{title or event.dataset} {event.protocol}"
                if not bars:
                    bars[1] = stack.enter_context(training_progress(event.groups, name, quiet=quiet))
                bars[1](replace(event.epoch, epoch=event.group))
                return
            if event.group not in bars:
                stack.close()
                count = f" {event.group}/{event.groups}" if event.groups > 1 else ""
                name = f"{title or event.dataset} {event.protocol}{count}"
                bar = training_progress(epochs, name, start=event.epoch.epoch - 1, quiet=quiet)
                bars[event.group] = stack.enter_context(bar)
            bars[event.group](event.epoch)
            if (
                event.epoch.epoch == epochs
            ):  # the next group starts processes, which must not draw this bar again
                stack.close()

        yield update


def describe(event: EpochEnd) -> str:
    """Loss and accuracies of an epoch, averaged over replicas."""
    parts = [f"loss {_mean(event.train_loss):.4f}"]
    if event.validation_accuracy:
        parts.append(f"validation {100 * _mean(event.validation_accuracy):.1f} %")
    if event.test_accuracy:
        parts.append(f"test {100 * _mean(event.test_accuracy):.1f} %")
    return "  ".join(parts)


def _mean(values: Sequence[float]) -> float:
    """Mean over the replicas that have a value; the accuracy of an empty subset is NaN."""
    finite = [value for value in values if value == value]
    return sum(finite) / len(finite) if finite else float("nan")
