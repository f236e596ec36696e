"""Compares candidates for the preset ``default`` by their validation losses, on the paper's data sets.

    python -m benchmarks.measure_context --root FOLDER --device cuda --budget 540 --done results/context --out OUT
    python -m benchmarks.measure_context --merge OUT [OUT2 …]
    python -m benchmarks.measure_context --report
    python -m benchmarks.measure_context --accuracies

Every candidate is the preset ``default`` with other options (:data:`CANDIDATES`): kinds of context under the votes,
parts, edge labels, weight decay and width. ``benchmarks.measure_default_candidates`` has chosen the other values of it.
Candidates with edge labels are trained on data sets that have them. Ten folds are trained under the protocol held-out;
a record holds all curves, those of the test fold too.

``candidates.csv`` and the output have validation losses only, so that nothing is chosen on test graphs: of each fold,
the lowest validation loss after a centred mean over 21 epochs, averaged over folds and seeds. The order of cells is
that of :data:`GROUPS`, within a group small data sets first. ``--accuracies`` prints held-out accuracies, to check a
candidate that was chosen without them. Budget, ``--done``, ``--out`` and ``--merge`` are those of
``benchmarks.measure_comparison``; ``--merge`` adds to ``results/context``.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure_comparison import SETS, Cell, Measurement, measure, merge
from graphcaps._io.atomic_write import write_atomically
from graphcaps.comparison.comparison import ComparisonCell
from graphcaps.comparison.runner import describe_failure
from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.evaluation import CrossValidation, Ledger, ResultsStore
from graphcaps.evaluation.epoch_selection import smooth
from graphcaps.presets import load_preset

RESULTS = Path("results/context")
TABLE = "candidates.csv"
EDGE_LABELLED = ("MUTAG", "PTC_MR")
"""The paper's data sets with edge labels."""
BASE = "none"
"""The candidate that the others are compared with."""

CANDIDATES: dict[str, dict[str, Any]] = {
    BASE: {},
    "residual-1": {"context": "residual", "context_layers": 1},
    "residual-2": {"context": "residual", "context_layers": 2},
    "residual-3": {"context": "residual", "context_layers": 3},
    "gated-1": {"context": "gated", "context_layers": 1},
    "gated-2": {"context": "gated", "context_layers": 2},
    "gin-1": {"context": "gin", "context_layers": 1},
    "gin-2": {"context": "gin", "context_layers": 2},
    "gin-3": {"context": "gin", "context_layers": 3},
    "residual-2-jumping": {"context": "residual", "context_layers": 2, "context_jumping": True},
    "gated-2-jumping": {"context": "gated", "context_layers": 2, "context_jumping": True},
    "gin-2-jumping": {"context": "gin", "context_layers": 2, "context_jumping": True},
    # The context of parts="blocks" without its loss: three last hops, and a gradient through the routing.
    "parts-0": {"parts": "blocks", "parts_weight": 0.0},
    "edges": {"edge_labels": "messages"},
    "residual-2-edges": {"context": "residual", "context_layers": 2, "edge_labels": "messages"},
    "gated-2-edges": {"context": "gated", "context_layers": 2, "edge_labels": "messages"},
    "gin-2-edges": {"context": "gin", "context_layers": 2, "edge_labels": "messages"},
    # Without context: is there more to gain from other settings of the default?
    "decay-0.001": {"weight_decay": 0.001},
    "wide": {"capsule_dim": 256},
    "gated-2-decay-0.001": {"context": "gated", "context_layers": 2, "weight_decay": 0.001},
    "gin-2-decay-0.001": {"context": "gin", "context_layers": 2, "weight_decay": 0.001},
}
"""Options of each candidate: ``edge_labels`` is a feature, ``weight_decay`` one of the training, others are HGCN's."""
GROUPS = (
    (BASE, "residual-2", "gated-2", "gin-2"),
    ("residual-1", "gated-1", "gin-1"),
    ("residual-2-jumping", "gated-2-jumping", "gin-2-jumping"),
    ("edges", "residual-2-edges", "gated-2-edges", "gin-2-edges"),
    ("decay-0.001", "gated-2-decay-0.001", "gin-2-decay-0.001", "wide"),
    ("residual-3", "gin-3", "parts-0"),
)
"""Candidates, the most telling first."""


