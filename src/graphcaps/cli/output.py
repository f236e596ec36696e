"""Figures of predictions, as rows of a summary."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "columns",
    "format_size",
    "metric_rows",
    "note",
    "option",
    "pairs",
    "print_json",
    "print_pairs",
    "terminal",
]


def option(*names: str, **settings: Any) -> Any:
    """``typer.Option`` without its type, so that it can stand inside ``Annotated`` under mypy."""
    return typer.Option(*names, **settings)


def note(sentence: str) -> None:
    """A sentence to people, beside the output."""
    typer.echo(sentence, err=True)


def print_json(value: Any) -> None:
    """One JSON value on the output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def terminal() -> Console:
    """Where people read: colours on a terminal, plain text in a file or pipe.

    Names come from files and options: brackets and colons in them are text, never markup.
    """
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end with 1; a reader that has gone (| head) is no mistake

    return Plain(highlight=False, markup=False, emoji=False)


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Names on the left, values on the right."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, value)
    return table


def print_pairs(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Names on the left, values on the right, each on one line whatever its length: a path stays whole."""
    from rich.text import Text

    known = list(rows)
    width = max(len(name) for name, _ in known)
    for name, value in known:
        console.print(Text.assemble((name.ljust(width), "bold"), "  ", value), soft_wrap=True)


def columns(*names: str, right: Iterable[str] = ()) -> Table:
    """An empty table with those headings; the ``right`` ones hold numbers, the first is never cut."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in set(right) else "left", no_wrap=name == names[0])
    return table


def format_size(count: int) -> str:
    """A number of bytes as people say it."""
    amount = float(count)
    for unit in ("bytes", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


_WORDS = {
    "balanced_accuracy": ("balanced accuracy", 100, " %"),
    "roc_auc": ("ROC-AUC", 1, ""),
    "pr_auc": ("PR-AUC", 1, ""),
    "mcc": ("Matthews' correlation", 1, ""),
    "brier": ("Brier score", 1, ""),
    "log_loss": ("log loss", 1, ""),
}


def metric_rows(metrics: Mapping[str, float | None] | None) -> list[tuple[str, str]]:
    """A row for each figure that is known, beside the accuracy, which stands on its own."""
    found = []
    for name, (words, scale, unit) in _WORDS.items():
        value = (metrics or {}).get(name)
        if value is not None:
            found.append((words, f"{value * scale:.2f}{unit}" if unit else f"{value:.3f}"))
    return found
