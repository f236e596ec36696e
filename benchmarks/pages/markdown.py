"""Markdown tables, number formats and templates, shared by all pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

__all__ = [
    "DASH",
    "NOT_MEASURED",
    "fill_template",
    "fixed",
    "join_names",
    "mean_std",
    "p_value",
    "replace_sections",
    "signed",
    "table",
]

TEMPLATES = Path(__file__).parent / "templates"
DASH = "–"
NOT_MEASURED = "not measured"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table without a final line break."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines])


def fixed(value: float, digits: int = 2) -> str:
    """A value with so many decimals, halves away from zero.

    A mean of folds that is 83.45 may be stored as 83.4499…: it is rounded to eight decimals first, so that every page
    shows 83.5.
    """
    exact = Decimal(repr(round(float(value), 8)))
    return f"{exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)}"


def mean_std(mean: float, std: float | None, digits: int = 2) -> str:
    """``81.23 ± 0.45``, or the mean alone if there is no standard deviation."""
    return fixed(mean, digits) if std is None else f"{fixed(mean, digits)} ± {fixed(std, digits)}"


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign, never ``-0.00``."""
    return f"{float(fixed(value, digits)) + 0.0:+.{digits}f}"


def p_value(p: float) -> str:
    """Three digits, or ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def join_names(names: Iterable[str], none: str = "none") -> str:
    """``a, b and c``; ``none`` for an empty list."""
    parts = list(names)
    return none if not parts else " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def fill_template(name: str, values: Mapping[str, str]) -> str:
    """The template ``templates/<name>.md`` with every ``{{ key }}`` replaced.

    Raises:
        KeyError: If the template has a key without a value, or a value is not used.
    """
    text = (TEMPLATES / f"{name}.md").read_text("utf-8")
    unused = {*values} - {*re.findall(r"\{\{ (\w+) \}\}", text)}
    if unused:
        raise KeyError(f"template {name}: no place for {', '.join(sorted(unused))}")
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: values[match[1]], text)


def replace_sections(text: str, sections: Mapping[str, str]) -> str:
    """Replaces what stands between ``<!-- generated: name -->`` and ``<!-- end -->``.

    Raises:
        KeyError: If a section is missing in the text.
    """
    for name, content in sections.items():
        begin = f"<!-- generated: {name} -->\n"
        if begin not in text:
            raise KeyError(f"the page has no section '{name}'")
        before, _, rest = text.partition(begin)
        _, end, after = rest.partition("<!-- end -->")
        text = f"{before}{begin}{content}\n{end}{after}"
    return text
