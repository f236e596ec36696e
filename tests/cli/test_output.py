"""Control characters from files never reach the terminal."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from graphcaps.cli.main import app
from graphcaps.cli.output import (
    columns,
    note,
    pairs,
    print_json,
    print_pairs,
    print_table,
    print_text,
    terminal,
)

HOSTILE = "a\x1b]0;title\x07\x1b[2Jb\x9bc\u202ed"
SHOWN = r"a\x1b]0;title\x07\x1b[2Jb\x9bc\u202ed"


def console(*, colours: bool) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    found = terminal(force_terminal=colours)
    found.file = written
    found.width = 200
    return found, written


def test_tables_and_text_are_escaped() -> None:
    screen, written = console(colours=False)
    screen.print(pairs([(HOSTILE, HOSTILE)]))
    print_pairs(screen, [("name", HOSTILE)])
    screen.print(HOSTILE, soft_wrap=True)
    assert written.getvalue().count(SHOWN) == 4
    screen.print(Text(HOSTILE))
    assert "\x1b" not in written.getvalue()


def test_colours_of_our_own_stay() -> None:
    screen, written = console(colours=True)
    screen.print(HOSTILE, style="bold")
    assert f"\x1b[1m{SHOWN}\x1b[0m" in written.getvalue()


def test_notes_and_lines_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    note(HOSTILE)
    print_text(HOSTILE)
    print_text(HOSTILE, to_errors=True)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (f"{SHOWN}\n", f"{SHOWN}\n" * 2)


def test_ctrl_c_cannot_separate_a_note_from_its_line_break(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    stream = io.StringIO()
    monkeypatch.setattr(stream, "write", written.append)
    monkeypatch.setattr("sys.stderr", stream)
    note("3 folds.")
    assert written == ["3 folds.\n"]


def test_json_is_escaped_and_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": HOSTILE + "\\x9b", "ü": 1}
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert "ü" in printed
    assert not set("\x1b\x07\x9b\u202e") & set(printed)


def test_an_option_or_a_file_in_an_error_is_escaped() -> None:
    for arguments in (["info", "no\x1b[31m.safetensors"], ["predict", "--un\x1b[2J"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert "\x1b" not in result.output
        assert r"\x1b[" in result.output


def test_a_table_that_is_wider_than_the_terminal_keeps_its_digits() -> None:
    screen, written = console(colours=False)
    screen.width = 20
    table = columns("model", "held-out accuracy", "seconds", right=("held-out accuracy", "seconds"))
    table.add_row("features-trees", "86.67", "12345.6")
    print_table(screen, table)
    assert written.getvalue().splitlines()[1].split() == ["features-trees", "86.67", "12345.6"]
    assert screen.width == 20
