"""The table of precomputations of ``docs/models.md``, from ``results/precomputation.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import replace_sections, table


def page(root: Path) -> str:
    """The page with its table replaced; ``root`` is the root of the repository."""
    rows = json.loads((root / "results" / "precomputation.json").read_text("utf-8"))
    text = (root / "docs" / "models.md").read_text("utf-8")
    return replace_sections(text, {"precomputation": precomputation_table(rows)})


def precomputation_table(rows: list[dict[str, Any]]) -> str:
    """CPU seconds, a row per model and a column per data set."""
    models = rows[0]["cpu_seconds"]
    cells = [(f"`{model}`", *(f"{row['cpu_seconds'][model]:.1f}" for row in rows)) for model in models]
    measured = sorted({f"{row['hardware']}, commit {row['versions']['commit'][:12]}" for row in rows})
    head = ("", *(row["dataset"] for row in rows))
    return "\n".join(("", table(head, cells), "", f"Measured on {'; '.join(measured)}.", ""))
