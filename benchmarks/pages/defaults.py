"""``docs/defaults.md``: selection, accuracy and calibration of the default preset, from stored results.

Reads ``results/choosing``, ``results/defaults*.json`` (``-first``: candidate †; ``-beyond``: the planted parts),
``results/planted_networks.json``, ``results/reproduction``, ``results/edge-labels`` and ``results/context``.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.held_out_curves import held_out_curves
from benchmarks.measure_context import BASE, TABLE
from benchmarks.measure_default_candidates import (
    CANDIDATES_FILE,
    CHOSEN,
    MEASURED_BEFORE,
    PATIENCES,
    judge,
    kept,
    read_summary,
)
from benchmarks.measure_defaults import paper_preset
from benchmarks.pages.markdown import fill_template, fixed, join_names, mean_std, signed, table
from graphcaps.evaluation.epoch_records import LOSS_STEP, EpochRecords
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.evaluation.statistics import fold_ratio
from graphcaps.reproduction.published import paper_datasets
from graphcaps.training.early_stopping import WINDOW

CAP, PATIENCE = 300, 50
SHORT = {"IMDB-BINARY": "IMDB-B", "IMDB-MULTI": "IMDB-M", "REDDIT-BINARY": "REDDIT", "PTC_MR": "PTC"}
OTHER_FOLDS, VALIDATION = "temperature, other folds", "temperature, own hold-out"  # keys of the records
FOLDS = 10
CORRECTION = math.sqrt(1 + FOLDS * fold_ratio(FOLDS))
"""Standard error of a mean over folds by Nadeau and Bengio, divided by that of independent folds."""
LEVELS = {"easy": "planted-parts", "medium": "planted-parts-medium", "hard": "planted-parts-hard"}
Row = Mapping[str, Any]


def losses_of(rows: Sequence[Row]) -> dict[str, dict[tuple[str, int], float]]:
    """Validation loss by candidate, data set and maximal number of epochs, with the patience of the classifier."""
    losses: dict[str, dict[tuple[str, int], float]] = {}
    for row in rows:
        if row["patience"] == PATIENCE and row["cap"] <= CAP:
            losses.setdefault(row["candidate"], {})[row["dataset"], row["cap"]] = row["validation loss"]
    return losses


def seed_losses(trained: Sequence[EpochRecords], cap: int, patience: int | None) -> np.ndarray:
    """Validation loss of stored trainings, for every seed."""
    losses = []
    for curves in trained:
        loss = LOSS_STEP * np.asarray(curves.validation_loss)
        losses.append(judge(loss, np.asarray(curves.validation_accuracy), cap, patience)["validation loss"])
    return np.asarray(losses)


def paper_losses(results: Path, cap: int, patience: int | None) -> dict[str, float]:
    """Validation loss of the paper's presets, mean over seeds."""
    store = ResultsStore(results / "reproduction")
    return {
        name: float(seed_losses(held_out_curves(store, name), cap, patience).mean())
        for name in paper_datasets()
    }


def seed_spread(results: Path) -> str:
    """Standard deviation of the default's loss over seeds, on the data sets with several."""
    store, spread = ResultsStore(results / "choosing"), {}
    for name in paper_datasets():
        losses = seed_losses(held_out_curves(store, name, CHOSEN.on(name).name), CAP, PATIENCE)
        if len(losses) > 1:
            spread[name] = 100 * losses.std(ddof=1) / losses.mean()
    return ", ".join(f"{value:.1f} % on {name}" for name, value in spread.items())


