"""Tables and numbers of ``docs/parts.md``, from ``parts.json``, ``part-structure.json`` and ``parts`` in results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.measure_part_agreement import GROUPS
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
    sections = {
        "part structure": structure_table(root),
        "part agreement": models_table(rows),
        "part agreement of seeds": seeds_table(rows),
    }
    return replace_sections((root / "docs" / "parts.md").read_text("utf-8"), sections)


STRUCTURE = {
    "accuracy": "accuracy",
    "groups_per_graph": "groups per graph",
    "three_to_seven_groups": "3 to 7 groups",
    "parts_per_graph": "capsules per graph",
    "three_to_seven": "3 to 7 capsules",
    "connected": "connected",
    "entropy": "entropy",
    "in_one_capsule": "reason in one capsule",
    "group_recall": "group recall",
    "auc": "auc",
    "nmi": "nmi",
    "nmi_all": "nmi, all nodes",
    "seconds": "time",
}


def structure_table(root: Path) -> str:
    """Structure of the lowest capsules on unseen graphs, by data set and model."""
    rows = json.loads((root / "results" / "part-structure.json").read_text("utf-8"))["rows"]
    plain = {row["dataset"]: row["mean"]["seconds"] for row in rows if row["model"] == "plain"}
    cells = []
    for row in rows:
        values = row["mean"] | {"seconds": row["mean"]["seconds"] / plain[row["dataset"]]}
        seeds = str(len(row["seeds"]))
        cells.append([row["dataset"], row["model"], seeds, *(_structure(name, values) for name in STRUCTURE)])
    return table(("data", "parts", "seeds", *STRUCTURE.values()), cells)


def _structure(name: str, values: dict[str, Any]) -> str:
    if name not in values:
        return DASH
    digits = 1 if name in ("accuracy", "parts_per_graph", "groups_per_graph", "seconds") else 2
    return f"{values[name]:.{digits}f}"


def models_table(rows: dict[str, dict[str, Any]]) -> str:
    """Agreement with the planted kinds, mean over seeds, of groups, of k-means and of every model."""
    plain = rows["HGCN"]["mean"]
    cells = [
        ["k-means on input features", DASH, *_metrics(plain["k-means on input features"])],
        ["k-means on HGCN's primary capsules", DASH, *_metrics(plain["k-means on primary capsules"])],
    ]
    for model, row in rows.items():
        accuracy = row["mean"].get("accuracy")
        shown = DASH if accuracy is None else f"{accuracy:.1f}"
        cells.append([model, shown, *_metrics(row["mean"])])
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
    return [f"{values[name]:.3f}" if name in values else DASH for name in METRICS]


def statements(root: Path) -> list[str]:
    """Numbers that the sentences of the page contain."""
    (ledger,) = ResultsStore(root / "results" / "parts").ledgers()
    assert ledger.held_out is not None
    means = {model: row["mean"] for model, row in read(root).items()}
    plain, blocks, eight = (means[name] for name in ("HGCN", "parts='blocks'", "parts='blocks', 8 capsules"))
    weightless, groups = means["parts='blocks', weight 0"], means[GROUPS]
    return [
        f"{ledger.held_out.mean:.1f} %",
        f"is {plain['nmi']:.3f} within a graph and {plain['nmi_all']:.3f} over all nodes",
        f"({blocks['nmi_planted']:.3f} within a graph, {blocks['nmi_all_planted']:.3f} over all nodes)",
        f"have {groups['nmi']:.3f} without any model",
        f"gives {plain['k-means on primary capsules']['nmi']:.3f} and "
        f"{plain['k-means on primary capsules']['nmi_all']:.3f}",
        f"with weight 0, give {weightless['nmi']:.3f}",
        f"the result is no worse ({eight['nmi']:.3f}, {eight['nmi_all']:.3f})",
    ]
