"""The table of ``docs/companion.md``: committees of ``best`` with other companions, by validation log loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.measure_companions import RESULTS
from benchmarks.measure_reach import Row, read_rows
from benchmarks.pages.forest import NODES
from benchmarks.pages.markdown import join_names, replace_sections, table
from graphcaps.presets import load_preset

SHOWN = ("none", "wl-forest", "features-trees", "ldp-forest", "wl-forest + features-trees")
"""Companions with a column; the other subsets are in the file."""


def page(root: Path) -> str:
    """The page with its table replaced; ``root`` is the root of the repository."""
    text = (root / "docs" / "companion.md").read_text("utf-8")
    return replace_sections(text, {"companions": loss_table(losses(root))})


def statements(root: Path) -> list[str]:
    """Phrases of the page whose numbers come from the results."""
    return summary(losses(root))


def losses(root: Path) -> dict[str, dict[str, float]]:
    """Mean log loss of each set of companions over divisions, by data set in the order of the paper's tables."""
    rows: Sequence[Row] = read_rows(root / RESULTS)
    found = {}
    for name in NODES:
        cells = [row["log_loss"] for row in rows if row["dataset"] == name]
        if cells:
            found[name] = {title: fmean(cell[title] for cell in cells) for title in cells[0]}
    return found


def summary(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """How the companion of ``best`` compares with none, and with a second one beside it."""
    companion = load_preset("best").committee.companion
    assert companion is not None
    both = f"{companion} + features-trees"
    better = [name for name, each in found.items() if each[companion] < each["none"]]
    gains = {name: each[companion] - each[both] for name, each in found.items()}
    with_attributes = [name for name in found if "attributes" in NODES[name]]
    others = [gains[name] for name in found if name not in with_attributes]
    assert all(gains[name] > 0 for name in with_attributes), "the advice of the page does not hold"
    return [
        f"lowers the loss on {len(better)} of {len(found)} data sets",
        f"lowers it further on {join_names(with_attributes)}, whose nodes have attributes, by up to "
        f"{max(gains[name] for name in with_attributes):.3f}",
        f"On the other data sets it changes the loss by at most {max(map(abs, others)):.3f}, and lowers it on "
        f"{sum(gain > 0 for gain in others)} of {len(others)}",
    ]


def loss_table(found: Mapping[str, Mapping[str, float]]) -> str:
    """A row per data set, the lowest loss in bold."""
    rows = []
    for name, each in found.items():
        texts = [f"{each[title]:.3f}" for title in SHOWN]
        rows.append((name, NODES[name], *(f"**{text}**" if text == min(texts) else text for text in texts)))
    titles = [
        title if title == "none" else " + ".join(f"`{name}`" for name in title.split(" + "))
        for title in SHOWN
    ]
    return table(("data set", "nodes have", *titles), rows)
