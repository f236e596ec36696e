"""Learning curves of HGCN on the paper's data sets as one SVG: docs/images/reproduction-curves.svg.

The picture contains the SHA-256 of the numbers that it shows, so that it can be compared with the records under any
version of matplotlib.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages.reproduction.hgcn_tables import Results
from graphcaps.evaluation.record import PROTOCOLS
from graphcaps.reproduction.published import paper_datasets, published_hgcn

POINTS = 100
_RULE = {"paper": "C", "held-out": "held-out"}
_COLOUR = {"paper": "#0072B2", "held-out": "#D55E00"}
_LABEL = {
    "paper": "nine folds train, one tests\n(C chooses here)",
    "held-out": "eight train, one chooses,\none tests (held-out)",
}


@dataclass(frozen=True)
class Curve:
    """Test accuracy of one protocol on a data set, in percent; JSON-safe.

    Args:
        epochs (list): Centre of each group of epochs.
        mean (list): Mean over its epochs, over folds and seeds.
        spread (list): Standard deviation over seeds of the mean over folds; zero for one seed.
        chosen (list): Selected epochs, of every seed (C), or of every seed and fold (held-out).
    """

    epochs: list[float]
    mean: list[float]
    spread: list[float]
    chosen: list[int]


def curves(results: Results) -> dict[str, dict[str, Curve]]:
    """Curves by data set and protocol, of the stored records."""
    by_dataset: dict[str, dict[str, Curve]] = {}
    for name in paper_datasets():
        for protocol in PROTOCOLS:
            ledger = results.library.ledger(name, "hgcn", protocol)
            if ledger is None:
                continue
            seeds = np.array([100 * record.curves.test_accuracy.mean(0) for record in ledger.of(protocol)])
            step = -(-seeds.shape[1] // POINTS)
            starts = np.arange(0, seeds.shape[1], step)
            ends = np.minimum(starts + step, seeds.shape[1])
            parts = np.add.reduceat(seeds, starts, axis=1) / (ends - starts)  # [S, P]
            spread = parts.std(0, ddof=1) if len(parts) > 1 else np.zeros(parts.shape[1])
            rows = [row for row in ledger.per_seed() if row["figure"] == _RULE[protocol]]
            per_fold = protocol == "held-out"
            chosen = [epoch for row in rows for epoch in (row["epochs"] if per_fold else row["epochs"][:1])]
            by_dataset.setdefault(name, {})[protocol] = Curve(
                ((starts + 1 + ends) / 2).tolist(), parts.mean(0).round(2).tolist(), spread.round(2).tolist(),
                sorted(chosen),
            )  # fmt: skip
    return by_dataset


def digest(by_dataset: dict[str, dict[str, Curve]]) -> str:
    """SHA-256 of the numbers shown."""
    plain = {
        name: {key: asdict(curve) for key, curve in by_protocol.items()}
        for name, by_protocol in by_dataset.items()
    }
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode("utf-8")).hexdigest()


def embedded_digest(svg: str) -> str | None:
    """The digest that a picture contains."""
    match = re.search(r"numbers sha256 ([0-9a-f]{64})", svg)
    return match[1] if match else None


def picture(root: Path) -> str:
    """The picture; ``root`` is the root of the repository."""
    return draw(Results(root / "results"))


def draw(results: Results) -> str:
    """The picture as SVG text, the same every time."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    by_dataset = curves(results)
    style = {
        "svg.hashsalt": "graphcaps",
        "svg.fonttype": "none",
        "font.size": 8.5,
        "path.simplify": False,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(11, 7.4))
        FigureCanvasSVG(figure)
        axes = figure.subplots(3, 4).ravel()
        figure.subplots_adjust(0.06, 0.07, 0.99, 0.96, 0.24, 0.26)  # fixed: a layout engine takes seconds
        for ax, name in zip(axes, paper_datasets(), strict=False):
            ours = results.estimate(name, "hgcn", "C")
            _panel(ax, name, by_dataset.get(name, {}), None if ours is None else ours.mean)
        _legend(axes[len(paper_datasets())])
        figure.supxlabel("epoch", fontsize=9, y=0.01)
        figure.supylabel("test accuracy, %", fontsize=9, x=0.01)
        text = io.StringIO()
        description = f"numbers sha256 {digest(by_dataset)}"
        figure.savefig(text, format="svg", metadata={"Date": None, "Description": description})
    return re.sub(r"[ \t]+\n", "\n", text.getvalue())


def _panel(ax: Any, name: str, by_protocol: dict[str, Curve], ours: float | None) -> None:
    """One data set; ``ours`` is our C."""
    paper = published_hgcn(name, "C").mean
    ax.set_title(name, fontsize=9.5)
    ax.axhline(paper, color="#444444", linestyle=":", linewidth=1)
    if ours is not None:
        ax.axhline(ours, color=_COLOUR["paper"], linestyle="--", linewidth=0.8)
    if not by_protocol:
        ax.text(0.5, 0.4, "not measured", transform=ax.transAxes, ha="center")
        return
    late = [np.array(curve.mean)[len(curve.mean) // 10 :] for curve in by_protocol.values()]
    low = max(min(float(part.min()) for part in late), paper - 16)
    high = max(paper, ours or 0.0, *(float(part.max()) for part in late))
    height = high - low
    bottom = low - 0.22 * height
    for index, (protocol, curve) in enumerate(by_protocol.items()):
        colour, mean, spread = _COLOUR[protocol], np.array(curve.mean), np.array(curve.spread)
        ax.fill_between(curve.epochs, mean - spread, mean + spread, color=colour, alpha=0.22, linewidth=0)
        ax.plot(curve.epochs, mean, color=colour, linewidth=1.1)
        # One path for all marks: a line with gaps.
        foot = bottom + (0.02 + 0.075 * index) * height
        ticks = np.array([[epoch, epoch, np.nan] for epoch in curve.chosen]).ravel()
        heights = np.tile([foot, foot + 0.06 * height, np.nan], len(curve.chosen))
        ax.plot(ticks, heights, color=colour, linewidth=0.8)
    ax.set_ylim(bottom, high + 0.08 * height)
    ax.set_xlim(0, max(curve.epochs[-1] for curve in by_protocol.values()))
    ax.tick_params(length=2)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _legend(ax: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ax.axis("off")
    lines: list[Any] = [
        Line2D([], [], color=_COLOUR[p], linewidth=1.4, label=_LABEL[p]) for p in reversed(PROTOCOLS)
    ]
    band = Patch(color="#888888", alpha=0.4, label="± std over seeds")
    marks = Line2D([], [], color="#444444", marker="|", linestyle="", label="chosen epochs, by colour")
    dotted = Line2D([], [], color="#444444", linestyle=":", label="published C")
    dashed = Line2D([], [], color=_COLOUR["paper"], linestyle="--", linewidth=0.8, label="our C")
    ax.legend(handles=[*lines, band, marks, dotted, dashed], loc="center", frameon=False, fontsize=8.5)
