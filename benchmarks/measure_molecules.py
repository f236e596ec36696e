"""Metrics of a model on seeded scaffold splits of public molecule sets, with the times to read, train and predict.

    python -m benchmarks.measure_molecules --root FOLDER --sets bace bbbp --model ecfp-forest
    python -m benchmarks.molecule_arrays DIR --root FOLDER
    python -m benchmarks.measure_molecules --arrays DIR --sets bace bbbp hiv --device cuda --out OUT
    python -m benchmarks.measure_molecules --root FOLDER --sets bace bbbp --members 5 --together 1 --out OUT
    python -m benchmarks.measure_molecules --merge OUT/molecules.json

FOLDER holds bace.csv, bbbp.csv and hiv.csv. DIR holds their arrays, which a machine without RDKit can read. Split s is
that of ``--split scaffold --seed s``: 80, 10 and 10 % of the molecules, with the class proportions of the whole set.
All splits of a set are trained together, and validation molecules select the epoch of each. With ``--together N``, N
splits at a time; their records are kept in OUT/records, from which the same command continues, and no further splits
begin after ``--minutes``.

``--members 5`` measures committees: each seed is then a committee of five seeds (docs/committees.md).

A set may have several candidates (:data:`CANDIDATES`, or all combinations of ``--class-weight``, ``--weight-decay``,
``--epochs`` and ``--metric``). The one with the highest mean validation ROC-AUC is named, and test results are those of
this one alone. OUT gets ``molecules.json`` after every set, and ``summary.csv`` with a row per split. ``--merge`` adds
the contents of such a file to those of this repository; rows of the same data set, model and seed are replaced.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import graphcaps
from benchmarks.molecule_arrays import LABELS, MoleculeArrays, load_molecules, read_molecules
from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.evaluation.committee_results import committee_predictions
from graphcaps.evaluation.graph_predictions import PARTS, GraphPredictions
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.metrics import METRIC_TITLES, SelectionMetric, class_metrics
from graphcaps.models.lookup import is_classical
from graphcaps.presets import load_preset
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.device import choose_device
from graphcaps.training.training_inputs import prepare_inputs

METRICS = ("roc_auc", "pr_auc", "accuracy", "balanced_accuracy", "mcc")
COLUMNS = (
    "dataset",
    "model",
    "seed",
    *METRICS,
    "validation_roc_auc",
    "test_graphs",
    "seconds",
    "hardware",
    "date",
    "commit",
    "command",
)
OUT = Path("results/molecules/summary.csv")
RUNS = Path("results/molecules/molecules.json")
SPLITS = {"bace": 10, "bbbp": 10, "hiv": 3}
"""Number of scaffold splits of each set."""


@dataclass(frozen=True)
class Candidate:
    """Settings of a training; ``None`` keeps the value of the preset.

    Args:
        class_weight (str, optional): ``"balanced"``, or no weights.
        weight_decay (float, optional): Weight decay.
        epochs (int, optional): Number of epochs.
        metric (str): Metric of the validation molecules that selects the epoch.
    """

    class_weight: Literal["balanced"] | None = None
    weight_decay: float | None = None
    epochs: int | None = None
    metric: SelectionMetric = "loss"

    @property
    def title(self) -> str:
        """The settings in words: ``balanced, decay 0.0003, 150 epochs, by ROC-AUC``."""
        parts = [
            self.class_weight,
            None if self.weight_decay is None else f"decay {self.weight_decay:g}",
            None if self.epochs is None else f"{self.epochs} epochs",
            f"by {METRIC_TITLES[self.metric]}",
        ]
        return ", ".join(filter(None, parts))


CANDIDATES: dict[str, tuple[Candidate, ...]] = {
    "bace": (Candidate(),),
    "bbbp": (Candidate(),),
    # 3.5 % of the molecules are active: weights of classes and the metric matter most.
    "hiv": (
        Candidate(epochs=150),
        Candidate(epochs=150, metric="roc-auc"),
        Candidate("balanced", epochs=150),
        Candidate("balanced", epochs=150, metric="roc-auc"),
        Candidate("balanced", 0.0003, 150, "roc-auc"),
        Candidate(None, 0.0003, 150, "roc-auc"),
        Candidate("balanced", epochs=300, metric="roc-auc"),
    ),
}
"""Candidates of each set, in the order in which they are trained."""


# ---------------------------------------------------------------------- measuring
def measure(
    name: str, molecules: MoleculeArrays, candidates: Sequence[Candidate], options: argparse.Namespace
) -> dict[str, Any]:
    """Trains the candidates on the splits of a set, and scores the test molecules of the best one; JSON-safe.

    Args:
        name (str): Name of the set.
        molecules (MoleculeArrays): Graphs and splits.
        candidates (sequence): Settings; those that would begin after ``options.minutes`` are left out.
        options (Namespace): Model, preset, seeds, device, precision and the time limit.
    """
    splits = molecules.splits[: options.splits or SPLITS[name]]
    base = base_config(molecules, options)
    trained = []
    for candidate in candidates:
        if trained and is_over(options):
            print(f"{name}: {candidate.title}: not trained, {options.minutes:g} minutes are over", flush=True)
            continue
        config = base.with_training(weight_decay=candidate.weight_decay, epochs=candidate.epochs)
        began = time.perf_counter()
        kept, config = train_splits(name, molecules.store, splits, config, candidate, options)
        seconds = time.perf_counter() - began
        num_splits = int(kept[0].fold.max()) + 1
        validation = split_metrics(kept, "validation", num_splits)
        area = float(np.mean([each["roc_auc"] for each in validation]))
        trained.append((area, candidate, kept, validation, seconds, config))
        print(f"{name}: {candidate.title}: validation ROC-AUC {area:.4f} ({seconds:.1f} s)", flush=True)
    area, candidate, kept, validation, seconds, config = max(trained, key=lambda row: row[0])
    splits = splits[: len(validation)]
    test = split_metrics(kept, "test", len(splits))
    mean = np.mean([each["roc_auc"] for each in test])
    print(f"{name}: best by validation: {candidate.title}. Test ROC-AUC {mean:.4f}.", flush=True)
    device = choose_device(options.device, "measure_molecules", config.model)
    return {
        "dataset": name,
        "model": options.variant or model_title(config.model, options.members),
        "graphs": len(molecules.store),
        "split_seeds": [split.seed for split in splits],
        "seeds": options.seeds,
        "members": options.members,
        "candidate": asdict(candidate),
        "candidates": [
            asdict(each) | {"validation_roc_auc": found, "seconds": spent}
            for found, each, _, _, spent, _ in trained
        ],
        "validation": validation,
        "test": test,
        "test_graphs": [split.test.numel() for split in splits],
        "seconds": {
            "read": molecules.read_seconds,
            "train": seconds,
            "predict": predict_seconds(molecules, config, device),
        },
        "config": config.as_dict(),
        "hardware": describe_hardware(device),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": versions_and_commit().get("commit", ""),
        "command": " ".join(["python -m benchmarks.measure_molecules", *_without_paths(sys.argv[1:])]),
    }


def train_splits(
    name: str,
    store: GraphStore,
    splits: Sequence[Split],
    config: RunConfig,
    candidate: Candidate,
    options: argparse.Namespace,
) -> tuple[list[GraphPredictions], RunConfig]:
    """Predictions of each seed, or of each committee of seeds, for all splits, and the configuration.

    Settings that depend on the data are those of the first split. With ``options.together`` splits at a time, splits
    that would begin after ``options.minutes`` are left out, and every group of splits has a line of output.
    """
    first = splits[0]
    assert first.validation is not None
    config = resolve_config(config, store[torch.cat((first.train, first.validation)).sort().values])
    together = options.together or len(splits)
    groups: list[list[GraphPredictions]] = []
    for start in range(0, len(splits), together):
        if groups and is_over(options):
            print(f"{name}: {len(splits) - start} splits not trained, {options.minutes:g} minutes are over")
            break
        began, cpu = time.perf_counter(), cpu_seconds()
        chosen = splits[start : start + together]
        ledger = graphcaps.cross_validate(
            store,
            config,
            split=chosen,
            seeds=options.seeds,
            members=options.members,
            device=options.device,
            metric=candidate.metric,
            class_weight=candidate.class_weight,
            predictions=True,
            results=None if together == len(splits) else options.out / "records" / f"{name}-split{start}",
            resume=together < len(splits),
        )
        records = [record.predictions for record in ledger.of("held-out")]
        found = [each for each in records if each is not None]
        committees = [
            committee_predictions(found[row : row + options.members]) if options.members > 1 else found[row]
            for row in range(0, len(found), options.members)
        ]
        groups.append([replace(each, fold=each.fold + start) for each in committees])
        if together < len(splits):
            area = np.mean([each["roc_auc"] for each in split_metrics(committees, "validation", len(chosen))])
            spent = f"{time.perf_counter() - began:.1f} s, {cpu_seconds() - cpu:.1f} s of CPU"
            last = f" to {start + len(chosen) - 1}" if len(chosen) > 1 else ""
            print(f"{name}, split {start}{last}: validation ROC-AUC {area:.4f} ({spent})", flush=True)
    return [GraphPredictions.join(parts) for parts in zip(*groups, strict=True)], config


def model_title(model: str, members: int) -> str:
    """Name of a model in the results: ``hgcn``, or ``hgcn, committee of 5``."""
    return model if members == 1 else f"{model}, committee of {members}"


def is_over(options: argparse.Namespace) -> bool:
    """Whether the time limit has passed."""
    return bool(time.perf_counter() - options.began > 60 * options.minutes)


def cpu_seconds() -> float:
    """CPU time of this process and of its workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def base_config(molecules: MoleculeArrays, options: argparse.Namespace) -> RunConfig:
    """The configuration of the model before a candidate changes it."""
    if options.model is not None:
        from graphcaps.cli.run_options import configure  # needs the packages of the command line

        config = configure(molecules.store, preset=options.preset, model=options.model)
    else:
        config = replace(load_preset(options.preset or "molecules"), dataset=molecules.store.name)
    return config if is_classical(config.model) else config.with_training(precision=options.precision)


