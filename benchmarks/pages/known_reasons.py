"""Tables of data sets with known reasons, in ``docs/known-reasons.md`` and ``docs/explaining.md``.

They are built from ``results/known-reasons.json`` (:mod:`benchmarks.measure_known_reasons`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure_known_reasons import MODELS, SETS
from benchmarks.pages.markdown import DASH, replace_sections, table
from graphcaps.explanation.explanation_metrics import METHODS, SAMPLED_METHODS

Row = dict[str, Any]
NETWORKS = {"hgcn": "HGCN", "gin": "GIN"}
CAPSULES = {
    "group_recall": "groups found",
    "group_overlap": "overlap",
    "nmi": "NMI",
    "nmi_all": "NMI all",
    "purity": "purity",
    "connected": "connected",
    "capsules_per_graph": "capsules",
    "fidelity_plus": "fidelity+",
    "fidelity_minus": "fidelity−",
}


def read(root: Path) -> dict[tuple[str, str], list[Row]]:
    """The rows of each data set and model, of the settings with the most graphs and epochs, in the order of seeds."""
    rows = json.loads((root / "results" / "known-reasons.json").read_text("utf-8"))["rows"]
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["seed"] >= 0:
            found.setdefault((row["dataset"], row["model"]), []).append(row)
    for key, group in found.items():
        largest = max(map(_size, group))
        found[key] = sorted((row for row in group if _size(row) == largest), key=lambda row: row["seed"])
    return found


def _size(row: Row) -> tuple[float, ...]:
    return tuple(
        math.inf if row["settings"][name] is None else row["settings"][name] for name in ("graphs", "epochs")
    )


def reasons_page(root: Path) -> str:
    """``docs/known-reasons.md`` with the accuracies of all models."""
    rows = read(root)
    cells = [
        [
            f"`{name}`",
            *(_mean(rows.get((name, model), ()), lambda row: row["accuracy"], ".1f") for model in MODELS),
        ]
        for name in SETS
    ]
    content = f"{table(('data set', *MODELS), cells)}\n\n{_conditions(rows, MODELS)}"
    path = root / "docs" / "known-reasons.md"
    return replace_sections(path.read_text("utf-8"), {"accuracies": content})


def explaining_page(root: Path) -> str:
    """``docs/explaining.md`` with the tables of known reasons."""
    rows = read(root)
    sections = {f"areas of {model}": areas_table(rows, model) for model in NETWORKS}
    sections["capsules and reasons"] = capsules_table(rows)
    sections["conditions of reasons"] = _conditions(rows, tuple(NETWORKS))
    path = root / "docs" / "explaining.md"
    return replace_sections(path.read_text("utf-8"), sections)


def areas_table(rows: dict[tuple[str, str], list[Row]], model: str) -> str:
    """Area under the ROC curve of node and edge scores of every method, one column per data set."""
    cells = []
    for method in METHODS:
        values = [
            "/".join(
                _mean(
                    rows.get((name, model), ()),
                    lambda row, method=method, metric=metric: row["methods"].get(method, {}).get(metric),
                    ".2f",
                )
                for metric in ("auc_nodes", "auc_edges")
            )
            for name in SETS
        ]
        if any(value != f"{DASH}/{DASH}" for value in values):
            cells.append([method + ("*" if method in SAMPLED_METHODS else ""), *values])
    return table((f"{NETWORKS[model]}: method", *SETS), cells)


def capsules_table(rows: dict[tuple[str, str], list[Row]]) -> str:
    """Agreement of HGCN's capsules with deciding groups and kinds, and the time of an explanation."""
    cells = []
    for name in SETS:
        if not (found := rows.get((name, "hgcn"))):
            continue
        values = [
            _mean(found, lambda row, metric=metric: row["methods"]["capsules"][metric], ".2f")
            for metric in CAPSULES
        ]
        ratio = _mean(found, lambda row: row["timing"]["ratio"], ".2f")
        accuracy = _mean(found, lambda row: row["accuracy"], ".1f")
        cells.append([f"`{name}`", accuracy, *values, ratio])
    return table(("data set", "accuracy", *CAPSULES.values(), "explain / predict"), cells)


def _conditions(rows: dict[tuple[str, str], list[Row]], models: Sequence[str]) -> str:
    """Seeds, graphs and hardware of the rows, one sentence for each group of models with the same ones."""
    phrases: dict[str, list[str]] = {}
    for model in models:
        found = [group for (_, each), group in rows.items() if each == model]
        if not found:
            continue
        settings = found[0][0]["settings"]
        graphs = "all graphs" if settings["graphs"] is None else f"the first {settings['graphs']} graphs"
        counts = sorted({len(group) for group in found})
        seeds = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
        changed = [
            f"{name.replace('_', ' ')} {settings[name]}"
            for name in ("epochs", "width", "learning_rate")
            if settings[name]
        ]
        measured = found[0][0].get("methods", {})
        if not set(SAMPLED_METHODS).isdisjoint(measured):
            changed.append(f"methods with an asterisk on {settings['sample']} graphs")
        hardware = found[0][0]["hardware"]
        text = f"{graphs}, {seeds} of five seeds" + "".join(f", {each}" for each in changed) + f"; {hardware}"
        phrases.setdefault(text, []).append(f"`{model}`")
    return "\n".join(f"- {', '.join(names)}: {text}." for text, names in phrases.items())


def _mean(rows: Iterable[Row], value_of: Callable[[Row], float | None], spec: str) -> str:
    """Mean over the rows that have the value, or a dash."""
    values = [value for value in map(value_of, rows) if value is not None]
    return format(sum(values) / len(values), spec) if values else DASH
