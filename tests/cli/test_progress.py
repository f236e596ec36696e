"""The progress bar follows the events and is text on terminals only."""

import io
import math
from dataclasses import replace

from rich.console import Console

from graphcaps.cli.progress import describe, training_progress
from graphcaps.training.trainer import EpochEnd

EVENT = EpochEnd(3, 8, 0.5, [0.25, 0.75], [0.5, 0.5], [0.3, 0.1], [0.8, 0.9], [1.0, math.nan])


def draw(terminal: bool, **options) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=120, color_system=None)
    with training_progress(8, "MUTAG [hgcn]", console=console, **options) as update:
        update(EVENT)
    return stream.getvalue()


def test_the_bar_shows_epoch_and_metrics():
    text = draw(terminal=True)
    assert "MUTAG [hgcn]" in text
    assert "3/8" in text
    assert "loss 0.5000  validation 85.0 %  test 100.0 %" in text


def test_a_resumed_training_starts_at_its_epoch():
    assert "2/8" in draw(terminal=True, start=2)


def test_no_bar_without_a_terminal_or_with_quiet():
    assert draw(terminal=False) == "" or draw(terminal=False).isspace()
    assert draw(terminal=True, quiet=True).strip() == ""


def test_missing_metrics_are_not_shown():
    bare = replace(EVENT, validation_loss=[], validation_accuracy=[], test_accuracy=[])
    assert describe(bare) == "loss 0.5000"
