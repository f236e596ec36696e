"""Table of ``docs/molecules.md``, from ``results/molecules/summary.csv``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.measure_molecules import OUT, read_rows
from benchmarks.pages.markdown import mean_std, replace_sections, table

NAMES = {"bace": "BACE", "bbbp": "BBBP", "hiv": "HIV"}


def page(root: Path) -> str:
    """The page with its table replaced; ``root`` is the root of the repository."""
    sections = {"scaffold": scaffold_table(read_rows(root / OUT))}
    return replace_sections((root / "docs" / "molecules.md").read_text("utf-8"), sections)


def scaffold_table(rows: list[dict[str, str]]) -> str:
    """Mean ± standard deviation over scaffold splits, a row per data set and model that was measured."""
    cells = []
    for name, title in NAMES.items():
        models = sorted({row["model"] for row in rows if row["dataset"] == name})
        for model in models:
            chosen = [row for row in rows if (row["dataset"], row["model"]) == (name, model)]
            values = {
                key: _mean_std([float(row[key]) for row in chosen])
                for key in ("roc_auc", "pr_auc", "accuracy")
            }
            cells.append((title, model, f"{len(chosen)}", *values.values()))
    return table(("data set", "model", "splits", "ROC-AUC", "PR-AUC", "accuracy"), cells)


def _mean_std(values: list[float]) -> str:
    return mean_std(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, 3)
