"""The tables of docs/performance.md, each from the stored figures; ``performance_page.py`` puts them together."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine_speed import PAPER, names
from page_table import table

from graphcaps.bench import PHASES

KERNELS = Path(__file__).resolve().parents[1] / "src" / "graphcaps" / "ops"
PRECISIONS = ("float32", "tf32", "bf16")
MISSING = "not measured yet"
_PHASES = (*PHASES, "rest")
Entry = dict[str, Any]


class Figures:
    """The stored entries, looked up by what, data set and device."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.known = {(e["what"], e["dataset"], e["device"]): e for e in entries}

    def get(self, what: str, dataset: str, device: str) -> Entry | None:
        return self.known.get((what, dataset, device))

    def cells(self, device: str, *places: tuple[str, str]) -> list[Entry | None]:
        """Entries of several (what, data set)."""
        return [self.get(what, dataset, device) for what, dataset in places]


def shown(entry: Entry | None, digits: int | None = None, unit: bool = False) -> str:
    """A figure as a cell."""
    if entry is None:
        return "–"
    value = f"{entry['value']:,}" if digits is None else f"{entry['value']:,.{digits}f}"
    return f"{value} {entry['unit']}" if unit else value


def sources(entries: Iterable[Entry | None]) -> str:
    """With what figures were taken: each command once, with machine and versions."""
    found: dict[str, None] = {}
    for entry in entries:
        if entry is not None:
            versions = entry["versions"]
            when = f", {entry['date']}" if "date" in entry else ""
            commit = f", commit {versions['commit'][:12]}" if "commit" in versions else ""
            made = f"{entry['hardware']}, torch {versions['torch']}{commit}{when}"
            found[f"- `{entry['command']}` ({made})"] = None
    return "\n\nTaken with:\n" + "\n".join(found) if found else ""


def section(head: Sequence[str], rows: list[Sequence[str]], used: Sequence[Entry | None]) -> str:
    """A table and its sources, or that there is nothing yet."""
    return table(head, rows) + sources(used) if any(used) else f"*{MISSING.capitalize()}.*"


def finely(what: str, precision: str) -> str:
    """The name of a bench entry in a precision."""
    return what if precision == "float32" else f"{what}, {precision}"


def nodes(count: int) -> str:
    """The data set of a scaling entry."""
    return f"one graph of {count} nodes"


_KINDS = {
    "training and evaluation": "s",
    "peak memory allocated": "GB",
    "peak memory reserved": "GB reserved",
}


def row(figures: Figures) -> str:
    """Eleven data sets: seconds and memory, one and five seeds, every precision that was taken."""
    bases = [(names("paper", s, p), s, p) for s in (1, 5) for p in PRECISIONS]
    taken = [b for b in bases if any(e["what"].startswith((b[0][0] + ":", b[0][1])) for e in figures.entries)]
    head, used, columns = ["data set"], [], []
    for (base, whole), seeds, precision in taken:
        label = f"{seeds} seed{'' if seeds == 1 else 's'}, {precision}"
        for kind, unit in _KINDS.items():
            cells = figures.cells("cuda", *((f"{base}: {kind}", name) for name in PAPER))
            if any(cells):
                head.append(f"{label}: {unit}")
                total = figures.get(whole, "all eleven", "cuda") if unit == "s" else None
                columns.append([*map(shown if unit == "s" else _gigabytes, cells), shown(total)])
                used += [*cells, total]
    rows = [[name, *(column[place] for column in columns)] for place, name in enumerate((*PAPER, "**row**"))]
    text = section(head, rows, used)
    return text if any(seeds == 5 for _, seeds, _ in taken) else f"{text}\n\nWith five seeds: {MISSING}."


def _gigabytes(entry: Entry | None) -> str:
    return "–" if entry is None else f"{entry['value'] / 1000:.2f}"


def precision(figures: Figures) -> str:
    """Seconds and accuracy C of five seeds in each precision."""
    bases = {p: names("paper", 5, p)[0] for p in PRECISIONS}
    head, used, rows = ["data set"], [], []
    for p in PRECISIONS:
        head += [f"{p}: s", f"{p}: C", f"{p}: C\\*"]
    for name in PAPER:
        cells = [name]
        for p in PRECISIONS:
            seconds = figures.get(f"{bases[p]}: training and evaluation", name, "cuda")
            cells.append(shown(seconds))
            used.append(seconds)
            for rule in ("C", "C*"):
                mean = figures.get(f"{bases[p]}: accuracy {rule}", name, "cuda")
                spread = figures.get(f"{bases[p]}: accuracy {rule}, deviation over seeds", name, "cuda")
                cells.append(shown(mean, 2) + ("" if spread is None else f" ± {shown(spread, 2)}"))
                used += [mean, spread]
        if set(cells[1:]) != {"–"}:
            rows.append(cells)
    return section(head, rows, used)