def split_metrics(seeds: Sequence[GraphPredictions], part: str, splits: int) -> list[dict[str, float]]:
    """Metrics of one part of each split, mean over the seeds of the training.

    Args:
        seeds (sequence): Predictions of each seed.
        part (str): ``"validation"`` or ``"test"``.
        splits (int): Number of splits.
    """
    code = PARTS.index(part)
    rows = []
    for split in range(splits):
        chosen = [(each.part == code) & (each.fold == split) for each in seeds]
        metrics = [
            class_metrics(each.y[rows], each.probabilities[rows])
            for each, rows in zip(seeds, chosen, strict=True)
        ]
        rows.append({key: float(np.mean([each[key] for each in metrics])) for key in METRICS})
    return rows


def predict_seconds(molecules: MoleculeArrays, config: RunConfig, device: torch.device) -> float | None:
    """Seconds from the graphs of all molecules to probabilities; ``None`` for a classical model.

    The weights are those of a new model: the time does not depend on them. The first pass, in which kernels are
    compiled, does not count.
    """
    if is_classical(config.model):
        return None
    store = molecules.store
    inputs = prepare_inputs(store, config, device, owner="measure_molecules")
    fitted = FittedModel(inputs.factory(()), config, inputs.recipe, store.class_names).to(device)
    fitted.predict_proba(store[:100])
    began = time.perf_counter()
    fitted.predict_proba(store)
    return time.perf_counter() - began


