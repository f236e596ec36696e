"""Tables and numbers of ``docs/parts.md``, from ``results/parts.json`` and ``results/parts``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import DASH, replace_sections, table
from graphcaps.evaluation import ResultsStore

METRICS = ("nmi", "nmi_all", "ari", "nmi_planted", "nmi_all_planted")
HEAD = ("accuracy", "nmi", "all nodes", "ari", "nmi, parts alone", "all nodes, parts alone")


def read(root: Path) -> dict[str, dict[str, Any]]:
    """The stored rows of the easy level and first draw, by model."""
    rows = json.loads((root / "results" / "parts.json").read_text("utf-8"))["rows"]
    return {row["model"]: row for row in rows if (row["level"], row["draw"]) == ("easy", 0)}


def page(root: Path) -> str:
    """The page with its tables replaced; ``root`` is the root of the repository."""
    rows = read(root)
    sections = {"part agreement": models_table(rows), "part agreement of seeds": seeds_table(rows)}
    return replace_sections((root / "docs" / "parts.md").read_text("utf-8"), sections)


def models_table(rows: dict[str, dict[str, Any]]) -> str:
    """Agreement with the planted kinds, mean over seeds, of k-means and of every model."""
    plain = rows["HGCN"]["mean"]
    cells = [
        ["k-means on input features", DASH, *_metrics(plain["k-means on input features"])],
        ["k-means on HGCN's primary capsules", DASH, *_metrics(plain["k-means on primary capsules"])],
    ]
    for model, row in rows.items():
        cells.append([model, f"{row['mean']['accuracy']:.1f}", *_metrics(row["mean"])])
    return table(("model", *HEAD), cells)


def seeds_table(rows: dict[str, dict[str, Any]]) -> str:
    """Every seed of the plain model and of the option."""
    cells = [
        [model, f"{seed['seed']}", f"{seed['accuracy']:.1f}", *_metrics(seed)]
        for model in ("HGCN", "parts='blocks'")
        for seed in rows[model]["seeds"]
    ]
    return table(("model", "seed", *HEAD), cells)


def _metrics(values: dict[str, Any]) -> list[str]:
    return [f"{values[name]:.3f}" for name in METRICS]


def statements(root: Path) -> list[str]:
    """Numbers that the sentences of the page contain."""
    (ledger,) = ResultsStore(root / "results" / "parts").ledgers()
    assert ledger.held_out is not None
    return [f"{ledger.held_out.mean:.1f} %"]