def candidates(results: Path, losses: Mapping[str, Mapping[tuple[str, int], float]]) -> tuple[str, str]:
    """Tables of the candidates trained on all data sets and of the others, with ratios to the paper's presets."""
    names = paper_datasets()
    paper = {
        cap: paper_losses(results, cap, PATIENCE)
        for cap in {cap for candidate_losses in losses.values() for _, cap in candidate_losses}
    }
    notes = {CHOSEN.name: "**{}** (the default)", MEASURED_BEFORE.name: "{} †"}
    rows, others = [], []
    for candidate, candidate_losses in losses.items():
        shown = candidate.replace(",", ", ")  # so that a browser can break it
        cap = max(each for _, each in candidate_losses)
        ratios = {
            name: loss / paper[cap][name] for (name, each), loss in candidate_losses.items() if each == cap
        }
        judged = [f"{np.exp(np.mean(np.log([*ratios.values()]))):.3f}", f"{max(ratios.values()):.3f}"]
        if len(ratios) == len(names):
            values = (f"{candidate_losses[name, CAP]:.4f}" for name in names)
            rows.append([notes.get(candidate, "{}").format(shown), *judged, *values])
        else:
            by_name = ", ".join(f"{SHORT.get(name, name)} {ratio:.2f}" for name, ratio in ratios.items())
            others.append([shown, *judged, by_name])
    all_epochs = paper_losses(results, 1000, None)
    for label, values in (("*paper presets*", paper[CAP]), ("*paper presets, all epochs*", all_epochs)):
        each = [values[name] / paper[CAP][name] for name in names]
        mean, worst = np.exp(np.mean(np.log(each))), max(each)
        rows.append([label, f"{mean:.3f}", f"{worst:.3f}", *(f"{values[name]:.4f}" for name in names)])
    head = ["candidate", "mean", "worst"]
    return (
        table([*head, *(SHORT.get(name, name) for name in names)], rows),
        table([*head, "by data set"], others),
    )


def patiences(rows: Sequence[Row]) -> str:
    """Increase of the loss and epochs trained, for several patiences."""
    by_patience = {
        (r["patience"], r["dataset"]): r for r in rows if (r["candidate"], r["cap"]) == (CHOSEN.name, CAP)
    }
    lines = []
    for patience in PATIENCES:
        of = [(by_patience[patience, name], by_patience[None, name]) for name in paper_datasets()]
        above = 100 * np.mean([one["validation loss"] / full["validation loss"] - 1 for one, full in of])
        epochs = np.mean([one["epochs"] for one, _ in of])
        lines.append([str(patience or "none"), f"{above:.1f} %", f"{epochs:.0f}"])
    return table(["patience", "increase of the loss", "epochs"], lines)


def accuracies(rows: Sequence[Row], name: str) -> list[float]:
    """Accuracy of every seed on a data set."""
    return [row["accuracy"] for row in rows if row["dataset"] == name]


def accuracy_table(
    results: Path, rows: Sequence[Row], marked: Sequence[Row]
) -> tuple[str, dict[str, float], dict[str, float]]:
    """Accuracies of default and paper preset; differences of the default and of the candidate †."""
    lines, differences, of_marked = [], {}, {}
    for name in paper_datasets():
        ours, paper = accuracies(rows, name), paper_preset(name, results / "reproduction")
        differences[name] = float(np.mean(ours) - np.mean(paper))
        of_marked[name] = float(np.mean(accuracies(marked, name)) - np.mean(paper))
        shown = (mean_std(np.mean(v), np.std(v, ddof=1)) for v in (ours, paper))
        lines.append([name, *shown, signed(differences[name]), signed(of_marked[name])])
    head = ["data set", "default", "paper preset", "difference", "difference of †"]
    return table(head, lines), differences, of_marked


def trailing_accuracy(curves: EpochRecords) -> float:
    """Mean accuracy in percent of a stored training with epochs selected as ``train`` selects them."""
    losses = LOSS_STEP * np.asarray(curves.validation_loss)
    epochs = [kept(fold, len(fold), None)[0] for fold in losses]
    right = [of_fold[epoch - 1] for of_fold, epoch in zip(curves.test_right, epochs, strict=True)]
    return 100 * float(np.mean(np.asarray(right) / curves.test_graphs))


def rule_differences(results: Path) -> str:
    """What the other rule of selection changes in the accuracy of the paper's presets, where it is half a point."""
    store, changes = ResultsStore(results / "reproduction"), {}
    for name in paper_datasets():
        trailing = np.mean([trailing_accuracy(curves) for curves in held_out_curves(store, name)])
        changes[name] = float(trailing - np.mean(paper_preset(name, results / "reproduction")))
    large = {name: value for name, value in changes.items() if abs(value) >= 0.5}
    rest = max(abs(value) for name, value in changes.items() if name not in large)
    shown = join_names(f"{name} ({signed(value)})" for name, value in large.items())
    return f"changes the paper's presets on {shown}, and on the others by at most {fixed(rest)}"


