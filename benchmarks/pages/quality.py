"""Tables and numbers of ``docs/data-quality.md``, from ``results/data-quality.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import replace_sections, table


def read(root: Path) -> list[dict[str, Any]]:
    """The stored rows, one per data set."""
    rows: list[dict[str, Any]] = json.loads((root / "results" / "data-quality.json").read_text("utf-8"))[
        "rows"
    ]
    return rows


def page(root: Path) -> str:
    """The page with its tables replaced; ``root`` is the root of the repository."""
    rows = read(root)
    sections = {"duplicates": duplicates_table(rows), "sizes": sizes_table(rows)}
    return replace_sections((root / "docs" / "data-quality.md").read_text("utf-8"), sections)


def duplicates_table(rows: list[dict[str, Any]]) -> str:
    """Duplicate graphs, leakage across folds, and the highest accuracy that contradicting labels allow."""
    cells = []
    for row in rows:
        duplicates, leakage = row["duplicates"], row["leakage"]
        shown = f"{leakage['mean']:.1%} ({leakage['min']:.1%} to {leakage['max']:.1%})"
        counts = (f"{row['graphs']:,}", f"{duplicates['graphs']:,}", f"{duplicates['groups']}")
        cells.append((row["name"], *counts, shown, f"{row['conflicting_groups']}", f"{row['ceiling']:.1%}"))
    counted = ("graphs", "with duplicates", "groups")
    across_folds = ("test graphs with a duplicate in training", "groups with different labels")
    return table(("data set", *counted, *across_folds, "highest accuracy"), cells)


def sizes_table(rows: list[dict[str, Any]]) -> str:
    """Class balance, sizes of graphs, and sizes of folds that keep duplicates together."""
    cells = []
    for row in rows:
        folds, nodes = row["grouped_folds"], " / ".join(f"{count:,}" for count in row["nodes"])
        classes = (f"{row['largest_class']:.1%}", f"{row['smallest_class']:,} graphs")
        isolated, fold_sizes = (
            f"{row['isolated_nodes']:,}",
            f"{folds['smallest']} to {folds['largest']} graphs",
        )
        cells.append((row["name"], *classes, nodes, isolated, fold_sizes))
    head = ("largest class", "smallest class", "nodes: least, median, most", "isolated nodes")
    return table(("data set", *head, "folds, duplicates together"), cells)


def statements(root: Path) -> list[str]:
    """Numbers that the sentences of the page contain."""
    rows = {row["name"]: row for row in read(root)}
    numbers = [f"{rows[name]['ceiling']:.1%}".replace("%", " %") for name in ("IMDB-MULTI", "IMDB-BINARY")]
    leaks = {name: f"{rows[name]['leakage']['mean']:.1%}".replace("%", " %") for name in rows}
    numbers += [
        f"{leaks['IMDB-MULTI']} and {leaks['IMDB-BINARY']} of the test graphs",
        f"{leaks['COLLAB']} of the test",
    ]
    for name in ("MUTAG", "PTC_MR"):
        bare = rows[name]["without_edge_labels"]
        numbers += [f"{bare['graphs']} of its {rows[name]['graphs']} graphs", f"{bare['leakage']:.1%}"]
    return numbers
