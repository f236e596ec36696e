"""Printing: tables and JSON on the output, notes on the error stream.

Everything that a command prints goes through this module, which escapes control characters: names, classes and messages
come from files of unknown origin, and a terminal would obey them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from graphcaps.errors import CONTROL_CHARACTERS, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "as_options",
    "columns",
    "describe_restarts",
    "format_size",
    "metric_rows",
    "mute_notes",
    "note",
    "option",
    "pairs",
    "print_json",
    "print_pairs",
    "print_table",
    "print_text",
    "terminal",
]

_MAX_WIDTH = 1000  # of a table, in characters
_VALIDATION = re.compile(r"\ba validation share (?:of (0)|(above 0))")
_ARGUMENT = re.compile(r"\b(bad|duplicates|fragments|id|label|smiles|split|unseen)='([^']+)'")


def option(*names: str, **settings: Any) -> Any:
    """``typer.Option`` without its return type, so that mypy accepts it inside ``Annotated``."""
    return typer.Option(*names, **settings)


def as_options(sentence: str) -> str:
    """A message of the library with options instead of Python arguments: ``--bad skip`` for ``bad='skip'``."""
    sentence = _VALIDATION.sub(lambda found: f"--validation {found[1] or found[2]}", sentence)
    return _ARGUMENT.sub(lambda found: f"--{found[1]} {found[2]}", sentence)


_muted = False


def mute_notes() -> None:
    """Drops the notes of this process from now on: another one prints them."""
    global _muted
    _muted = True


def note(sentence: str) -> None:
    """Prints a sentence on the error stream, so that the output stays clean.

    The sentence goes through ``sys.stderr``, which a progress bar replaces while it is drawn: the sentence appears
    above the bar. ``typer.echo`` writes to the stream behind it, and the bar would be drawn a second time. Sentence and
    line break are written together: Ctrl-C between the two, as with ``print``, would put its line behind the sentence.
    """
    if not _muted:
        sys.stderr.write(f"{printable(sentence)}\n")
        sys.stderr.flush()


def print_json(value: Any) -> None:
    """Prints a JSON value on the output; control characters are escaped as JSON does it."""
    text = json.dumps(value, indent=2, ensure_ascii=False)  # escapes C0, but neither DEL nor C1
    typer.echo(CONTROL_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_text(text: str, *, to_errors: bool = False) -> None:
    """Prints text with a line break on the output, or on the error stream."""
    typer.echo(printable(text), err=to_errors)


def terminal(*, to_errors: bool = False, force_terminal: bool | None = None) -> Console:
    """The console of the output: colours on a terminal, plain text in a file or pipe.

    Markup is off, because names from files and options may contain brackets and colons.

    Args:
        to_errors (bool): Write to the error stream. (default: ``False``)
        force_terminal (bool, optional): Whether the stream is a terminal. (default: what it is)
    """
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with 1; a closed pipe (| head) is not an error

        def render_str(self, text: str, **settings: Any) -> Text:
            return super().render_str(printable(text), **settings)  # before the width is measured

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text), style, control)

    return PlainConsole(
        stderr=to_errors, highlight=False, markup=False, emoji=False, force_terminal=force_terminal
    )


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """A table with names on the left and values on the right."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, value)
    return table


def print_pairs(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Prints names and values, each pair on one line of any length, so that paths are not broken."""
    from rich.text import Text

    listed = [(printable(name), printable(value)) for name, value in rows]
    width = max(len(name) for name, _ in listed)
    for name, value in listed:
        console.print(Text.assemble((name.ljust(width), "bold"), "  ", value), soft_wrap=True)


def columns(*names: str, right: Iterable[str] = ()) -> Table:
    """An empty table with these headings; those in ``right`` are right-aligned, the first never wraps."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in set(right) else "left", no_wrap=name == names[0])
    return table


def print_table(console: Console, table: Table) -> None:
    """Prints a table with all its digits: in a narrow terminal, lines are longer than it rather than cut."""
    from rich.measure import Measurement

    width = console.width
    needed = Measurement.get(console, console.options.update(max_width=_MAX_WIDTH), table).maximum
    console.width = max(width, needed)
    console.print(table)
    console.width = width


def describe_restarts(record: Mapping[str, Any], most: int = 12) -> str:
    """The entry ``restarts`` of a training record in one line: the kept seed, the rule, and the criterion of each seed.

    Args:
        record (mapping): The entry; it may come from a file of unknown origin.
        most (int): Number of seeds that are listed. (default: 12)
    """
    runs = record.get("runs")
    runs = [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
    values = []
    for run in runs[:most]:
        value = run.get("criterion")
        shown = f"{value:.4f}" if isinstance(value, int | float) else "not a number"
        values.append(f"{run.get('seed')}: {shown}")
    listed = ", ".join(values) + (", …" if len(runs) > most else "")
    kept = f"kept seed {record.get('kept_seed')} of {record.get('count')}: {record.get('rule')}"
    return f"{kept} (seed {listed})" if listed else kept


def format_size(count: int) -> str:
    """A number of bytes with its unit, such as ``"1.4 MB"``."""
    amount = float(count)
    for unit in ("bytes", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


_METRICS = {
    "balanced_accuracy": ("balanced accuracy", 100, " %"),
    "roc_auc": ("ROC-AUC", 1, ""),
    "pr_auc": ("PR-AUC", 1, ""),
    "mcc": ("MCC", 1, ""),
    "brier": ("Brier score", 1, ""),
    "log_loss": ("log loss", 1, ""),
}


def metric_rows(metrics: Mapping[str, float | None] | None) -> list[tuple[str, str]]:
    """Name and value of each metric except accuracy, which has its own row; a dash where it is not defined."""
    rows = []
    for key, (name, scale, unit) in _METRICS.items():
        value = (metrics or {}).get(key)
        if value is not None:
            rows.append((name, f"{value * scale:.2f}{unit}" if unit else f"{value:.3f}"))
        elif (metrics or {}).get("accuracy") is not None:
            rows.append((name, "–"))
    return rows