def beyond_seeds(results: Path, rows: Sequence[Row]) -> str:
    """On which data sets default and paper preset differ by more than the variation over seeds explains."""
    lower, higher = [], []
    for name in paper_datasets():
        both = np.asarray(accuracies(rows, name)), np.asarray(paper_preset(name, results / "reproduction"))
        error = np.sqrt(sum(values.var(ddof=1) / len(values) for values in both))
        difference = both[0].mean() - both[1].mean()
        if abs(difference) > 2 * error:
            (lower if difference < 0 else higher).append(name)
    return (
        "On these folds the difference is more than twice its standard error over seeds on "
        f"{join_names(lower)} (the default is lower) and on {join_names(higher)} (higher)."
    )


def planted_networks(results: Path) -> list[Row]:
    """The preset written for the planted parts, a row per level."""
    rows = json.loads((results / "planted_networks.json").read_text("utf-8"))["rows"]
    return [row for row in rows if row["model"] == "HGCN"]


def planted_table(results: Path, rows: Sequence[Row], marked: Sequence[Row]) -> str:
    """Accuracy on the planted parts, of default, candidate † and the preset written for them."""
    lines = []
    for level, name in LEVELS.items():
        (own_preset,) = [row for row in planted_networks(results) if row["level"] == level]
        both = [accuracies(each, name) for each in (rows, marked)]
        shown = [mean_std(np.mean(v), np.std(v, ddof=1), 1) for v in both]
        lines.append([name, *shown, mean_std(own_preset["accuracy"], own_preset["std_seeds"], 1)])
    return table(["data set", "default", "candidate †", "preset `planted-parts`"], lines)


def epochs_of(rows: Sequence[Row]) -> str:
    """Largest number of epochs of trainings."""
    (epochs,) = {row["config"]["training"]["epochs"] for row in rows}
    return f"{epochs} epochs"


def seeds_of(rows: Sequence[Row]) -> int:
    """Number of seeds, the same on every data set."""
    (count,) = {len(accuracies(rows, name)) for name in paper_datasets()}
    return count


def calibration_table(rows: Sequence[Row]) -> str:
    """Calibration metrics before and after temperature scaling, mean over seeds."""
    ways, metrics = ("before", OTHER_FOLDS, VALIDATION), ("ece", "log_loss", "brier")
    lines = []
    for name in paper_datasets():
        dataset_rows = [row["probabilities"] for row in rows if row["dataset"] == name]
        means = (
            (metric, np.mean([each[way][metric] for each in dataset_rows]))
            for metric in metrics
            for way in ways
        )
        lines.append([name, *(f"{value:.3f}" for _, value in means)])
    head = ["data set"]
    for metric in ("ECE", "log loss", "Brier"):
        head += [f"{metric}, before", "after", "validation"]
    return table(head, lines)


def calibration_of_seeds(rows: Sequence[Row]) -> str:
    """The largest calibration error of any seed on two data sets, and whether the other metrics fall."""
    sentences = []
    for name in ("NCI1", "PROTEINS"):
        dataset_rows = [row["probabilities"] for row in rows if row["dataset"] == name]
        worst = max(each[OTHER_FOLDS]["ece"] for each in dataset_rows)
        no_worse = all(
            each[OTHER_FOLDS][f] <= each["before"][f] for each in dataset_rows for f in ("log_loss", "brier")
        )
        others = "never higher than before" if no_worse else "not always as low as before"
        sentences.append(
            f"On {name} the ECE *after* is at most {worst:.3f} with every seed; log loss and Brier score are {others}."
        )
    return " ".join(sentences)


def rises(rows: Sequence[Row]) -> str:
    """Data sets on which calibration increases a metric or leaves it high, in the mean over seeds."""

    def mean(name: str, way: str, metric: str) -> float:
        return float(np.mean([r["probabilities"][way][metric] for r in rows if r["dataset"] == name]))

    sentences = []
    for way, words in ((OTHER_FOLDS, "after"), (VALIDATION, "validation")):
        for metric, label in (("ece", "ECE"), ("log_loss", "log loss")):
            worse = [n for n in paper_datasets() if mean(n, way, metric) > mean(n, "before", metric) + 0.0005]
            sentences += (
                [f"The {label} of *{words}* is above *before* on {', '.join(worse)}."] if worse else []
            )
    high = [name for name in paper_datasets() if mean(name, OTHER_FOLDS, "ece") >= 0.05]
    if high:
        sentences.append(
            f"The ECE *after* is above 0.05 on {', '.join(high)}; with so few graphs much of that is chance."
        )
    return " ".join(sentences)


