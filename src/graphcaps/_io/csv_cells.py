"""CSV for spreadsheets: text from files never becomes a formula.

A spreadsheet evaluates a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break. Quotation marks do
not prevent it; an apostrophe at the beginning does.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

__all__ = ["csv_text", "escape_formula"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def escape_formula(text: str) -> str:
    """The text with an apostrophe in front if a spreadsheet could read it as a formula; numbers stay as they are."""
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def csv_text(rows: Iterable[Sequence[object]], *, raw_text: bool = False) -> str:
    """Rows as CSV with line feeds.

    Args:
        rows (iterable): The rows, the header first.
        raw_text (bool): Write text as it is, also where it begins like a formula. (default: ``False``)
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not raw_text:
        rows = ([escape_formula(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    writer.writerows(rows)
    return text.getvalue()
