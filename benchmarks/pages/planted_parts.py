"""Tables of ``docs/planted-parts.md``, from ``planted_networks.json`` and ``planted_statistics.json`` in results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure_planted_statistics import checksum
from benchmarks.pages.markdown import DASH, replace_sections, table
from graphcaps.data.datasets.planted_parts import LEVELS, planted_parts


def read(root: Path, name: str) -> list[dict[str, Any]]:
    """The stored rows of a file; ``root`` is the root of the repository."""
    rows: list[dict[str, Any]] = json.loads((root / "results" / name).read_text("utf-8"))["rows"]
    return rows


def page(root: Path) -> str:
    """The page with its tables replaced."""
    rows = read(root, "planted_statistics.json")
    sections = {f"statistics of {row['level']}": statistics_table(row) for row in rows}
    sections |= {
        "k-means": kmeans_table(rows),
        "networks": networks_table(read(root, "planted_networks.json")),
    }
    return replace_sections((root / "docs" / "planted-parts.md").read_text("utf-8"), sections)


def statistics_table(row: dict[str, Any]) -> str:
    """Accuracies of classifiers on statistics of one level."""
    cells = [
        (name, *(f"{100 * accuracy:.1f}" for accuracy in accuracies))
        for name, accuracies in row["accuracy"].items()
    ]
    return table(("statistics", "LR", "RF", "LR, new profiles", "RF, new profiles"), cells)


def kmeans_table(rows: list[dict[str, Any]]) -> str:
    """Agreement of k-means with the planted parts, by level."""
    cells = [
        (row["level"], name, *(f"{score:.3f}" for score in scores))
        for row in rows
        for name, scores in row["kmeans"].items()
    ]
    return table(("level", "features", "kinds, all nodes", "kinds, per graph", "parts, per graph"), cells)


def networks_table(rows: list[dict[str, Any]]) -> str:
    """Accuracy and agreement of networks, by level."""
    cells = []
    for row in rows:
        agreement = [row.get(name) for name in ("nmi_kinds", "nmi_parts", "nmi_kinds_all_nodes")]
        shown = [DASH if value is None else f"{value:.3f}" for value in agreement]
        accuracy = [f"{row[name]:.1f}" for name in ("accuracy", "std_folds", "std_seeds")]
        cells.append([row["level"], row["model"], *accuracy, *shown])
    nmi = ("NMI kinds, per graph", "NMI parts, per graph", "NMI kinds, all nodes")
    return table(("level", "model", "held-out", "± folds", "± seeds", *nmi), cells)


def statements(root: Path) -> list[str]:
    """Checksums of the generated data sets, and the rows of their sizes."""
    rows = read(root, "planted_statistics.json")

    def line(title: str, cells: Sequence[str]) -> str:
        return f"| {title} | {' | '.join(cells)} |"

    sizes = [
        line(
            f"{unit}, mean (range)",
            [f"{row[unit]['mean']:.2f} ({row[unit]['min']} to {row[unit]['max']})" for row in rows],
        )
        for unit in ("nodes", "edges")
    ]
    scaffold = line("nodes of scaffold and bridges", [f"{100 * row['scaffold']:.1f} %" for row in rows])
    return [*(checksum(planted_parts(level)) for level in LEVELS), *sizes, scaffold]
