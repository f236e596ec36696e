"""Size of pages and CPU time of commands in ``docs/report.md``, from ``results/report-page.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import replace_sections, table


def read(root: Path) -> dict[str, Any]:
    """The stored results; ``root`` is the root of the repository."""
    results: dict[str, Any] = json.loads((root / "results" / "report-page.json").read_text("utf-8"))
    return results


def page(root: Path) -> str:
    """The page with its tables replaced."""
    results = read(root)
    pages = [
        (row["name"], f"{row['graphs']:,}", f"{row['mb']:.2g} MB", f"{row['cpu_seconds']:.0f} s")
        for row in results["pages"]
    ]
    seconds = {(row["nodes"], row["format"]): f"{row['cpu_seconds']:.1f} s" for row in results["drawings"]}
    formats = sorted({file_format for _, file_format in seconds})
    drawings = [
        (f"{nodes:,}", *(seconds[nodes, file_format] for file_format in formats))
        for nodes in sorted({nodes for nodes, _ in seconds})
    ]
    sections = {
        "report pages": table(("data", "graphs", "page", "CPU time of `explain`"), pages),
        "drawings": table(("nodes", *map(str.upper, formats)), drawings),
    }
    return replace_sections((root / "docs" / "report.md").read_text("utf-8"), sections)


def statements(root: Path) -> list[str]:
    """Settings that the sentences of the page contain."""
    results = read(root)
    hardware = results["hardware"].partition(",")[0]
    return [f"`{results['command']}`", hardware, f"random networks of mean degree {results['degree']}"]
