"""Writes docs/defaults.md: the words of defaults_page.md beside this file, and the figures.

    python benchmarks/defaults_page.py

Every figure is computed from results/choosing, results/defaults*.json (-first: the default before this one; -beyond:
data sets that are not the paper's), results/planted_networks.json, results/reproduction and results/edge-labels;
nothing is typed in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from choose_defaults import CHOSEN, MEASURED_BEFORE, PATIENCES, judge
from default_held_out import paper_preset
from held_out_curves import held_out_curves
from page_table import table

from graphcaps.evaluation.epoch_records import LOSS_STEP, EpochRecords
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.reproduction.published import paper_datasets

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "defaults.md"
CAP, PATIENCE = 300, 50
SHORT = {"IMDB-BINARY": "IMDB-B", "IMDB-MULTI": "IMDB-M", "REDDIT-BINARY": "REDDIT", "PTC_MR": "PTC"}
OTHERS, OWN = "temperature, other folds", "temperature, own hold-out"
ASKED = ("NCI1", "PROTEINS")
LEVELS = {"easy": "planted-parts", "medium": "planted-parts-medium", "hard": "planted-parts-hard"}
Row = Mapping[str, Any]

WORDS = (Path(__file__).parent / "defaults_page.md").read_text("utf-8")


def losses_of(rows: Sequence[Row]) -> dict[str, dict[tuple[str, int], float]]:
    """Validation loss by candidate, and by data set and cap of epochs, under the patience of the classifier."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for row in rows:
        if row["patience"] == PATIENCE and row["cap"] <= CAP:
            found.setdefault(row["candidate"], {})[row["dataset"], row["cap"]] = row["validation loss"]
    return found


def seed_losses(trained: Sequence[EpochRecords], cap: int, patience: int | None) -> np.ndarray:
    """The same, seed by seed, of trainings that were kept."""
    told = []
    for curves in trained:
        loss = LOSS_STEP * np.asarray(curves.validation_loss)
        told.append(judge(loss, np.asarray(curves.validation_accuracy), cap, patience)["validation loss"])
    return np.asarray(told)


def paper_losses(cap: int, patience: int | None) -> dict[str, float]:
    """The same of the paper's presets, mean over their seeds."""
    store = ResultsStore(RESULTS / "reproduction")
    return {
        name: float(seed_losses(held_out_curves(store, name), cap, patience).mean())
        for name in paper_datasets()
    }


def chance() -> str:
    """How much a seed alone changes the loss of the default, where it was trained with several."""
    store, spread = ResultsStore(RESULTS / "choosing"), {}
    for name in paper_datasets():
        losses = seed_losses(held_out_curves(store, name, CHOSEN.on(name).name), CAP, PATIENCE)
        if len(losses) > 1:
            spread[name] = 100 * losses.std(ddof=1) / losses.mean()
    return ", ".join(f"{value:.1f} % on {name}" for name, value in spread.items())


def choosing(losses: Mapping[str, Mapping[tuple[str, int], float]]) -> tuple[str, str]:
    """The candidates that were trained everywhere, and the rest, all by their ratios to the paper's presets."""
    names = paper_datasets()
    paper = {cap: paper_losses(cap, PATIENCE) for cap in {cap for own in losses.values() for _, cap in own}}
    notes = {CHOSEN.name: "**{}** (the default)", MEASURED_BEFORE.name: "{} (the first default)"}
    rows, others = [], []
    for candidate, own in losses.items():
        shown = candidate.replace(",", ", ")  # so that a browser can break it
        cap = max(each for _, each in own)
        ratios = {name: loss / paper[cap][name] for (name, each), loss in own.items() if each == cap}
        judged = [f"{np.exp(np.mean(np.log([*ratios.values()]))):.3f}", f"{max(ratios.values()):.3f}"]
        if len(ratios) == len(names):
            figures = (f"{own[name, CAP]:.4f}" for name in names)
            rows.append([notes.get(candidate, "{}").format(shown), *judged, *figures])
        else:
            told = ", ".join(f"{SHORT.get(name, name)} {ratio:.2f}" for name, ratio in ratios.items())
            others.append([shown, *judged, told])
    whole = paper_losses(1000, None)
    for label, figures in (("*paper presets*", paper[CAP]), ("*paper presets, all epochs*", whole)):
        each = [figures[name] / paper[CAP][name] for name in names]
        mean, worst = np.exp(np.mean(np.log(each))), max(each)
        rows.append([label, f"{mean:.3f}", f"{worst:.3f}", *(f"{figures[name]:.4f}" for name in names)])
    head = ["candidate", "mean", "worst"]
    return (
        table([*head, *(SHORT.get(name, name) for name in names)], rows),
        table([*head, "by data set"], others),
    )


