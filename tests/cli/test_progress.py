"""The progress bar follows the events and is text on terminals only."""

import contextlib
import fcntl
import io
import math
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace

import pytest
from rich.console import Console

from graphcaps.cli.progress import cross_validation_progress, describe, training_progress
from graphcaps.evaluation import GroupEpoch
from graphcaps.training.replica_trainer import EpochEnd

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


def test_companions_and_inner_trainings_have_bars_of_their_own():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, color_system=None)
    with cross_validation_progress(variant="hgcn", console=console) as update:
        for variant, groups, epochs in (("hgcn", 1, 8), ("wl-forest", 3, 1), ("hgcn, inner folds", 1, 8)):
            for group in range(1, groups + 1):
                for epoch in range(1, epochs + 1):
                    event = replace(EVENT, epoch=epoch, epochs=epochs)
                    update(GroupEpoch("MUTAG", "held-out", group, groups, 3, event, variant))
    shown = visible_lines(stream.getvalue())
    for title, count in (
        ("MUTAG held-out", "8/8"),
        ("MUTAG wl-forest held-out", "3/3"),
        ("MUTAG hgcn, inner folds held-out", "8/8"),
    ):
        assert any(line.startswith(title) and count in line for line in shown), (title, shown)


def test_missing_metrics_are_not_shown():
    bare = replace(EVENT, validation_loss=[], validation_accuracy=[], test_accuracy=[])
    assert describe(bare) == "loss 0.5000"


def run_on_terminal(program: str, **environment: str) -> str:
    """What a program writes to a terminal of 120 columns."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=child, stdout=child, stderr=child,
        env={**os.environ, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(child)
    written = b""
    with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
        while piece := os.read(parent, 4096):
            written += piece
    os.close(parent)
    assert process.wait(60) == 0
    return written.decode()


def visible_lines(written: str) -> list[str]:
    """The lines that stay on the screen: text after a carriage return and 'erase line' replaces the line."""
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zJ]", "", written.replace("\x1b[2K", "\x00")).split("\n")
    shown = [re.split("[\r\x00]", line.rstrip("\r"))[-1] for line in lines]
    return [line for line in shown if line.strip()]


PROGRAM = """
from graphcaps.cli.output import note
from graphcaps.cli.progress import training_progress
from graphcaps.training.replica_trainer import EpochEnd

with training_progress(2, "MUTAG hgcn") as update:
    update(EpochEnd(1, 2, 0.5, [0.25], [0.5], [0.3], [0.8], []))
    note("A sentence while the bar is drawn.")
    update(EpochEnd(2, 2, 0.5, [0.25], [0.5], [0.3], [0.8], []))
note("A sentence after it.")
"""


def test_the_progress_line_stays_on_a_terminal_once():
    lines = visible_lines(run_on_terminal(PROGRAM))
    assert [line for line in lines if "MUTAG hgcn" in line] == [lines[1]]
    assert lines[0] == "A sentence while the bar is drawn."
    assert "2/2" in lines[1]
    assert lines[2] == "A sentence after it."


@pytest.mark.slow
def test_a_file_has_no_bar_even_with_forced_colours():
    environment = {**os.environ, "FORCE_COLOR": "1"}
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert result.stderr.splitlines() == ["A sentence while the bar is drawn.", "A sentence after it."]


def test_reading_many_molecules_has_a_bar(monkeypatch):
    pytest.importorskip("rdkit")
    from graphcaps.cli import progress
    from graphcaps.data.readers.molecules import read_smiles
    from graphcaps.data.splits.scaffolds import scaffold_groups

    monkeypatch.setattr(progress, "_MIN_MOLECULES", 30)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, color_system=None)
    smiles = ["C" * length for length in range(1, 41)]
    with progress.molecule_progress(console=console):
        read_smiles(smiles)
        scaffold_groups(smiles)
        read_smiles(smiles[:20])
    read_smiles(smiles)
    shown = visible_lines(stream.getvalue())
    assert [line.split()[:2] for line in shown] == [["Reading", "SMILES"], ["Splitting", "by"]]
    assert all("40/40" in line for line in shown)
