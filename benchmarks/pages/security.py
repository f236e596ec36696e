"""The table of the load test in ``docs/security.md``, from ``results/server-load.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import replace_sections, table


def read(root: Path) -> dict[str, Any]:
    """The stored results; ``root`` is the root of the repository."""
    results: dict[str, Any] = json.loads((root / "results" / "server-load.json").read_text("utf-8"))
    return results


def page(root: Path) -> str:
    """The page with its table replaced."""
    cells = [
        [
            str(number),
            f"{row['good_answered']} of {row['good']}",
            f"{row['bad_answered']} of {row['requests'] - row['good']}",
            f"{row['p50_ms'] / 1000:.2f} s",
            f"{row['p99_ms'] / 1000:.2f} s",
            f"{row['max_ms'] / 1000:.2f} s",
            f"{row['memory_mb']:.0f} MB",
        ]
        for number, row in enumerate(read(root)["rounds"], start=1)
    ]
    head = ("round", "good answered", "bad refused", "median", "99 %", "longest", "memory")
    text = (root / "docs" / "security.md").read_text("utf-8")
    return replace_sections(text, {"server load": table(head, cells)})


def statements(root: Path) -> list[str]:
    """Settings that the sentences of the page contain."""
    results = read(root)
    settings = results["settings"]
    return [
        f"`{results['command']}`",
        f"{settings['requests']:,} requests, {settings['concurrent']} at a time",
        f"{results['hardware'].partition(',')[0]}, load average {results['load_average']:g}",
    ]
