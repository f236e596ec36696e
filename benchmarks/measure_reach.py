"""Held-out accuracy of committees, with and without a companion, beside published figures and classical models.

    python -m benchmarks.measure_reach --root DIR --device cuda --budget 540 --done results/reach/reach.json --out OUT
    python -m benchmarks.measure_reach --preset best --root DIR --device cuda --budget 540 --jobs 5 --out OUT
    python -m benchmarks.measure_reach --preset best --root DIR --records RECORDS --fit-companions --sets MUTAG
    python -m benchmarks.measure_reach --preset best --root DIR --records RECORDS --device cuda --out OUT
    python -m benchmarks.measure_reach --classical --root DIR --sets MUTAG PTC_MR
    python -m benchmarks.measure_reach --merge OUT/reach.json [OUT2/reach.json …]
    python -m benchmarks.measure_reach --report

A cell is one data set in one division into folds: ten folds × ``--members`` seeds of a candidate of
``benchmarks.measure_context`` (``--candidate``; default: the preset ``default``), trained together with the patience of
``HGCNClassifier``. The committee of each fold, its members, the companions (``--companion``; ``none`` leaves them out)
and their mixture are evaluated on the test fold; epochs, temperatures and weights are chosen on validation graphs. A
cell with companions says of its committee what a cell without them would say: replicas do not depend on each other.
``--preset best`` takes members and companions of that preset, whose network is that of ``default``: its cells are those
of the same ``--members`` and ``--companion``. All data sets of division 0 come first, in the order of :data:`ORDER`,
then those of division 1, and so on; with ``--jobs``, as many cells at a time, the longest of a division first.

``C`` of a cell is an upper bound: the rule C of the paper, one epoch for all folds by the mean accuracy on the test
folds, applied to committee and mixture. It is that of the held-out training, on eight folds where the paper has nine,
without calibration and with the weights of the mixture.

``--records`` keeps the records of all trainings and fits, with their predictions, and repeats none that it has:
companions can be fitted beforehand on a machine without a GPU (``--fit-companions``), and further ones afterwards. A
cell whose networks were not trained in the same run has no C.

OUT/reach.json is written after every cell. Cells in it or in the files of ``--done`` are left out. No cell starts that
is expected to take longer than what is left of the budget, by the seconds of the same data set in another division, or
by :data:`EXPECTED_SECONDS` and the stored seconds of the companions. ``--merge`` adds cells to
``results/reach/reach.json``; of two, the one measured first counts.

``--classical`` fits the models of :data:`CLASSICAL` on the same divisions, one after another, into OUT/classical.json;
those of division 0 are taken from ``results/comparison``, and forests that are companions from the cells. ``--report``
prints cells beside the best published accuracies and these models, on the divisions that both have.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from benchmarks.measure_context import BASE, CANDIDATES, candidate_config
from benchmarks.published_accuracies import best_published
from benchmarks.upper_bound import TestProbabilities, best_epoch, percent
from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import versions_and_commit
from graphcaps.comparison.runner import describe_failure
from graphcaps.config import RunConfig
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.store import GraphStore
from graphcaps.estimator import HGCNClassifier
from graphcaps.evaluation import CrossValidation, RecordKey, ResultsStore
from graphcaps.evaluation.concurrent_trainings import run_concurrently
from graphcaps.evaluation.graph_predictions import PARTS
from graphcaps.evaluation.ledger import Ledger
from graphcaps.evaluation.mixture_results import MixtureResults
from graphcaps.inference.mixture import weighted_mean
from graphcaps.models.lookup import find_graph_model
from graphcaps.presets import load_preset
from graphcaps.reproduction.published import paper_datasets, published_hgcn
from graphcaps.training.device import choose_device
from graphcaps.training.loop import Callback

RESULTS = Path("results/reach/reach.json")
CLASSICAL_RESULTS = Path("results/reach/classical.json")
COMPARISON = Path("results/comparison")
PATIENCE = HGCNClassifier().patience
ORDER = (
    *("ENZYMES", "PROTEINS", "NCI1", "IMDB-BINARY", "IMDB-MULTI", "DD", "MUTAG", "PTC_MR", "NCI109"),
    *("REDDIT-BINARY", "COLLAB"),
)
"""The most telling data sets first: those whose single models are near the figures to compare with."""
FOLDS = 10
EXPECTED_SECONDS = {
    **{"ENZYMES": 45, "PROTEINS": 30, "NCI1": 60, "IMDB-BINARY": 15, "IMDB-MULTI": 20, "DD": 110},
    **{"MUTAG": 15, "PTC_MR": 15, "NCI109": 55, "REDDIT-BINARY": 120, "COLLAB": 130},
}
"""Seconds of a cell of five members on one H200 without a companion: 2.2 to 3 times those of one seed in
``results/defaults.json``, as five seeds of the paper's row take 2.2 times those of one (``docs/performance.md``)."""
CLASSICAL = ("wl", "wl-oa", "wl-forest", "ldp-forest", "features-trees")
"""Models that a user would try first."""