def candidate_config(name: str) -> RunConfig:
    """The preset ``default`` with the options of a candidate."""
    options = dict(CANDIDATES[name])
    edge_labels = options.pop("edge_labels", None)
    weight_decay = options.pop("weight_decay", None)
    config = load_preset("default").with_model(**options).with_training(weight_decay=weight_decay)
    return config if edge_labels is None else config.with_features(edge_labels=edge_labels)


def plan_cells(sets: Sequence[str], candidates: Sequence[str], seeds: int) -> list[Cell]:
    """The cells, most telling first; a further seed comes after all cells of the seed before."""
    order = [name for tier in SETS for name in tier if name in sets]
    order += [name for name in sets if name not in order]
    return [
        Cell(dataset, candidate, "held-out", seed)
        for seed in range(1, seeds + 1)
        for group in GROUPS
        for dataset in order
        for candidate in group
        if candidate in candidates
        and ("edge_labels" not in CANDIDATES[candidate] or dataset in EDGE_LABELLED)
    ]


class ContextMeasurement(Measurement):
    """Trains candidates; the model of a cell is the name of a candidate."""

    def train(self, cell: Cell, store: GraphStore) -> ComparisonCell:
        """Trains a candidate; an exception becomes the failure of the cell."""
        config = candidate_config(cell.model)
        try:
            validation = CrossValidation(
                store,
                config.with_training(epochs=self.epochs, precision=self.chosen_precision),
                seeds=cell.seeds,
                protocol=cell.protocol,
                device=self.device,
                variant=cell.model,
                results=self.results,
                resume=True,
            )
            ledger = validation.run(lambda _: self.check_budget())
        except Exception as error:  # the other candidates are still to be trained
            return ComparisonCell(cell.dataset, cell.model, None, describe_failure(error))
        return ComparisonCell(cell.dataset, cell.model, ledger)

    def describe(self, ledger: Ledger) -> str:
        """The validation loss; accuracies on test graphs are not shown."""
        return f"validation loss {validation_losses(ledger).mean():.5f}"


# ---------------------------------------------------------------------- validation losses
def validation_losses(ledger: Ledger) -> np.ndarray:
    """Validation loss of each fold at its selected epoch, mean over seeds, ``[F]``."""
    losses = [smooth(record.curves.criterion).min(1) for record in ledger.of("held-out")]
    mean: np.ndarray = np.mean(losses, axis=0)
    return mean


def rows(results: ResultsStore) -> list[dict[str, object]]:
    """A row per data set and candidate: validation loss, and its difference to that without context.

    The difference is paired over folds, with the seeds that both have, in percent of the loss without context.
    """
    found = {(ledger.dataset, ledger.variant): ledger for ledger in results.ledgers()}
    listed: list[dict[str, object]] = []
    for dataset in dict.fromkeys(dataset for dataset, _ in found):
        base = found.get((dataset, BASE))
        for candidate in CANDIDATES:
            if (ledger := found.get((dataset, candidate))) is None:
                continue
            losses = validation_losses(ledger)
            row: dict[str, object] = {
                "dataset": dataset,
                "candidate": candidate,
                "seeds": len(ledger.of("held-out")),
                "validation loss": round(float(losses.mean()), 6),
                "difference in %": "",
                "standard error in %": "",
                "seconds": round(ledger.seconds, 1),
            }
            if base is not None and candidate != BASE:
                delta = _relative_difference(ledger, base)
                error = delta.std(ddof=1) / np.sqrt(len(delta)) if len(delta) > 1 else np.nan
                row |= {
                    "difference in %": round(float(delta.mean()), 3),
                    "standard error in %": round(float(error), 3),
                }
            listed.append(row)
    return listed


def _relative_difference(ledger: Ledger, base: Ledger) -> np.ndarray:
    """Difference of the losses of each fold in percent of the mean loss of ``base``, ``[F]``."""
    seeds = {record.key.seed for record in ledger.records} & {record.key.seed for record in base.records}
    one, two = (
        validation_losses(Ledger(tuple(record for record in each.records if record.key.seed in seeds)))
        for each in (ledger, base)
    )
    difference: np.ndarray = 100 * (one - two) / two.mean()
    return difference


