"""Writes docs/performance.md: the words of performance_page.md beside this file, and the figures that are stored.

    python benchmarks/performance_page.py

Every figure is read from results/performance.json; nothing is typed in.
"""

from __future__ import annotations

import re
from pathlib import Path

from engine_speed import PAPER, names
from page_table import table
from performance_tables import (
    MISSING,
    PRECISIONS,
    Entry,
    Figures,
    finely,
    kernels,
    nodes,
    phases,
    precision,
    rivals,
    row,
    scaling,
    shown,
    together,
)

from graphcaps.bench import read_measurements

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PAGE = ROOT / "results" / "performance.json", ROOT / "docs" / "performance.md"
FOUR = ("MUTAG", "ENZYMES", "PROTEINS", "NCI1")
Reached = tuple[str, list[Entry]]


def asked(figures: Figures) -> str:
    """What issue 5 asks, in its order."""
    step, padded = "bench: share of the roofline, training step", "bench: an epoch of one fold, padded"
    faster = "bench: a fold's epoch, times faster than"
    one = {p: names("paper", 1, p) for p in PRECISIONS}
    many = {p: names("paper", 5, p) for p in PRECISIONS}
    trained = {p: f"{one[p][0]}: training and evaluation" for p in PRECISIONS}
    gpu, cpu = "one H200", "two CPU cores"
    rows = [
        (gpu, "HGCN row of tables 1 and 2, start-up counted", "300 s; aim 150 s",
         _each(figures, "cuda", {p: (one[p][1], "all eleven") for p in PRECISIONS})),
        (gpu, "the same with 5 seeds", "600 s",
         _each(figures, "cuda", {p: (many[p][1], "all eleven") for p in PRECISIONS})),
        (gpu, "NCI1, 10 folds × 1000 epochs", "35 s",
         _each(figures, "cuda", {p: (trained[p], "NCI1") for p in PRECISIONS})),
        (gpu, "peak memory in use, one seed, any of the eleven", "4 GB",
         _peak(figures, [one[p][0] for p in PRECISIONS])),
        (gpu, "share of the roofline, NCI1 training step", "30 %",
         _each(figures, "cuda", {p: (finely(step, p), "NCI1") for p in PRECISIONS})),
        (gpu, "the padded program, NCI1, a fold's epoch (published program 1.27 s)", "1.02 to 1.52 s",
         _each(figures, "cuda", {p: (finely(padded, p), "NCI1") for p in PRECISIONS}, " beside ours")),
        (cpu, "NCI1, a fold's epoch, faster than the padded program", "12 ×; aim 20 ×",
         _each(figures, "cpu", {"float32": (f"{faster} padded", "NCI1")})),
        (cpu, "a fold's epoch, faster than DiffPool on four sets", "1 ×",
         _sets(figures, f"{faster} torch-geometric diffpool")),
        (cpu, "a fold's epoch, faster than GIN on four sets", "aim 1 ×",
         _sets(figures, f"{faster} torch-geometric gin")),
        (cpu, "one graph, 10⁴ to 10⁶ nodes, time and memory per decade", "1.3 × linear",
         _growth(figures, "cpu")),
        (gpu, "the same", "1.3 × linear", _growth(figures, "cuda")),
    ]  # fmt: skip
    lines = []
    for where, what, least, (reached, used) in rows:
        commands = dict.fromkeys(f"`{entry['command']}`" for entry in used)
        lines.append((where, what, least, f"**{reached}**" if used else MISSING, "; ".join(commands) or "–"))
    return table(("where", "what", "asked", "reached", "command"), lines)


def _each(figures: Figures, device: str, places: dict[str, tuple[str, str]], beside: str = "") -> Reached:
    """One figure in every precision that it was taken in, or of a rival ``beside`` that."""
    found = {p: e for p, (what, name) in places.items() if (e := figures.get(what, name, device)) is not None}
    parts = [
        f"{shown(entry, unit=True)}{'' if p == 'float32' else f'{beside} in {p}'}"
        for p, entry in found.items()
    ]
    return "; ".join(parts), [*found.values()]


def _peak(figures: Figures, bases: list[str]) -> Reached:
    """The largest peak of the eleven, where all were measured."""
    for base in bases:
        found = figures.cells("cuda", *((f"{base}: peak memory allocated", name) for name in PAPER))
        entries = [entry for entry in found if entry is not None]
        if len(entries) == len(PAPER):
            worst = max(entries, key=lambda entry: float(entry["value"]))
            return f"{worst['value'] / 1000:.2f} GB ({worst['dataset']})", [worst]
    return "", []


def _sets(figures: Figures, what: str) -> Reached:
    found = [entry for name in FOUR if (entry := figures.get(what, name, "cpu")) is not None]
    return ", ".join(f"{entry['dataset']} {entry['value']:.2f} ×" for entry in found), found


def _growth(figures: Figures, device: str) -> Reached:
    """The largest factors per decade from 10⁴ nodes on, of seconds and of memory."""
    parts, used = [], []
    for what, word in (
        ("bench: forward and backward of one graph", "time"),
        ("bench: peak memory of one graph", "memory"),
    ):
        factors = []
        for size in (10**5, 10**6):
            entries = [figures.get(what, nodes(n), device) for n in (size // 10, size)]
            if entries[0] is not None and entries[1] is not None:
                factors.append(entries[1]["value"] / entries[0]["value"] / 10)
                used += [entries[0], entries[1]]
        if factors:
            parts.append(f"{word} {max(factors):.2f} ×")
    return ", ".join(parts), used


def page() -> str:
    """The whole page."""
    figures = Figures(read_measurements(FIGURES))
    parts = {
        "asked": asked(figures),
        "row": row(figures),
        "precision": precision(figures),
        "phases_cuda": phases(figures, "cuda"),
        "rivals_cuda": rivals(figures, "cuda"),
        "rivals_cpu": rivals(figures, "cpu"),
        "together": together(figures),
        "scaling": scaling(figures),
        "kernels": kernels(),
    }
    text = Path(__file__).with_suffix(".md").read_text("utf-8")
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: parts[match[1]], text)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
