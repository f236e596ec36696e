"""Progress bars over the epochs of trainings and over molecules, on the error stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphcaps.cli.output import terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from graphcaps.chemistry.rdkit_pool import RDKitProgress
    from graphcaps.evaluation import GroupEpoch
    from graphcaps.inference.predictions import Predictions
    from graphcaps.training.replica_trainer import EpochEnd

__all__ = [
    "count_progress",
    "cross_validation_progress",
    "describe",
    "error_console",
    "molecule_progress",
    "prediction_progress",
    "progress_bars",
    "training_progress",
]

_MIN_MOLECULES = 2000  # with a bar: about a second on two cores
_MIN_PREDICTED = 10_000


def error_console() -> Console:
    """The console of the error stream. It is a terminal only if the stream is one, whatever FORCE_COLOR says.

    In a file, a bar would be a new line at every update.
    """
    return terminal(to_errors=True, force_terminal=sys.stderr.isatty())


def progress_bars(
    field: str | None = None, *, percent: bool = False, quiet: bool = False, console: Console | None = None
) -> Progress:
    """Bars with a title, how much is done and the remaining time; a context in which they are drawn.

    Nothing is drawn if the console is not a terminal (a log file, a pipe) or ``quiet`` is set.

    Args:
        field (str, optional): Field of a task that is shown right of its bar. (default: none)
        percent (bool): Show what is done in percent, and not as a count. (default: ``False``)
        quiet (bool): Draw nothing. (default: ``False``)
        console (Console, optional): Console to draw on. (default: the error stream)
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = console or error_console()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn() if percent else MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
    )
    beside = () if field is None else (TextColumn(f"{{task.fields[{field}]}}", style="dim", markup=False),)
    return Progress(*columns, *beside, console=console, disable=quiet or not console.is_terminal)


@contextmanager
def training_progress(
    total_epochs: int,
    title: str,
    *,
    start: int = 0,
    quiet: bool = False,
    console: Console | None = None,
) -> Iterator[Callable[[EpochEnd], None]]:
    """Yields a function that moves the bar; call it with every :class:`~graphcaps.training.replica_trainer.EpochEnd`.

    Args:
        total_epochs (int): Number of epochs at the end of the bar.
        title (str): Text left of the bar.
        start (int): Epochs that a resumed training has completed. (default: 0)
        quiet (bool): Draw nothing. (default: ``False``)
        console (Console, optional): Console to draw on. (default: the error stream)
    """
    with progress_bars("metrics", quiet=quiet, console=console) as progress:
        task = progress.add_task(title, total=total_epochs, completed=start, metrics="")

        def update(event: EpochEnd) -> None:
            progress.update(task, completed=event.epoch, metrics=describe(event))

        yield update


@contextmanager
def cross_validation_progress(
    title: str = "", *, variant: str | None = None, quiet: bool = False, console: Console | None = None
) -> Iterator[Callable[[GroupEpoch], None]]:
    """One progress bar after another, for each group of models; with a single epoch one bar over all groups.

    Companions and inner trainings have bars of their own.

    Args:
        title (str): Text left of the bar. (default: the data set)
        variant (str, optional): Variant whose bars have no other name; those of others show it. (default: any)
        quiet (bool): Draw nothing. (default: ``False``)
        console (Console, optional): Console to draw on. (default: the error stream)
    """
    with ExitStack() as stack:
        bars: dict[tuple[str, str, int], Any] = {}

        def update(event: GroupEpoch) -> None:
            is_single = event.epoch.epochs == 1
            key = (event.variant, event.protocol, 0 if is_single else event.group)
            if key not in bars:
                stack.close()
                beside = "" if variant in (None, event.variant) else f" {event.variant}"
                count = f" {event.group}/{event.groups}" if event.groups > 1 and not is_single else ""
                bar = training_progress(
                    event.groups if is_single else event.epoch.epochs,
                    f"{title or event.dataset}{beside} {event.protocol}{count}",
                    start=(event.group if is_single else event.epoch.epoch) - 1,
                    quiet=quiet,
                    console=console,
                )
                bars[key] = stack.enter_context(bar)
            bars[key](replace(event.epoch, epoch=event.group) if is_single else event.epoch)
            if not is_single and event.epoch.epoch == event.epoch.epochs:
                stack.close()  # the next group starts processes, which must not draw this bar again

        yield update


@contextmanager
def count_progress(
    total: int, title: str, *, quiet: bool = False, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Yields a function that moves a bar; call it with the number of items that are done.

    Args:
        total (int): Number of items.
        title (str): Text left of the bar.
        quiet (bool): Draw nothing. (default: ``False``)
        console (Console, optional): Console to draw on. (default: the error stream)
    """
    with progress_bars(quiet=quiet, console=console) as progress:
        task = progress.add_task(title, total=total)

        def update(done: int) -> None:
            progress.update(task, completed=done)

        yield update


@contextmanager
def molecule_progress(*, console: Console | None = None) -> Iterator[None]:
    """A bar for each step inside the context in which RDKit goes through many molecules.

    Args:
        console (Console, optional): Console to draw on. (default: the error stream)
    """
    from graphcaps.chemistry.rdkit_pool import listen_to_rdkit

    with ExitStack() as stack:
        bars: dict[str, Callable[[int], None]] = {}

        def listen(progress: RDKitProgress) -> None:
            if progress.total < _MIN_MOLECULES:
                return
            if progress.purpose not in bars:
                stack.close()
                bar = count_progress(progress.total, progress.purpose, console=console)
                bars[progress.purpose] = stack.enter_context(bar)
            bars[progress.purpose](progress.done)
            if progress.done == progress.total:
                stack.close()
                bars.clear()

        with listen_to_rdkit(listen):
            yield


@contextmanager
def prediction_progress(
    parts: Iterable[Predictions], total: int, *, quiet: bool = False, console: Console | None = None
) -> Iterator[Iterator[Predictions]]:
    """Yields the same predictions; a bar follows them, if there are many graphs.

    Args:
        parts (iterable): Predictions of one part of the graphs after the other.
        total (int): Number of all graphs.
        quiet (bool): Draw nothing. (default: ``False``)
        console (Console, optional): Console to draw on. (default: the error stream)
    """
    hidden = quiet or total < _MIN_PREDICTED
    with count_progress(total, "Predicting", quiet=hidden, console=console) as update:

        def followed() -> Iterator[Predictions]:
            done = 0
            for part in parts:
                yield part
                done += len(part)
                update(done)

        yield followed()


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
