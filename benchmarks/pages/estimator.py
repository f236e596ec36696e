"""Tables of many classes in ``docs/estimator.md``, from ``results/many-classes*.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import replace_sections, table

TITLES = {
    "dropout 0.5": "dropout 0.5 instead of 0.1",
    "cross-entropy of 10 × length": "cross-entropy of ten times the length",
}


def read(root: Path, name: str) -> list[dict[str, Any]]:
    """The stored rows of a file; ``root`` is the root of the repository."""
    rows: list[dict[str, Any]] = json.loads((root / "results" / name).read_text("utf-8"))["rows"]
    return rows


def page(root: Path) -> str:
    """The page with its tables replaced."""
    sections = {
        "changes": changes_table(read(root, "many-classes.json")),
        "dropout": dropout_table(read(root, "many-classes-dropout.json")),
    }
    return replace_sections((root / "docs" / "estimator.md").read_text("utf-8"), sections)


def changes_table(rows: list[dict[str, Any]]) -> str:
    """Accuracies of each change alone; a forest is not trained by epochs and has no training accuracy here."""
    cells = [
        (
            TITLES.get(row["change"], row["change"]),
            f"{100 * row['train_accuracy']:.1f} %",
            f"{100 * row['validation_accuracy']:.1f} %",
        )
        for row in rows
        if "train_accuracy" in row
    ]
    return table(("change", "training accuracy", "validation accuracy"), cells)


def dropout_table(rows: list[dict[str, Any]]) -> str:
    """Accuracy and loss with the two values of dropout."""
    by_data: dict[tuple[str, int], dict[float, dict[str, Any]]] = {}
    for row in rows:
        by_data.setdefault((row["data"], row["graphs"]), {})[row["dropout"]] = row
    cells = []
    for (name, graphs), found in by_data.items():
        high, low = found[0.5], found[0.1]
        accuracies = [
            f"{100 * high[key]:.0f} → {100 * low[key]:.0f} %"
            for key in ("validation_accuracy_20", "validation_accuracy")
        ]
        loss = "lowest_validation_loss"
        cells.append((name, f"{graphs}", *accuracies, f"{high[loss]:.4f} → {low[loss]:.4f}"))
    accuracy = "validation accuracy after 20 epochs, dropout 0.5 → 0.1"
    return table(("generated data", "graphs", accuracy, "after 60 epochs", "lowest validation loss"), cells)


def statements(root: Path) -> list[str]:
    """Settings and the accuracy of the forest, which the sentences of the page contain."""
    rows = read(root, "many-classes.json")
    forest = next(row for row in rows if row["change"] == "forest on attribute sums")
    classes, epochs = rows[1]["classes"], rows[1]["epochs"]
    return [
        f"{classes} classes of 39 graphs, {epochs} epochs",
        f"forest on sums of attributes has {100 * forest['validation_accuracy']:.0f} %",
    ]
