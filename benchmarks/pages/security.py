"""Tables of ``docs/security.md``, from ``results/server-load.json`` and ``results/robustness.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import replace_sections, table


def read(root: Path, name: str) -> dict[str, Any]:
    """The stored results of a file; ``root`` is the root of the repository."""
    results: dict[str, Any] = json.loads((root / "results" / name).read_text("utf-8"))
    return results


def page(root: Path) -> str:
    """The page with its tables replaced."""
    robustness = read(root, "robustness.json")
    sections = {
        "damaged files": inputs_table(robustness["inputs"]),
        "kills": kills_table(robustness["kills"]),
        "server load": load_table(read(root, "server-load.json")["rounds"]),
    }
    return replace_sections((root / "docs" / "security.md").read_text("utf-8"), sections)


def inputs_table(rows: list[dict[str, Any]]) -> str:
    """What readers made of damaged files."""
    cells = [
        (
            f"{row['inputs']:,}",
            f"{row['seed']}",
            *(f"{row[kind]:,}" for kind in ("read", "refused", "failed")),
        )
        for row in rows
    ]
    return table(("inputs", "seed", "read", "refused", "failed"), cells)


def kills_table(rows: list[dict[str, Any]]) -> str:
    """When the runs were killed."""
    cells = [
        (f"`{row['run']}`", *(f"{row[key]}" for key in ("kills", "starting", "writing"))) for row in rows
    ]
    return table(("run", "kills", "while it started", "during a write"), cells)


def load_table(rounds: list[dict[str, Any]]) -> str:
    """Responses of the server, a row per round."""
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
        for number, row in enumerate(rounds, start=1)
    ]
    head = ("round", "good answered", "bad refused", "median", "99 %", "longest", "memory")
    return table(head, cells)


def statements(root: Path) -> list[str]:
    """Settings that the sentences of the page contain."""
    results, robustness = read(root, "server-load.json"), read(root, "robustness.json")
    settings = results["settings"]
    return [
        f"`{robustness['command']}`",
        f"files of {robustness['formats']} formats",
        f"`{results['command']}`",
        f"{settings['requests']:,} requests, {settings['concurrent']} at a time",
        f"{results['hardware'].partition(',')[0]}, load average {results['load_average']:g}",
    ]