def candidates_of(name: str, options: argparse.Namespace) -> tuple[Candidate, ...]:
    """The combinations of the options of candidates, or those of :data:`CANDIDATES` if none is given."""
    if options.model is not None and is_classical(options.model):
        return (Candidate(),)
    given = (options.class_weight, options.weight_decay, options.epochs, options.metric)
    if not any(given):
        return CANDIDATES[name]
    weights = [None if each == "none" else "balanced" for each in options.class_weight or ["none"]]
    return tuple(
        Candidate(*each)  # type: ignore[arg-type]  # argparse checks the choices
        for each in product(
            weights,
            options.weight_decay or [None],
            options.epochs or [None],
            options.metric or ["loss"],
        )
    )


def _without_paths(words: Sequence[str]) -> list[str]:
    """The words of a command with placeholders for folders."""
    names = {"--root": "FOLDER", "--arrays": "DIR", "--out": "OUT"}
    return [
        names.get(words[index - 1], word) if index else word for index, word in enumerate(map(str, words))
    ]


# ---------------------------------------------------------------------- rows
def summary_rows(result: dict[str, Any]) -> list[dict[str, str]]:
    """A row per split of the result of :func:`measure`."""
    names = ("dataset", "model", "hardware", "date", "commit", "command")
    return [
        {name: str(result[name]) for name in names}
        | {key: f"{result['test'][split][key]:.4f}" for key in METRICS}
        | {
            "seed": str(seed),
            "validation_roc_auc": f"{result['validation'][split]['roc_auc']:.4f}",
            "test_graphs": str(result["test_graphs"][split]),
            "seconds": f"{result['seconds']['train'] / len(result['split_seeds']):.1f}",
        }
        for split, seed in enumerate(result["split_seeds"])
    ]