def patiences(rows: Sequence[Row]) -> str:
    """What ending early costs the default, and what it saves."""
    own = {(r["patience"], r["dataset"]): r for r in rows if (r["candidate"], r["cap"]) == (CHOSEN.name, CAP)}
    lines = []
    for patience in PATIENCES:
        of = [(own[patience, name], own[None, name]) for name in paper_datasets()]
        above = 100 * np.mean([one["validation loss"] / full["validation loss"] - 1 for one, full in of])
        epochs = np.mean([one["epochs"] for one, _ in of])
        lines.append([str(patience or "none"), f"{above:.1f} %", f"{epochs:.0f}"])
    return table(["patience", "loss above", "epochs"], lines)


def accuracies(rows: Sequence[Row], name: str) -> list[float]:
    return [row["accuracy"] for row in rows if row["dataset"] == name]


def reached(rows: Sequence[Row], before: Sequence[Row]) -> tuple[str, dict[str, float], dict[str, float]]:
    """Accuracies beside the paper presets', and by how much the default and the first default are above them."""
    lines, differences, first = [], {}, {}
    for name in paper_datasets():
        own, theirs = accuracies(rows, name), paper_preset(name, RESULTS / "reproduction")
        differences[name] = float(np.mean(own) - np.mean(theirs))
        first[name] = float(np.mean(accuracies(before, name)) - np.mean(theirs))
        shown = (f"{np.mean(v):.2f} ± {np.std(v, ddof=1):.2f}" for v in (own, theirs))
        lines.append([name, *shown, f"{differences[name]:+.2f}", f"{first[name]:+.2f}"])
    head = ["data set", "default", "paper preset", "difference", "difference of the first default"]
    return table(head, lines), differences, first


def beyond(rows: Sequence[Row], before: Sequence[Row]) -> str:
    """The embedded data sets, which decided nothing, beside the preset that was written for them."""
    networks = json.loads((RESULTS / "planted_networks.json").read_text("utf-8"))["rows"]
    lines = []
    for level, name in LEVELS.items():
        (own_preset,) = [row for row in networks if (row["level"], row["model"]) == (level, "HGCN")]
        both = [accuracies(each, name) for each in (rows, before)]
        shown = [f"{np.mean(v):.1f} ± {np.std(v, ddof=1):.1f}" for v in both]
        lines.append([name, *shown, f"{own_preset['accuracy']:.1f} ± {own_preset['std_seeds']:.1f}"])
    return table(["data set", "default", "first default", "preset `planted-parts`"], lines)


def seeds_of(rows: Sequence[Row]) -> int:
    (count,) = {len(accuracies(rows, name)) for name in paper_datasets()}
    return count


def probabilities(rows: Sequence[Row]) -> str:
    ways, figures = ("before", OTHERS, OWN), ("ece", "log_loss", "brier")
    lines = []
    for name in paper_datasets():
        own = [row["probabilities"] for row in rows if row["dataset"] == name]
        means = ((figure, np.mean([each[way][figure] for each in own])) for figure in figures for way in ways)
        lines.append([name, *(f"{value:.3f}" for _, value in means)])
    head = ["data set"]
    for figure in ("ECE", "log loss", "Brier"):
        head += [f"{figure}, before", "after", "own"]
    return table(head, lines)


