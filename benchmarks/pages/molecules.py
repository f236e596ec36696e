"""Tables of ``docs/molecules.md``, from the files of ``results/molecules``."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure_molecule_candidates import OUT as CANDIDATES
from benchmarks.measure_molecules import OUT, RUNS, Candidate, read_rows, read_runs
from benchmarks.pages.markdown import join_names, mean_std, replace_sections, table
from graphcaps.evaluation.statistics import corrected_t_test

PRESET = "atoms, bond messages, decay 0.001"  # candidate that became the preset
SPLIT_RATIO = 1 / 8
"""Test molecules divided by training molecules of a scaffold split, 10 % by 80 %."""
NAMES = {"bace": "BACE", "bbbp": "BBBP", "hiv": "HIV"}


def page(root: Path) -> str:
    """The page with its tables replaced; ``root`` is the root of the repository."""
    with (root / CANDIDATES).open(encoding="utf-8", newline="") as file:
        candidates = list(csv.DictReader(file))
    runs = read_runs(root / RUNS)
    sections = {
        "seconds": seconds_table(runs),
        "candidates-hiv": area_table([run for run in runs if run["dataset"] == "hiv"]),
        "scaffold": scaffold_table(read_rows(root / OUT)),
        "candidates-1": candidate_table(candidates, seeds=1),
        "candidates-2": candidate_table(candidates, seeds=2),
    }
    return replace_sections((root / "docs" / "molecules.md").read_text("utf-8"), sections)


def statements(root: Path) -> list[str]:
    """Numbers that the sentences of the page contain."""
    rows = read_rows(root / OUT)
    hiv = {
        model: [row for row in rows if (row["dataset"], row["model"]) == ("hiv", model)]
        for model in ("hgcn", "ecfp-forest")
    }
    areas = [f"{float(row['roc_auc']):.3f}" for row in hiv["ecfp-forest"]]
    balanced = [
        f"{np.mean([float(row['balanced_accuracy']) for row in found]):.2f}" for found in hiv.values()
    ]
    accuracies = [f"{np.mean([float(row['accuracy']) for row in found]):.3f}" for found in hiv.values()]
    with (root / CANDIDATES).open(encoding="utf-8", newline="") as file:
        candidates = list(csv.DictReader(file))
    means = [candidate_means(candidates, seeds)[PRESET] for seeds in (1, 2)]
    return [
        active_molecules(rows),
        f"is {join_names(areas)} under the seeds",
        f"({' against '.join(balanced)})",
        f"({' against '.join(accuracies)})",
        f"has {means[0]:.4f} with one seed and {means[1]:.4f} with two",
    ]


def scaffold_table(rows: list[dict[str, str]]) -> str:
    """Mean ± standard deviation over scaffold splits, a row per data set and model that was measured."""
    cells = []
    for name, title in NAMES.items():
        models = sorted({row["model"] for row in rows if row["dataset"] == name})
        for model in models:
            chosen = [row for row in rows if (row["dataset"], row["model"]) == (name, model)]
            values = {
                key: _mean_std([float(row[key]) for row in chosen])
                for key in ("roc_auc", "pr_auc", "accuracy")
            }
            cells.append((title, model, f"{len(chosen)}", *values.values()))
    return table(("data set", "model", "splits", "ROC-AUC", "PR-AUC", "accuracy"), cells)


def active_molecules(rows: Sequence[Mapping[str, str]]) -> str:
    """HGCN's PR-AUC on HIV is lower than the forest's on all splits: p of the corrected paired test over splits."""
    hgcn, forest = (
        [float(row["pr_auc"]) for row in rows if (row["dataset"], row["model"]) == ("hiv", model)]
        for model in ("hgcn", "ecfp-forest")
    )
    test = corrected_t_test(np.array(hgcn), np.array(forest), SPLIT_RATIO)
    is_lower = all(one < other for one, other in zip(hgcn, forest, strict=True))
    lower = "lower on all three splits" if is_lower and len(hgcn) == 3 else "not lower on all splits"
    significant = "is" if test.p < 0.05 else "is not"
    return f"{lower}, which {significant} significant (p = {test.p:.2f}"


def seconds_table(runs: list[dict[str, Any]]) -> str:
    """Seconds to read a set, to train the selected candidate on all splits at once, and to predict all molecules.

    Committees are left out: their trainings shared the GPU with others.
    """
    cells = [
        (
            NAMES[run["dataset"]],
            f"{run['graphs']:,}",
            f"{run['seconds']['read']:.0f}",
            f"{len(run['split_seeds'])}",
            f"{run['seconds']['train']:.0f}",
            f"{run['seconds']['predict']:.1f}",
        )
        for run in runs
        if run.get("members", 1) == 1
    ]
    return table(("data set", "molecules", "read, s", "splits", "train, s", "predict, s"), cells)


def area_table(runs: list[dict[str, Any]]) -> str:
    """Mean validation ROC-AUC of the candidates of a set, highest first."""
    cells = []
    for run in runs:
        for each in sorted(run["candidates"], key=lambda each: -each["validation_roc_auc"]):
            settings = Candidate(*(each[name] for name in run["candidate"]))
            cells.append((settings.title, f"{each['validation_roc_auc']:.3f}", f"{each['seconds']:.0f}"))
    return table(("candidate", "validation ROC-AUC", "seconds"), cells)


def candidate_table(rows: list[dict[str, str]], seeds: int) -> str:
    """Validation losses of the candidates for the preset ``molecules``, lowest mean of BACE and BBBP first.

    Args:
        rows (list): Lines of ``candidates.csv``.
        seeds (int): Number of training seeds; only candidates with as many are listed.
    """
    losses, means = candidate_losses(rows, seeds), candidate_means(rows, seeds)
    datasets = [
        name for name in ("bace", "bbbp", "MUTAG", "PTC_MR") if any(name in loss for loss in losses.values())
    ]
    cells = [
        (
            name,
            f"{means[name]:.4f}",
            *(f"{losses[name][key]:.4f}" if key in losses[name] else "" for key in datasets),
        )
        for name in sorted(losses, key=lambda name: (means[name], name))
    ]
    return table(("candidate", "mean", *(NAMES.get(name, name) for name in datasets)), cells)


def candidate_losses(rows: list[dict[str, str]], seeds: int) -> dict[str, dict[str, float]]:
    """Validation losses of the candidates with so many seeds, by data set."""
    losses: dict[str, dict[str, float]] = {}
    for row in rows:
        if int(row["seeds"]) == seeds:
            losses.setdefault(row["candidate"], {})[row["dataset"]] = float(row["validation_loss"])
    return losses


def candidate_means(rows: list[dict[str, str]], seeds: int) -> dict[str, float]:
    """Geometric means of the losses of BACE and BBBP."""
    losses = candidate_losses(rows, seeds)
    return {name: math.sqrt(loss["bace"] * loss["bbbp"]) for name, loss in losses.items()}


def _mean_std(values: list[float]) -> str:
    return mean_std(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, 3)
