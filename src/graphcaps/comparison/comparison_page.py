"""The page of a comparison: a sortable table, the picture of ranks, and learning curves, in one HTML file.

The page sends no network requests. Its style sheet is that of the report of a model.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from importlib import resources

import numpy as np

from graphcaps._io.provenance import library_versions
from graphcaps.comparison.comparison import Comparison
from graphcaps.comparison.comparison_tables import (
    ComparisonTable,
    dataset_table,
    explanations,
    learning_warnings,
    matrix_tables,
    rank_sentence,
    record_notes,
)
from graphcaps.comparison.rank_diagram import rank_diagram
from graphcaps.evaluation.ledger import Ledger, choose_epochs
from graphcaps.explanation.report.report_page import page_style

__all__ = ["comparison_page"]

_MAX_POINTS = 120  # of a curve on the page
_SMALL_IS_GOOD = ("mean rank", "p", "seconds", "memory GB")


def comparison_page(comparison: Comparison, *, title: str = "Comparison of models") -> str:
    """The page as text.

    Args:
        comparison (Comparison): The results.
        title (str): Heading; any text. (default: "Comparison of models")
    """
    style, script = page_style() + _resource("comparison.css"), _script()
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; style-src 'sha256-{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    values = {
        "policy": policy,
        "version": library_versions()["graphcaps"],
        "title": _escape(title),
        "style": style,
        "script": script,
        "lead": _escape(_lead(comparison)),
        "facts": _facts(comparison),
        "warnings": _warnings(comparison),
        "sections": "\n".join(_sections(comparison)),
        "foot": f"Written by graphcaps {library_versions()['graphcaps']}. This file sends no network requests.",
    }
    # A single pass, so that a title that looks like a placeholder is not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _resource("comparison.html"))


@cache
def _resource(name: str) -> str:
    return resources.files("graphcaps").joinpath("comparison", "page", name).read_text("utf-8")


@cache
def _script() -> str:
    return f'(() => {{\n"use strict";\n{_resource("comparison.js")}}})();\n'


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _escape(text: str) -> str:
    return escape(text.encode("utf-8", "replace").decode("utf-8"))


def _lead(comparison: Comparison) -> str:
    datasets, models = len(comparison.datasets), len(comparison.models)
    where = comparison.datasets[0] if datasets == 1 else f"{datasets} data sets"
    folds = sorted({ledger.num_folds for ledger in comparison.ledgers})
    seeds = sorted({len(each.seeds) for ledger in comparison.ledgers for each in ledger.estimates.values()})
    parts = [f"{models} model{'' if models == 1 else 's'} on {where}"]
    if folds:
        is_split = any(ledger.partition is not None for ledger in comparison.ledgers)
        unit = (
            "splits"
            if is_split and any(ledger.is_repeated_split for ledger in comparison.ledgers)
            else "folds"
        )
        parts.append("one split" if folds == [1] else f"the same {_range(folds)} {unit} for all")
        parts.append("one seed" if seeds == [1] else f"{_range(seeds)} seeds")
    hardware = "; ".join(dict.fromkeys(ledger.hardware for ledger in comparison.ledgers if ledger.hardware))
    return ", ".join(parts) + "." + (f" {hardware}." if hardware else "")


def _range(numbers: list[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _facts(comparison: Comparison) -> str:
    """The best model by held-out accuracy, and what beats the baseline significantly."""
    if not any(ledger.held_out is not None for ledger in comparison.ledgers):
        return ""
    facts = []
    if len(comparison.datasets) == 1:
        name = comparison.datasets[0]
        accuracy = {model: comparison.held_out(name, model) for model in comparison.models}
        known = {model: value for model, value in accuracy.items() if value is not None}
        highest = max(known.values())
        best = [model for model, value in known.items() if value == highest]
        facts.append(("highest held-out accuracy", f"{highest:.2f} %", ", ".join(best)))
    elif comparison.ranks is not None:
        ranks = comparison.ranks
        lowest = [
            model for model, rank in zip(ranks.models, ranks.ranks, strict=True) if rank == ranks.ranks[0]
        ]
        note = f"mean rank {ranks.ranks[0]:.2f} of {len(ranks.models)} models"
        facts.append(("lowest mean rank", ", ".join(lowest), note))
    above: list[str] = []
    below: list[str] = []
    for dataset in comparison.datasets:
        for model, tested in comparison.tests(dataset).items():
            if tested.is_significant:
                (above if tested.test.difference > 0 else below).append(f"{model} on {dataset}")
    cautions: dict[str, str] = {}
    if any(comparison.tests(dataset) for dataset in comparison.datasets):
        for name, models in (("above", above), ("below", below)):
            title = f"significantly {name} {comparison.baseline}"
            facts.append((title, f"{len(models)}", _listed(models)))
            cautions[title] = _baseline_caution(comparison)
    if comparison.failures:
        failed = [f"{cell.model} on {cell.dataset}" for cell in comparison.failures]
        facts.append(("failed", f"{len(failed)}", _listed(failed)))
    return "".join(
        f'<div class="fact"><dt>{_escape(name)}</dt><dd>{_escape(value)}</dd>'
        f'<dd class="fact-note">{_escape(note)}</dd>'
        + (
            f'<dd class="fact-note caution">{_escape(caution)}</dd>'
            if (caution := cautions.get(name))
            else ""
        )
        + "</div>"
        for name, value, note in facts
    )


def _baseline_caution(comparison: Comparison) -> str:
    """A sentence if the baseline has hardly learned, so that differences to it say little; else ""."""
    cells = (comparison.cells.get((dataset, comparison.baseline)) for dataset in comparison.datasets)
    names = [cell.dataset for cell in cells if cell is not None and cell.warning]
    if not names:
        return ""
    return f"Caution: {comparison.baseline} has hardly learned on {_listed(names)}."


def _warnings(comparison: Comparison) -> str:
    """A box with the models that have hardly learned; "" without any."""
    found = learning_warnings(comparison)
    if not found:
        return ""
    listed = "".join(f"<li>{_escape(sentence)}</li>" for sentence in found)
    return f'<section class="warnings" aria-label="Cautions"><h2>Caution</h2><ul>{listed}</ul></section>'


def _listed(names: list[str], limit: int = 6) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _sections(comparison: Comparison) -> list[str]:
    sections = []
    if len(comparison.datasets) > 1:
        sections += [_section(each.title, _table(each, comparison)) for each in matrix_tables(comparison)]
    if comparison.ranks is not None:
        picture = f'<div class="card ranks"><div class="scroll">{rank_diagram(comparison.ranks)}</div></div>'
        note = f'<p class="card-note">{_escape(rank_sentence(comparison))}</p>'
        sections.append(_section("Mean ranks", picture + note))
    for dataset in comparison.datasets:
        table = _table(dataset_table(comparison, dataset), comparison)
        title = "Results" if len(comparison.datasets) == 1 else dataset
        sections.append(_section(title, table + _charts(comparison, dataset), "dataset"))
    meanings = "".join(
        f"<li>{_escape(sentence)}</li>" for sentence in (*explanations(comparison), *record_notes(comparison))
    )
    sections.append(_section("What the numbers mean", f'<ul class="sentences">{meanings}</ul>'))
    return sections


def _section(title: str, content: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<section{attribute}><h2>{_escape(title)}</h2>{content}</section>"


# ---------------------------------------------------------------------- tables
def _table(table: ComparisonTable, comparison: Comparison) -> str:
    head = "".join(
        f'<th scope="col" class="{"model" if number == 0 else "number"}" '
        f'data-order="{"ascending" if number == 0 or name in _SMALL_IS_GOOD else "descending"}">{_escape(name)}</th>'
        for number, name in enumerate(table.head)
    )
    best = {column: _largest(table, column) for column in range(1, len(table.head))}
    rows, marks = [], dict(table.marks)
    for row in table.rows:
        cells = []
        for column, (name, text) in enumerate(zip(table.head, row, strict=True)):
            number = _number(text)
            classes = ["model" if column == 0 else "number"]
            is_accuracy = column > 0 and name not in _SMALL_IS_GOOD and not name.startswith(("±", "vs "))
            if is_accuracy and number is not None and number == best[column]:
                classes.append("first")
            if name.startswith("vs ") and text.endswith("*"):
                classes.append("above" if text.startswith("+") else "below")
            if text == "failed":
                classes.append("failed")
            sort = text if column == 0 else "" if number is None else f"{number:g}"
            mark = (
                f'<small class="mark">{_escape(marks[text])}</small>' if column == 0 and text in marks else ""
            )
            cells.append(
                f'<td class="{" ".join(classes)}" data-value="{_escape(sort)}">{_escape(text)}{mark}</td>'
            )
        kinds = [
            name
            for name, applies in (("base", row[0] == comparison.baseline), ("warned", row[0] in marks))
            if applies
        ]
        attribute = f' class="{" ".join(kinds)}"' if kinds else ""
        rows.append(f"<tr{attribute}>{''.join(cells)}</tr>")
    for model, reason in table.failures:
        name = f'<td class="model" data-value="{_escape(model)}">{_escape(model)}</td>'
        rows.append(
            f'<tr>{name}<td class="failed" colspan="{len(table.head) - 1}">{_escape(reason)}</td></tr>'
        )
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _number(text: str) -> float | None:
    """The number at the beginning of a cell; ``None`` if it has none."""
    found = re.match(r"[<]?\s*([+-]?\d+(?:\.\d+)?)", text)
    return None if found is None else float(found[1])


def _largest(table: ComparisonTable, column: int) -> float | None:
    numbers = [number for row in table.rows if (number := _number(row[column])) is not None]
    return max(numbers) if len(numbers) > 1 else None


# ---------------------------------------------------------------------- learning curves
def _charts(comparison: Comparison, dataset: str) -> str:
    """A small chart per model with epochs, inside a block that can be closed; "" if no model has epochs."""
    ledgers = {
        model: ledger
        for model in comparison.models
        if (ledger := comparison.ledger(dataset, model)) is not None and ledger.selects_epochs
    }
    if not ledgers:
        return ""
    curves = {model: _curves(ledger) for model, ledger in ledgers.items()}
    # One axis for all models of a data set, so that charts side by side can be compared.
    lowest = min(float(np.nanmin(values)) for pair in curves.values() for values in pair)
    low = 10 * np.floor(10 * lowest) / 100
    charts = [
        f'<div class="card"><h4>{_escape(model)}</h4>{_chart(ledger, *curves[model], low)}</div>'
        for model, ledger in ledgers.items()
    ]
    second = "validation" if any(ledger.of("held-out") for ledger in comparison.ledgers) else "test"
    legend = (
        '<ul class="legend"><li><span class="swatch"></span>training accuracy, during the epoch, with the dropout of '
        "the model</li>"
        f'<li><span class="swatch validation"></span>{second} accuracy</li>'
        + (
            '<li><span class="swatch kept"></span>held-out epoch, median of folds</li>'
            if second != "test"
            else ""
        )
        + "</ul>"
    )
    is_open = " open" if len(comparison.datasets) == 1 else ""
    heading = f"Learning curves, mean over folds and seeds ({len(charts)})"
    grid = f'<div class="charts">{"".join(charts)}</div>'
    return f"<details{is_open}><summary>{heading}</summary>{legend}{grid}</details>"


def _curves(ledger: Ledger) -> tuple[np.ndarray, np.ndarray]:
    """Training and validation accuracy by epoch, mean over folds and seeds, ``[E]`` each.

    The second is the test accuracy where there is no validation set.
    """
    records = ledger.of("held-out") or ledger.of("paper")
    is_held_out = bool(ledger.of("held-out"))
    epochs = min(record.curves.num_epochs for record in records)
    train = np.mean([record.curves.train_accuracy[:, :epochs].mean(0) for record in records], 0)
    others = [
        record.curves.validation_accuracy if is_held_out else record.curves.test_accuracy
        for record in records
    ]
    return train, np.mean([np.nanmean(each[:, :epochs], 0) for each in others], 0)


def _chart(ledger: Ledger, train: np.ndarray, other: np.ndarray, low: float) -> str:
    """Two curves of accuracies by epoch, as SVG.

    Args:
        ledger (Ledger): The results, for the selected epochs and the label.
        train, other (ndarray): From :func:`_curves`.
        low (float): Lower end of the vertical axis, from 0 to 1; the upper end is 1.
    """
    epochs, records = len(train), ledger.of("held-out")
    left, right, top, bottom = 34.0, 228.0, 8.0, 118.0

    def x(epoch: float) -> float:
        return left + (epoch - 1) / max(epochs - 1, 1) * (right - left)

    def y(accuracy: float) -> float:
        return bottom - (accuracy - low) / max(1 - low, 0.01) * (bottom - top)

    shown = np.unique(np.linspace(0, epochs - 1, _MAX_POINTS).round().astype(int))
    paths = {
        name: " ".join(f"{x(at + 1):.1f},{y(float(values[at])):.1f}" for at in shown.tolist())
        for name, values in (("train", train), ("validation", other))
    }
    ticks = "".join(
        f'<line class="grid" x1="{left}" y1="{y(value):.1f}" x2="{right}" y2="{y(value):.1f}"/>'
        f'<text class="tick end" x="{left - 5}" y="{y(value) + 4:.1f}">{100 * value:.0f}</text>'
        for value in (low, (low + 1) / 2, 1.0)
    )
    ends = (
        f'<text class="tick" x="{left}" y="{bottom + 16}">1</text>'
        f'<text class="tick end" x="{right}" y="{bottom + 16}">{epochs:,} epochs</text>'
    )
    mark = ""
    if records:
        chosen = [choose_epochs(record)["held-out"].epochs for record in records]
        middle = min(float(np.median(np.concatenate(chosen))), epochs)
        mark = f'<line class="kept" x1="{x(middle):.1f}" y1="{top}" x2="{x(middle):.1f}" y2="{bottom}"/>'
    label = f"{ledger.variant} on {ledger.dataset}: training accuracy {100 * train[-1]:.1f} % after the last epoch"
    curves = "".join(f'<polyline class="curve {name}" points="{points}"/>' for name, points in paths.items())
    return f'<svg viewBox="0 0 236 140" role="img" aria-label="{_escape(label)}">{ticks}{mark}{curves}{ends}</svg>'