def phases(figures: Figures, device: str) -> str:
    """Milliseconds and share of the roofline of each phase, for every data set benched on a device."""
    step = re.compile(r"bench: training step of (\d+) folds(?:, (tf32|bf16))?$")
    found = [
        (e, match[2] or "float32")
        for e in figures.entries
        if e["device"] == device and (match := step.match(e["what"]))
    ]
    head, used, columns = ["phase"], [], []
    for whole, p in found:
        name = whole["dataset"]
        head += [f"{name}, {p}: ms", "roofline"]
        took = [(finely(f"bench: phase of a step, {each}", p), name) for each in _PHASES]
        parts = (*_PHASES, "training step")
        part = [(finely(f"bench: share of the roofline, {each}", p), name) for each in parts]
        times, shares = [*figures.cells(device, *took), whole], figures.cells(device, *part)
        columns += [
            [shown(cell) for cell in times],
            ["–" if e is None else f"{e['value']} %" for e in shares],
        ]
        used += [*times, *shares]
    labels = (*_PHASES, "**whole**")
    return section(head, [[label, *(c[k] for c in columns)] for k, label in enumerate(labels)], used)


def rivals(figures: Figures, device: str) -> str:
    """Ours and the rivals, a fold's epoch."""
    kinds = ("padded", "torch-geometric gin", "torch-geometric diffpool", "torch-geometric sagpool")
    head = ["data set", "ours: s", *(f"{kind}: s (ours is faster)" for kind in kinds)]
    rows, used = [], []
    for entry in figures.entries:
        match = re.match(r"bench: an epoch of (\d+) folds(?:, (tf32|bf16))?$", entry["what"])
        if match is None or entry["device"] != device:
            continue
        name, p = entry["dataset"], match[2] or "float32"
        label = name if p == "float32" else f"{name}, {p}"
        cells = [label, f"{entry['value'] / int(match[1]):.4g}"]
        used.append(entry)
        for kind in kinds:
            took = figures.get(finely(f"bench: an epoch of one fold, {kind}", p), name, device)
            times = figures.get(finely(f"bench: a fold's epoch, times faster than {kind}", p), name, device)
            cells.append("–" if took is None or times is None else f"{shown(took)} ({times['value']:.2f} ×)")
        rows.append(cells)
    return section(head, rows, used)


def together(figures: Figures) -> str:
    found = [entry for entry in figures.entries if re.match(r"\d+ epochs of ten", entry["what"])]
    rows = [(entry["what"], entry["dataset"], shown(entry, unit=True)) for entry in found]
    return section(("what", "data set", "value"), rows, found)


def scaling(figures: Figures) -> str:
    """Seconds and memory of one graph, by its size."""
    sizes = [10**k for k in range(2, 7)]
    head, used, columns = ["nodes"], [], []
    for device, word in (("cpu", "CPU"), ("cuda", "GPU")):
        for what, unit in (
            ("bench: forward and backward of one graph", "ms"),
            ("bench: peak memory of one graph", "MB"),
        ):
            cells = figures.cells(device, *((what, nodes(size)) for size in sizes))
            if any(cells):
                head += [f"{word}: {unit}", "per decade"]
                factors = ["–"]
                for a, b in pairwise(cells):
                    factors.append("–" if a is None or b is None else f"{b['value'] / a['value'] / 10:.2f}")
                columns += [[shown(cell) for cell in cells], factors]
                used += cells
    rows = [[f"{size:,}", *(column[place] for column in columns)] for place, size in enumerate(sizes)]
    return section(head, rows, used)


def kernels() -> str:
    """The first sentence of every file that holds a kernel."""
    rows = []
    for path in sorted(KERNELS.rglob("*.py")):
        text = path.read_text("utf-8")
        if "@triton.jit" in text:
            said = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("\n", " ")
            plain = re.sub(r":\w+:`([^`]*)`", r"`\1`", said).replace("``", "`")
            rows.append((f"`{path.name}`", plain.replace("|", "\\|")))
    return table(("file", "what it does"), rows)
