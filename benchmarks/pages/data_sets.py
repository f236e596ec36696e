"""Tables of ``docs/features.md`` and a sentence of ``docs/data.md``, from ``results/data-sets.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import DASH, replace_sections, table


def read(root: Path) -> dict[str, Any]:
    """The stored results; ``root`` is the root of the repository."""
    results: dict[str, Any] = json.loads((root / "results" / "data-sets.json").read_text("utf-8"))
    return results


def features_page(root: Path) -> str:
    """``docs/features.md`` with its tables replaced."""
    rows = read(root)["rows"]
    sections = {"features": features_table(rows), "node limit": limit_table(rows)}
    return replace_sections((root / "docs" / "features.md").read_text("utf-8"), sections)


def features_table(rows: list[dict[str, Any]]) -> str:
    """Columns, CPU seconds and size of the features of every data set."""
    cells = []
    for row in rows:
        features = row["features"]
        sizes = (features["columns"], f"{features['seconds']:.2g}", f"{features['mb']:.0f}")
        cells.append(
            (
                row["name"],
                f"{row['nodes']:,}",
                f"{features['attributes'] or DASH}",
                label_columns(features),
                f"{features['base_columns']}",
                *map(str, sizes),
            )
        )
    head = ("data set", "nodes", "attributes", "label columns", "k", "columns", "seconds", "MB")
    return table(head, cells)


def label_columns(features: dict[str, Any]) -> str:
    """``89 (1…89, 82 of them seen)``."""
    columns, seen = features["label_columns"], features["labels_seen"]
    if not columns:
        return DASH
    first, last = features["label_range"]
    return f"{columns} ({first}…{last}{'' if seen == columns else f', {seen} of them seen'})"


def limit_table(rows: list[dict[str, Any]]) -> str:
    """What the node limit removes, for the data sets that have larger graphs."""
    cells = [
        (row["name"], *(f"{row['limit'][unit]:,} of {row[unit]:,}" for unit in ("graphs", "nodes", "edges")))
        for row in rows
        if row["limit"]["graphs"]
    ]
    return table(("data set", "graphs truncated", "nodes removed", "edges removed"), cells)


def features_statements(root: Path) -> list[str]:
    """Settings that the sentences of ``docs/features.md`` contain."""
    results = read(root)
    limit = results["node_limit"]
    return [f"`{results['command']}`", results["hardware"].partition(",")[0], f"A limit of {limit:,} affects"]


def data_statements(root: Path) -> list[str]:
    """The cost of reading COLLAB, in ``docs/data.md``."""
    results = read(root)
    reading = next(row["reading"] for row in results["rows"] if row["name"] == "COLLAB")
    parsed = (
        f"COLLAB ({reading['text_mb']:.0f} MB of text) takes {reading['parse_seconds']:.0f} s of CPU time"
    )
    memory = f"{reading['peak_mb'] / 1000:.1f} GB of memory to parse"
    cached = f"{reading['cached_seconds']:.1f} s to read from its cache file of {reading['cache_mb']:.0f} MB"
    return [parsed, memory, cached, f"`{results['command']}`", results["hardware"].partition(",")[0]]