def choosing_table(listed: Sequence[Mapping[str, object]]) -> str:
    """Difference of each candidate's validation loss in percent, a column per data set; negative is better."""
    order = [name for tier in SETS for name in tier]
    present = {str(row["dataset"]) for row in listed}
    sets = [name for name in order if name in present] + sorted(present - set(order))
    values = {
        (str(row["candidate"]), str(row["dataset"])): row["difference in %"]
        for row in listed
        if row["difference in %"] != ""
    }
    lines = [
        "| candidate | " + " | ".join(sets) + " | better | mean |",
        "|---|" + "---|" * (len(sets) + 2),
    ]
    for candidate in CANDIDATES:
        cells = [values.get((candidate, name)) for name in sets]
        measured = [float(str(cell)) for cell in cells if cell is not None]
        if not measured:
            continue
        shown = ["" if cell is None else f"{float(str(cell)):+.2f}" for cell in cells]
        better = f"{sum(cell < 0 for cell in measured)} of {len(measured)}"
        lines.append(f"| {candidate} | {' | '.join(shown)} | {better} | {np.mean(measured):+.2f} |")
    return "\n".join(lines)


def report(out: Path) -> None:
    """Writes ``candidates.csv`` and prints the table."""
    listed = rows(ResultsStore(out))
    if not listed:
        raise SystemExit(f"{out} has no records of these candidates")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(listed[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    write_atomically(out / TABLE, text.getvalue())
    print(choosing_table(listed))


def accuracies_table(results: ResultsStore) -> str:
    """Held-out accuracy of each candidate and data set, mean over the seeds that the base has too, and the difference.

    The last line of a candidate is the mean of the differences over its data sets.
    """
    found = {(ledger.dataset, ledger.variant): ledger for ledger in results.ledgers()}
    lines = ["| data set | candidate | seeds | base | candidate | difference |", "|---|---|---|---|---|---|"]
    for candidate in CANDIDATES:
        differences = []
        for (dataset, variant), ledger in found.items():
            base = found.get((dataset, BASE))
            if variant != candidate or candidate == BASE or base is None:
                continue
            seeds = {record.key.seed for record in ledger.records} & {
                record.key.seed for record in base.records
            }
            if not seeds:
                continue
            means = []
            for each in (base, ledger):
                summary = Ledger(tuple(row for row in each.records if row.key.seed in seeds)).held_out
                assert summary is not None
                means.append(summary.mean)
            differences.append(means[1] - means[0])
            numbers = f"{means[0]:.2f} | {means[1]:.2f} | {differences[-1]:+.2f}"
            lines.append(f"| {dataset} | {candidate} | {len(seeds)} | {numbers} |")
        if differences:
            lines.append(f"| mean of {len(differences)} | {candidate} | | | | {np.mean(differences):+.2f} |")
    return "\n".join(lines)


# ---------------------------------------------------------------------- command
def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [name for tier in SETS for name in tier]
    parser.add_argument("--sets", nargs="+", default=every, help="data sets; default: all eleven")
    parser.add_argument(
        "--candidates", nargs="+", choices=list(CANDIDATES), default=list(CANDIDATES), metavar="NAME",
        help=f"default: all of {', '.join(CANDIDATES)}",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--root", type=Path, help="folder with the zips of the data sets")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32", help="on a GPU: float32, tf32 or bf16")
    parser.add_argument("--epochs", type=int, help="in place of those of the preset")
    parser.add_argument("--jobs", type=int, default=1, help="concurrent cells on a GPU")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="folders of cells to leave out")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--merge", type=Path, nargs="+", help="add these folders to --out; train nothing")
    parser.add_argument("--report", action="store_true", help="only evaluate the records of --out")
    parser.add_argument("--accuracies", action="store_true", help="only print held-out accuracies of --out")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    began = time.monotonic()
    options = parse(words)
    if options.accuracies:
        print(accuracies_table(ResultsStore(options.out)))
        return
    if options.merge:
        merge(options.merge, options.out)
    elif not options.report:
        measurement = ContextMeasurement(
            options.out,
            options.root,
            options.device,
            options.precision,
            options.epochs,
            began + options.budget,
        )
        cells = plan_cells(options.sets, options.candidates, options.seeds)
        measure(measurement, cells, options.done, options.jobs)
        if not len(measurement.results):
            return
    report(options.out)


if __name__ == "__main__":
    main()