def asked(rows: Sequence[Row]) -> str:
    """The target that was set for two data sets, seed by seed."""
    found = []
    for name in ASKED:
        own = [row["probabilities"] for row in rows if row["dataset"] == name]
        worst = max(each[OTHERS]["ece"] for each in own)
        no_worse = all(each[OTHERS][f] <= each["before"][f] for each in own for f in ("log_loss", "brier"))
        kept = "no worse than before" if no_worse else "not always as low as before"
        found.append(f"{name}: at most {worst:.3f} in every seed, log loss and Brier score {kept}")
    return f"The aim is an ECE below 0.05 after calibration on two sets. {'. '.join(found)}."


def rises(rows: Sequence[Row]) -> str:
    """Where a calibration made something worse, or left it high; in the mean over seeds."""

    def mean(name: str, way: str, figure: str) -> float:
        return float(np.mean([r["probabilities"][way][figure] for r in rows if r["dataset"] == name]))

    said = []
    for way, words in ((OTHERS, "after"), (OWN, "own")):
        for figure, label in (("ece", "ECE"), ("log_loss", "log loss")):
            worse = [n for n in paper_datasets() if mean(n, way, figure) > mean(n, "before", figure) + 0.0005]
            said += [f"The {label} of *{words}* is above *before* on {', '.join(worse)}."] if worse else []
    high = [name for name in paper_datasets() if mean(name, OTHERS, "ece") >= 0.05]
    if high:
        said.append(f"Above 0.05 stay {', '.join(high)}: with so few graphs much of that is chance.")
    return " ".join(said)


def page() -> str:
    summary = json.loads((RESULTS / "choosing" / "summary.json").read_text("utf-8"))
    measured, first_measured, others_measured, others_first = (
        json.loads((RESULTS / f"defaults{which}.json").read_text("utf-8"))
        for which in ("", "-first", "-beyond", "-beyond-first")
    )
    rows, before = measured["rows"], first_measured["rows"]
    edges = json.loads((RESULTS / "edge-labels" / "summary.json").read_text("utf-8"))
    losses, others = choosing(losses_of(summary["rows"]))
    accuracy, differences, first = reached(rows, before)
    far = [f"{name} {value:+.2f}" for name, value in differences.items() if value < -1]
    told = [row for row in edges["rows"] if row["p"] < 0.05]
    return WORDS.format(
        cap=CAP,
        patience=PATIENCE,
        losses=losses,
        first=sum(value >= -1 for value in first.values()),
        first_seeds=seeds_of(before),
        others=others,
        chance=chance(),
        patiences=patiences(summary["rows"]),
        command=measured["command"],
        hardware=rows[0]["hardware"],
        reached=accuracy,
        near=sum(value >= -1 for value in differences.values()),
        count=len(differences),
        told=f"Further below it: {', '.join(far)}. The aim is nine." if far else "",
        seeds=seeds_of(rows),
        beyond=beyond(others_measured["rows"], others_first["rows"]),
        beyond_command=others_measured["command"],
        probabilities=probabilities(rows),
        asked=asked(rows),
        rises=rises(rows),
        edge_command=edges["command"],
        edges=table(
            ["data set", "with", "without", "difference", "95 % interval", "p"],
            [
                [
                    row["dataset"],
                    f"{row['with']:.2f} ± {row['with, deviation over seeds']:.2f}",
                    f"{row['without']:.2f}",
                    f"{row['difference']:+.2f}",
                    f"{row['interval'][0]:+.2f} to {row['interval'][1]:+.2f}",
                    f"{row['p']:.2f}",
                ]
                for row in edges["rows"]
            ],
        ),
        edge_told="" if told else "No difference is told apart from chance: they stay off by default.",
    )


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