Row = dict[str, Any]


SETTINGS = ("candidate", "companion", "members", "epochs", "patience", "folds")
"""What the cells of one table have in common."""


def settings(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The settings of a cell; sortable."""
    return tuple(row[name] or "" for name in SETTINGS)


def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What identifies a cell: settings, data set and division."""
    return (*settings(row), row["dataset"], row["division"])


def plan(options: argparse.Namespace, done: Sequence[Row]) -> list[Row]:
    """The cells that are left, the most telling first."""
    order = [name for name in ORDER if name in options.sets]
    order += [name for name in options.sets if name not in order]
    cells = [
        {
            "dataset": name,
            "candidate": options.candidate,
            "companion": None if options.companion == "none" else options.companion,
            "members": options.members,
            "epochs": options.epochs or candidate_config(options.candidate).training.epochs,
            "patience": PATIENCE,
            "folds": options.folds,
            "division": division,
        }
        for division in range(options.divisions)
        for name in order
    ]
    found = {key(row) for row in done}
    return [cell for cell in cells if key(cell) not in found]


def expected_seconds(cell: Row, rows: Sequence[Row], companion_seconds: Mapping[str, float] = {}) -> float:
    """Seconds of a cell, by another division of the same data set, else by :data:`EXPECTED_SECONDS`; 0 if unknown.

    ``companion_seconds`` are those that the companions need beside it, by data set.
    """
    same = [row["seconds"] for row in rows if key(row)[:-1] == key(cell)[:-1]]
    network = EXPECTED_SECONDS.get(cell["dataset"], 0) * cell["members"] / 5
    beside = 0.0 if cell["companion"] is None else companion_seconds.get(cell["dataset"], 0.0)
    return float(max(same, default=network + beside))


# ---------------------------------------------------------------------- measuring
def cross_validation(
    cell: Row, store: GraphStore, options: argparse.Namespace, callbacks: Sequence[Callback] = ()
) -> CrossValidation:
    """The trainings of a cell."""
    config = candidate_config(cell["candidate"]).with_training(
        epochs=cell["epochs"], precision=options.precision
    )
    return CrossValidation(
        store,
        config,
        callbacks=callbacks,
        folds=cell["folds"],
        device=options.device,
        patience=cell["patience"],
        members=cell["members"],
        companion=cell["companion"],
        division=cell["division"],
        results=None if options.records is None else ResultsStore(options.records),
        resume=options.records is not None,
    )


def fit_companions(cell: Row, store: GraphStore, options: argparse.Namespace) -> Row:
    """Fits the companions of a cell, also to inner folds; trains no network."""
    began = time.perf_counter()
    runs = cross_validation(cell, store, options).companion_runs
    for run in () if runs is None else (*runs.folds, *runs.inner[1:]):  # the first inner one is the network's
        run.run()
    return {"seconds": round(time.perf_counter() - began, 1)}


def measure(cell: Row, store: GraphStore, options: argparse.Namespace) -> Row:
    """Trains and evaluates the committees of a cell; JSON-safe."""
    began = time.perf_counter()
    epochs = TestProbabilities(find_graph_model(candidate_config(cell["candidate"]).model).scores)
    ledger = cross_validation(cell, store, options, [epochs]).run()
    committee = ledger.committees(cell["members"])
    row = cell | {
        "accuracy": percent(committee.accuracy.per_seed[0]),
        "member_accuracy": percent(committee.member_accuracy.per_seed[0]),
        "pooled": committee.pooled,
        "member_pooled": committee.member_pooled,
    }
    if epochs.graphs:
        row["C"] = upper_bound(epochs, store)
    if cell["companion"] is not None:
        mixture = ledger.mixture(cell["members"])
        row |= {
            "mixture_accuracy": percent(mixture.mixture.accuracy.per_seed[0]),
            "mixture_pooled": mixture.mixture.pooled,
            "part_accuracy": {part.name: percent(part.accuracy.per_seed[0]) for part in mixture.parts[1:]},
            "weights": [round(weight, 4) for weight in mixture.mean_weights],
            "companion_seconds": round(mixture.seconds, 1),
        }
        if epochs.graphs:
            row["mixture_C"] = upper_bound(epochs, store, ledger, mixture)
    return row | {
        "seconds": round(time.perf_counter() - began, 1),
        "folds_seed": ledger.folds_seed,
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hardware": ledger.hardware,
        "versions": versions_and_commit(),
    }


def upper_bound(
    epochs: TestProbabilities,
    store: GraphStore,
    ledger: Ledger | None = None,
    mixture: MixtureResults | None = None,
) -> dict[str, Any]:
    """Rule C for the committee of a cell, or for its mixture: accuracy of each fold in percent, and the epoch.

    Args:
        epochs (TestProbabilities): Predictions of the members after every epoch.
        store (GraphStore): The graphs.
        ledger, mixture (optional): For the mixture: its companions and weights.
    """
    assert store.y is not None
    y, correct = store.y.cpu().numpy(), []
    for fold in sorted(epochs.graphs):
        graphs, q = epochs.graphs[fold], epochs.committee(fold)
        if ledger is not None and mixture is not None:
            beside = [_test_rows(ledger, number, fold, graphs) for number in range(len(mixture.parts) - 1)]
            q = weighted_mean([q, *(rows[None] for rows in beside)], mixture.weights[0, fold])
        correct.append((q.argmax(-1) == y[graphs]).mean(-1))
    return best_epoch(correct)


def _test_rows(ledger: Ledger, companion: int, fold: int, graphs: np.ndarray) -> np.ndarray:
    """Uncalibrated probabilities of a companion for the test graphs of a fold, in the order of ``graphs``."""
    found = ledger.companions[0].folds[companion][0].predictions
    assert found is not None
    rows = np.flatnonzero((found.fold == fold) & (found.part == PARTS.index("test")))
    rows = rows[np.argsort(found.graph[rows])]
    ordered: np.ndarray = found.probabilities[rows[np.searchsorted(found.graph[rows], graphs)]]
    return ordered


def run(options: argparse.Namespace, began: float) -> None:
    """Measures cells until the budget is over, and writes each at once."""
    path, lock = options.out / RESULTS.name, Lock()
    rows = read_rows(path)
    others = [row for file in options.done for row in read_rows(file)]
    cells = plan(options, [*rows, *others])
    beside = companion_seconds(COMPARISON, options.companion)
    print(f"{len(cells)} cells to measure.", flush=True)
    stores: dict[str, GraphStore] = {}
    if options.jobs > 1:  # the longest first, so that none runs alone at the end
        cells.sort(key=lambda cell: (cell["division"], -expected_seconds(cell, [*rows, *others], beside)))

    def run_cell(cell: Row) -> None:
        left = options.budget - (time.monotonic() - began)
        title = f"{cell['dataset']}, division {cell['division']}"
        if expected_seconds(cell, [*rows, *others], beside) > left:
            print(f"{title}: not started, {left:.0f} s left", flush=True)
            return
        with lock:
            if cell["dataset"] not in stores:
                stores[cell["dataset"]] = open_dataset(cell["dataset"], options.root).store
        try:
            row = (fit_companions if options.fit_companions else measure)(
                cell, stores[cell["dataset"]], options
            )
        except Exception as error:  # the other cells are still to be measured
            print(f"{title}: {describe_failure(error)}", flush=True)
            return
        if not options.fit_companions:
            with lock:
                rows.append(row)
                write_rows(path, rows)
        print(f"{title}: {row['seconds']} s", flush=True)

    list(
        run_concurrently(
            [partial(run_cell, cell) for cell in cells], options.jobs, choose_device(options.device)
        )
    )


# ---------------------------------------------------------------------- files
def read_rows(path: Path) -> list[Row]:
    """Measured cells; none if there is no file."""
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes cells, a line each, sorted; of two of one key the one that was finished first counts."""
    kept: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=lambda row: row["finished"]):
        kept.setdefault(key(row), row)
    write_lines(path, [kept[each] for each in sorted(kept)])


def write_lines(path: Path, rows: Sequence[Row]) -> None:
    """Writes a JSON list with a line for each row."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "[\n" + ",\n".join(lines) + "\n]\n")


# ---------------------------------------------------------------------- report
def _classical_ledgers(folder: Path, names: Sequence[str]) -> dict[str, dict[str, Ledger]]:
    """Stored held-out results of classical models, first seed, by data set and model."""
    store, found = ResultsStore(folder), {}
    for dataset in ORDER:
        records = {name: store.get(RecordKey(dataset, name, "held-out", 0)) for name in names}
        found[dataset] = {name: Ledger((record,)) for name, record in records.items() if record is not None}
    return found


def measure_classical(options: argparse.Namespace) -> None:
    """Fits the classical models of the data sets on divisions 1, 2, …, and writes each result at once."""
    path = options.out / CLASSICAL_RESULTS.name
    rows = read_rows(path)
    for division in range(1, options.divisions):
        for dataset in options.sets:
            for model in options.models:
                cell: Row = {"dataset": dataset, "model": model, "division": division, "folds": options.folds}
                if any(cell.items() <= row.items() for row in rows):
                    continue
                store = open_dataset(dataset, options.root).store
                began = time.perf_counter()
                ledger = CrossValidation(
                    store, RunConfig(model=model), folds=options.folds, division=division
                ).run()
                assert ledger.held_out is not None
                row = cell | {
                    "accuracy": round(ledger.held_out.mean, 4),
                    "std_folds": ledger.held_out.std_folds,
                }
                row |= {"seconds": round(time.perf_counter() - began, 1)}
                row |= {"hardware": ledger.hardware, "versions": versions_and_commit()}
                rows.append(row)
                write_lines(
                    path, sorted(rows, key=lambda row: (row["dataset"], row["model"], row["division"]))
                )
                print(f"{dataset}, {model}, division {division}: {row['accuracy']:.2f}", flush=True)


def companion_seconds(folder: Path, companions: str) -> dict[str, float]:
    """Seconds of a cross-validation of all companions, by data set, from stored records; 0 if there is none."""
    found = _classical_ledgers(folder, companions.split(","))
    return {dataset: sum(each.seconds for each in ledgers.values()) for dataset, ledgers in found.items()}


def classical_accuracies(folder: Path) -> dict[str, dict[str, float]]:
    """Held-out accuracy of the classical models in percent, by data set and model, from stored records."""
    return {
        dataset: {
            name: ledger.held_out.mean for name, ledger in ledgers.items() if ledger.held_out is not None
        }
        for dataset, ledgers in _classical_ledgers(folder, CLASSICAL).items()
    }


def by_division(
    cells: Sequence[Row], first: Mapping[str, float], others: Sequence[Row]
) -> dict[str, dict[int, float]]:
    """Accuracy of each classical model in percent, by division, on the divisions of the cells of a data set.

    Args:
        cells (list): Cells of the data set, one for each division.
        first (dict): Accuracies of division 0.
        others (list): Rows of :data:`CLASSICAL_RESULTS` of the data set.
    """
    accuracies: dict[str, dict[int, float]] = {}
    for cell in cells:
        for name, values in cell.get("part_accuracy", {}).items():
            accuracies.setdefault(name, {})[cell["division"]] = float(np.mean(values))
    divisions = {cell["division"] for cell in cells}
    rows = [(row["model"], row["division"], row["accuracy"]) for row in others]
    for model, division, accuracy in [*rows, *((name, 0, value) for name, value in first.items())]:
        if division in divisions:
            accuracies.setdefault(model, {})[division] = accuracy
    return accuracies


def report(
    rows: Sequence[Row], classical: Mapping[str, Mapping[str, float]], others: Sequence[Row] = ()
) -> str:
    """A table per :data:`SETTINGS`, and how many data sets reach what they are compared with.

    Args:
        rows (list): Cells.
        classical (dict): Accuracies of classical models on division 0, in percent, by data set and model.
        others (list): Rows of :data:`CLASSICAL_RESULTS`, of other divisions.
    """
    lines = []
    for group in sorted({settings(row) for row in rows}, key=str):
        chosen = [row for row in rows if settings(row) == group]
        first = chosen[0]
        head = ("data set", "divisions", "members", "committee", "mixture", "published", "best classical")
        head += ("ECE", "ECE of members", "C of the committee", "C of the mixture", "C of the paper")
        lines += [
            f"## {first['candidate']}, committees of {first['members']}, companion {first['companion'] or 'none'}",
            "",
            f"{first['folds']} folds, at most {first['epochs']} epochs, patience {first['patience']}.",
            "",
            f"| {' | '.join(head)} |",
            "|---" * len(head) + "|",
        ]
        counts = {"published": [0, 0], "classical": [0, 0], "ece": [0], "C": [0, 0]}
        sets = [name for name in ORDER if any(row["dataset"] == name for row in chosen)]
        sets += sorted({row["dataset"] for row in chosen} - set(sets))
        for name in sets:
            cells = [row for row in chosen if row["dataset"] == name]
            means = [_mean(cells, each) for each in ("member_accuracy", "accuracy", "mixture_accuracy")]
            beside = [row for row in others if (row["dataset"], row["folds"]) == (name, first["folds"])]
            best, reached = None, [True, True]
            for model, accuracies in by_division(cells, classical.get(name, {}), beside).items():
                value = float(np.mean([*accuracies.values()]))
                best = (model, value) if best is None or value > best[1] else best
                same = [cell for cell in cells if cell["division"] in accuracies]  # those that both have
                counts.setdefault(model, [0, 0, 0])[2] += 1
                for column, part in enumerate(("accuracy", "mixture_accuracy")):
                    mean = _mean(same, part)
                    wins = mean is not None and mean >= value
                    counts[model][column] += wins
                    reached[column] &= wins
            for column in range(2):
                counts["classical"][column] += best is not None and reached[column]
            published = best_published(name)
            for column, mean in enumerate(means[1:]):
                counts["published"][column] += (
                    published is not None and mean is not None and mean >= published.value
                )
            errors = [_mean_entry(cells, each) for each in ("pooled", "member_pooled")]
            counts["ece"][0] += None not in errors and errors[0] <= errors[1]  # type: ignore[operator]
            divisions = len(cells)
            shown = ["–" if mean is None else f"{mean:.1f}" for mean in means]
            shown += ["–" if published is None else f"{published.value:.1f}"]
            shown += ["–" if best is None else f"{best[1]:.1f} ({best[0]})"]
            shown += ["–" if error is None else f"{error:.3f}" for error in errors]
            bounds = [
                _mean([row[each] for row in cells if each in row], "accuracy") for each in ("C", "mixture_C")
            ]
            paper = published_hgcn(name).mean if name in paper_datasets() else None
            for column, bound in enumerate(bounds):
                counts["C"][column] += None not in (bound, paper) and bound >= paper  # type: ignore[operator]
            shown += ["–" if value is None else f"{value:.1f}" for value in (*bounds, paper)]
            lines.append(f"| {name} | {divisions} | {' | '.join(shown)} |")
        of = len([name for name in sets if best_published(name) is not None])
        lines += [
            "",
            f"At or above the best published: {counts['published'][0]} of {of} data sets, "
            f"with the companion {counts['published'][1]}.",
            f"At or above the best classical model: {counts['classical'][0]} of {len(sets)}, "
            f"with the companion {counts['classical'][1]}.",
            "At or above each of them: "
            + ", ".join(
                f"{model} {counts[model][0]} of {counts[model][2]}, with the companion {counts[model][1]}"
                for model in CLASSICAL
                if model in counts
            )
            + ".",
            f"ECE of the committee at most that of its members: {counts['ece'][0]} of {len(sets)}.",
            f"C, an upper bound, at or above that of the paper: {counts['C'][0]} of {len(sets)}, "
            f"with the companion {counts['C'][1]}.",
            "",
        ]
    return "\n".join(lines)


def _mean(rows: Sequence[Row], name: str) -> float | None:
    """Mean over the divisions of each division's mean over folds; ``None`` if none has it."""
    values = [np.mean(row[name]) for row in rows if name in row]
    return float(np.mean(values)) if values else None


def _mean_entry(rows: Sequence[Row], name: str) -> float | None:
    values = [row[name]["ece"] for row in rows]
    return None if any(value is None for value in values) else float(np.mean(values))


# ---------------------------------------------------------------------- command
def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(ORDER), help="data sets; default: all eleven")
    parser.add_argument("--candidate", choices=list(CANDIDATES), default=BASE, help="of measure_context")
    parser.add_argument(
        "--preset", choices=["best"], help="in place of --candidate, --companion and --members"
    )
    parser.add_argument(
        "--companion", default="wl-forest", help="classical models that are mixed with the committee, or none"
    )
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--divisions", type=int, default=5)
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--root", type=Path, help="folder with the zips of the data sets")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--precision", default="tf32", help="float32, tf32 or bf16; only a GPU has the last two"
    )
    parser.add_argument("--records", type=Path, help="folder of records, whose trainings are not repeated")
    parser.add_argument(
        "--fit-companions",
        action="store_true",
        help="only fit companions into --records; no network is trained",
    )
    parser.add_argument("--epochs", type=int, help="in place of those of the preset")
    parser.add_argument("--jobs", type=int, default=1, help="concurrent cells on a GPU")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="files of cells to leave out")
    parser.add_argument("--out", type=Path, default=RESULTS.parent)
    parser.add_argument("--classical", action="store_true", help="fit classical models on divisions 1, 2, …")
    parser.add_argument("--models", nargs="+", default=list(CLASSICAL), help="of --classical")
    parser.add_argument("--merge", type=Path, nargs="+", help="add these files to --out; train nothing")
    parser.add_argument("--report", action="store_true", help="only show the cells of --out")
    options = parser.parse_args(words)
    if options.fit_companions and options.records is None:
        parser.error("--fit-companions needs --records")
    if options.preset is not None:
        committee = load_preset(options.preset).committee
        options.candidate, options.members = BASE, committee.members
        options.companion = committee.companion or "none"
    return options


def main(words: Sequence[str] | None = None) -> None:
    began = time.monotonic()
    options = parse(words)
    path = options.out / RESULTS.name
    if options.merge:
        write_rows(path, [row for file in (path, *options.merge) for row in read_rows(file)])
    elif options.report:
        others = read_rows(options.out / CLASSICAL_RESULTS.name)
        print(report(read_rows(path), classical_accuracies(COMPARISON), others))
        sources = {name: best_published(name) for name in ORDER}
        print("Best published:", "; ".join(f"{name} {each.source}" for name, each in sources.items() if each))
    elif options.classical:
        measure_classical(options)
    else:
        run(options, began)


if __name__ == "__main__":
    main()
