"""The option ``--log``: where the metrics of every epoch are written to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from graphcaps.cli.output import note, option
from graphcaps.cli.output_files import check_output_folder
from graphcaps.errors import ArgumentError

if TYPE_CHECKING:
    from graphcaps.training.tensorboard_logger import TensorBoardLogger

__all__ = ["Log", "note_log", "open_log"]

Log = Annotated[
    str | None,
    option(
        "--log",
        metavar="tensorboard[:DIR]",
        help="Log every epoch to TensorBoard, below DIR (default: runs).",
    ),
]


def open_log(text: str | None, owner: str) -> list[TensorBoardLogger]:
    """The callbacks of ``--log``; none without it.

    Args:
        text (str, optional): ``tensorboard`` or ``tensorboard:DIR``.
        owner (str): The verb, for messages.

    Raises:
        ArgumentError: If the text is something else.
        DataError: If the folder cannot be written into.
        MissingExtraError: If tensorboard is not installed.
    """
    if text is None:
        return []
    tracker, colon, folder = text.partition(":")
    if tracker != "tensorboard" or (colon and not folder):
        expected = "be tensorboard, or tensorboard:DIR"
        fix = "Other trackers are callbacks in Python (docs/tracking.md)."
        raise ArgumentError(owner, "--log", expected, f"'{text}'", fix)
    from graphcaps.training.tensorboard_logger import TensorBoardLogger

    logger = TensorBoardLogger(folder or "runs")
    check_output_folder(Path(logger.folder))
    return [logger]


def note_log(loggers: list[TensorBoardLogger]) -> None:
    """Says how to look at the log."""
    for logger in loggers:
        note(f"Logged to {logger.run_folder}; view it with: tensorboard --logdir {logger.folder}")