def read_rows(path: Path) -> list[dict[str, str]]:
    """The stored rows; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The stored results of :func:`measure`; none if there is no file."""
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def write_rows(path: Path, rows: Iterable[dict[str, str]]) -> None:
    """Replaces rows of the same data set, model and seed, and sorts all rows by these."""
    table = {(row["dataset"], row["model"], int(row["seed"])): row for row in [*read_rows(path), *rows]}
    write_table(path, COLUMNS, [table[key] for key in sorted(table)])


def write_table(path: Path, columns: Sequence[str], rows: Sequence[dict[str, str]]) -> None:
    """Writes rows as CSV, in place of an existing file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue())


# ---------------------------------------------------------------------- command
def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--root", type=Path, help="folder with the CSV files")
    source.add_argument("--arrays", type=Path, help="folder of benchmarks.molecule_arrays")
    source.add_argument(
        "--merge", type=Path, nargs="+", help="add the rows of molecules.json; measure nothing"
    )
    parser.add_argument("--sets", nargs="+", choices=[*LABELS], default=[*LABELS], help="data sets")
    parser.add_argument("--model", help="a registered model; default: that of the preset")
    parser.add_argument("--preset", help="a preset; default: molecules")
    parser.add_argument("--variant", help="name in the results; default: the model")
    parser.add_argument("--splits", type=int, help="number of splits; default: 10, of HIV 3")
    parser.add_argument("--seeds", type=int, default=1, help="training seeds per split")
    parser.add_argument("--members", type=int, default=1, help="members of a committee; default: 1")
    parser.add_argument("--together", type=int, help="splits that are trained together; default: all")
    parser.add_argument("--class-weight", nargs="+", choices=["none", "balanced"], help="candidates")
    parser.add_argument("--weight-decay", nargs="+", type=float, help="candidates")
    parser.add_argument("--epochs", nargs="+", type=int, help="candidates")
    parser.add_argument("--metric", nargs="+", choices=[*METRIC_TITLES], help="candidates")
    parser.add_argument(
        "--minutes", type=float, default=7, help="start no further candidate or split after this time"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32", help="on a GPU: float32, tf32 or bf16")
    parser.add_argument("--out", type=Path, default=OUT.parent, help="folder for the results")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    if options.merge:
        kept = {(each["dataset"], each["model"]): each for each in read_runs(options.out / RUNS.name)}
        for path in options.merge:
            for result in json.loads(path.read_text("utf-8")):
                write_rows(options.out / OUT.name, summary_rows(result))
                kept[result["dataset"], result["model"]] = result
        runs = [kept[key] for key in sorted(kept)]
        write_atomically(options.out / RUNS.name, json.dumps(runs, indent=1) + "\n")
        return
    options.began = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    for name in options.sets:
        if options.arrays is None:
            molecules = read_molecules(
                options.root / f"{name}.csv", seeds=range(options.splits or SPLITS[name])
            )
        else:
            molecules = load_molecules(options.arrays / f"{name}-standard.npz")
        results.append(measure(name, molecules, candidates_of(name, options), options))
        write_atomically(options.out / RUNS.name, json.dumps(results, indent=1) + "\n")
        write_rows(options.out / OUT.name, summary_rows(results[-1]))


if __name__ == "__main__":
    main()
