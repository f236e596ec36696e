"""The table of networks in ``docs/planted-parts.md``, from ``results/planted_networks.json``."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.measure_planted_statistics import checksum
from benchmarks.pages.markdown import DASH, replace_sections, table
from graphcaps.data.datasets.planted_parts import LEVELS, planted_parts


def page(root: Path) -> str:
    """The page with its table replaced; ``root`` is the root of the repository."""
    rows = json.loads((root / "results" / "planted_networks.json").read_text("utf-8"))["rows"]
    cells = []
    for row in rows:
        agreement = [row.get(name) for name in ("nmi_kinds", "nmi_parts", "nmi_kinds_all_nodes")]
        shown = [DASH if value is None else f"{value:.3f}" for value in agreement]
        accuracy = [f"{row[name]:.1f}" for name in ("accuracy", "std_folds", "std_seeds")]
        cells.append([row["level"], row["model"], *accuracy, *shown])
    nmi = ("NMI kinds, per graph", "NMI parts, per graph", "NMI kinds, all nodes")
    networks = table(("level", "model", "held-out", "± folds", "± seeds", *nmi), cells)
    text = (root / "docs" / "planted-parts.md").read_text("utf-8")
    return replace_sections(text, {"networks": networks})


def statements(root: Path) -> list[str]:
    """Checksums of the generated data sets."""
    return [checksum(planted_parts(level)) for level in LEVELS]