def context_values(results: Path) -> dict[str, str]:
    """Validation losses of kinds of context and of parts, as differences from the default in percent.

    The file has the standard errors of independent folds; they are corrected for training graphs that folds share.
    """
    with (results / "context" / TABLE).open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["candidate"] != BASE]
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        value = float(row["difference in %"]), CORRECTION * float(row["standard error in %"])
        found.setdefault(row["candidate"], {})[row["dataset"]] = value
    names = [name for name in paper_datasets() if any(name in each for each in found.values())]
    lines, sentences = [], []
    for candidate, values in sorted(found.items(), key=lambda item: mean_difference(item[1])):
        shown = (
            f"{values[name][0]:+.1f} ± {values[name][1]:.1f}" if name in values else "–" for name in names
        )
        lower = sum(difference < 0 for difference, _ in values.values())
        clearly = sum(difference < -2 * error for difference, error in values.values())
        lines.append([f"`{candidate}`", f"{mean_difference(values):+.1f}", *shown])
        sentences.append(
            f"`{candidate}` lowers the loss on {lower} of {len(values)} data sets, "
            f"by more than two standard errors on {clearly}."
        )
    (seeds,) = {row["seeds"] for row in rows}
    return {
        "context": table(["candidate", "mean", *(SHORT.get(name, name) for name in names)], lines),
        "context_lower": " ".join(sentences),
        "context_seeds": "one seed" if seeds == "1" else f"{seeds} seeds",
    }


def mean_difference(values: Mapping[str, tuple[float, float]]) -> float:
    """Mean over data sets of the differences of a candidate."""
    return float(np.mean([difference for difference, _ in values.values()]))


def page(root: Path) -> str:
    """The page; ``root`` is the root of the repository."""
    results = root / "results"
    summary = read_summary(results / "choosing" / CANDIDATES_FILE)
    measured, marked, others_measured, others_marked = (
        json.loads((results / f"defaults{which}.json").read_text("utf-8"))
        for which in ("", "-first", "-beyond", "-beyond-first")
    )
    rows = measured["rows"]
    edges = json.loads((results / "edge-labels" / "comparison.json").read_text("utf-8"))
    losses, others = candidates(results, losses_of(summary))
    accuracy, differences, of_marked = accuracy_table(results, rows, marked["rows"])
    far = [f"{name} ({signed(value)})" for name, value in differences.items() if value < -1]
    significant = [row for row in edges["rows"] if row["p"] < 0.05]
    edge_rows = [
        [
            row["dataset"],
            mean_std(row["with"], row["with, deviation over seeds"]),
            f"{row['without']:.2f}",
            f"{row['difference']:+.2f}",
            f"{row['interval'][0]:+.2f} to {row['interval'][1]:+.2f}",
            f"{row['p']:.2f}",
        ]
        for row in edges["rows"]
    ]
    values = {
        "cap": f"{CAP}",
        "patience": f"{PATIENCE}",
        "losses": losses,
        "float32": join_names(
            name
            for name in paper_datasets()
            if {row["config"]["training"]["precision"] for row in rows if row["dataset"] == name}
            == {"float32"}
        ),
        "default_epochs": f"up to {epochs_of(others_measured['rows'])}",
        "planted_epochs": epochs_of(planted_networks(results)),
        "others": others,
        "chance": seed_spread(results),
        "patiences": patiences(summary),
        "command": measured["command"],
        "hardware": rows[0]["hardware"],
        "accuracy": accuracy,
        "near": f"{sum(value >= -1 for value in differences.values())}",
        "count": f"{len(differences)}",
        "beyond_seeds": beyond_seeds(results, rows),
        "far": f"It is further below on {join_names(far)}. " if far else "",
        "seeds": f"{seeds_of(rows)}",
        "near_marked": f"{sum(value >= -1 for value in of_marked.values())}",
        "seeds_marked": f"{seeds_of(marked['rows'])}",
        "window": f"{WINDOW}",
        "rule": rule_differences(results),
        "beyond": planted_table(results, others_measured["rows"], others_marked["rows"]),
        "beyond_command": others_measured["command"],
        "probabilities": calibration_table(rows),
        "calibrated": calibration_of_seeds(rows),
        "rises": rises(rows),
        "edge_command": edges["command"],
        "edges": table(["data set", "with", "without", "difference", "95 % interval", "p"], edge_rows),
        **context_values(results),
        "edge_result": "" if significant else "No difference is significant; edge labels are off by default.",
    }
    return fill_template("defaults", values)
