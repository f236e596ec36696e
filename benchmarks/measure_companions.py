"""Which companions suit the committee of the preset ``best``, by log loss on validation graphs.

    python -m benchmarks.measure_companions --root DIR --records RECORDS --out OUT
    python -m benchmarks.measure_companions --report

RECORDS holds the trainings of ``benchmarks.measure_reach`` with ``--records``: committees, and every companion of
``--companions``. For every subset of these, half of the graphs that choose the weights of a fold fit temperatures and
weights, and the other half judges them; then the halves change places. These graphs are the validation graphs of the
fold or, where there are few, its training graphs out of fold. Predictions of test folds are not used: what the study
chooses may be measured on them.

OUT/companions.json has a row for each data set and division; ``--report`` prints the mean log loss of each subset.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure_context import BASE
from benchmarks.measure_reach import FOLDS, ORDER, cross_validation, plan, read_rows, write_lines
from benchmarks.measure_reach import RESULTS as REACH
from graphcaps._io.provenance import versions_and_commit
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.evaluation.committee_results import sort_rows
from graphcaps.evaluation.graph_predictions import PARTS, GraphPredictions
from graphcaps.evaluation.ledger import Ledger
from graphcaps.evaluation.record import SeedRecord
from graphcaps.inference.probabilities import MIN_PROBABILITY
from graphcaps.presets import load_preset
from graphcaps.training.calibration import calibrate_probabilities
from graphcaps.training.companion_weights import fit_mixture

RESULTS = REACH.with_name("companions.json")
COMPANIONS = ("wl-forest", "features-trees", "ldp-forest")

Row = dict[str, Any]
Judged = tuple[list[np.ndarray], np.ndarray]
"""Probabilities of each part, ``[members, n, O]``, the network first, and the class of each graph, ``[n]``."""


def judged_graphs(ledger: Ledger) -> Iterator[Judged]:
    """For each fold, the graphs that choose the weights of its mixture."""
    companions = ledger.companions[0]
    if companions.inner:
        inner = [_sorted(records[0]) for records in companions.inner]
        fold_of = np.array(companions.fold_of_inner)
        for fold in np.unique(fold_of):
            rows = (fold_of[inner[0].fold] == fold) & (inner[0].part == PARTS.index("test"))
            yield [each.probabilities[None, rows] for each in inner], inner[0].y[rows]
        return
    members = [_sorted(record) for record in ledger.records]
    beside = [_sorted(records[0]) for records in companions.folds]
    first = members[0]
    for fold in np.unique(first.fold):
        rows = (first.fold == fold) & (first.part == PARTS.index("validation"))
        network = np.stack([member.probabilities[rows] for member in members])
        yield [network, *(each.probabilities[None, rows] for each in beside)], first.y[rows]


def _sorted(record: SeedRecord) -> GraphPredictions:
    assert record.predictions is not None
    return sort_rows(record.predictions)


def cross_fitted_losses(parts: Sequence[np.ndarray], y: np.ndarray) -> np.ndarray:
    """Log loss of each graph under a mixture that is fitted to the other half of the graphs, ``[n]``.

    Graphs alternate between the halves in the order of their classes, so that both have all of them.

    Args:
        parts (list): Probabilities of each part, ``[members, n, O]``; one part is only calibrated.
        y (ndarray): Class of each graph, ``[n]``.
    """
    half = np.empty(len(y), dtype=np.int64)
    half[np.argsort(y, kind="stable")] = np.arange(len(y)) % 2
    losses = np.empty(len(y))
    for judge in (half == 0, half == 1):
        calibrations = [calibrate_probabilities(p[:, ~judge], y[~judge], "temperature") for p in parts]
        q = [each.apply(p).mean(0) for each, p in zip(calibrations, parts, strict=True)]
        mixed = q[0][judge]
        if len(parts) > 1:
            mixture = fit_mixture([p[~judge] for p in q], y[~judge], "temperature", stacked=False)
            mixed = mixture.apply([p[judge] for p in q])
        losses[judge] = -np.log(np.maximum(mixed[np.arange(len(mixed)), y[judge]], MIN_PROBABILITY))
    return losses


def subset_losses(ledger: Ledger, names: Sequence[str]) -> dict[str, float]:
    """Mean log loss of the committee with each subset of the companions, by their names with + between them."""
    subsets = [each for count in range(len(names) + 1) for each in combinations(range(len(names)), count)]
    losses: dict[str, list[np.ndarray]] = {}
    for parts, y in judged_graphs(ledger):
        for subset in subsets:
            title = " + ".join(names[number] for number in subset) or "none"
            chosen = [parts[0], *(parts[number + 1] for number in subset)]
            losses.setdefault(title, []).append(cross_fitted_losses(chosen, y))
    return {title: round(float(np.concatenate(each).mean()), 5) for title, each in losses.items()}


def report(rows: Sequence[Row]) -> str:
    """A table of mean log losses, the lowest of a data set in bold; empty if nothing is measured."""
    if not rows:
        return ""
    measured = {row["dataset"] for row in rows}
    names = [name for name in ORDER if name in measured] + sorted(measured.difference(ORDER))
    titles = list(rows[0]["log_loss"])
    table = {
        name: [
            float(np.mean([row["log_loss"][title] for row in rows if row["dataset"] == name]))
            for title in titles
        ]
        for name in names
    }
    lines = [f"| data set | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    for name, values in table.items():
        marked = [f"**{value:.4f}**" if value == min(values) else f"{value:.4f}" for value in values]
        lines.append(f"| {name} | {' | '.join(marked)} |")
    means = np.mean([*table.values()], axis=0)
    lines.append(f"| mean | {' | '.join(f'{value:.4f}' for value in means)} |")
    return "\n".join(lines)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(ORDER), help="data sets; default: all eleven")
    parser.add_argument("--companions", nargs="+", default=list(COMPANIONS))
    parser.add_argument("--divisions", type=int, default=1)
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--members", type=int, default=load_preset("best").committee.members)
    parser.add_argument("--epochs", type=int, help="in place of those of the preset")
    parser.add_argument("--root", type=Path, help="folder with the zips of the data sets")
    parser.add_argument("--records", type=Path, help="folder of records of measure_reach")
    parser.add_argument("--precision", default="tf32", help="that of the records")
    parser.add_argument("--out", type=Path, default=RESULTS.parent)
    parser.add_argument("--report", action="store_true", help="only show the rows of --out")
    options = parser.parse_args(words)
    if options.records is None and not options.report:
        parser.error("--records is needed: the folder of measure_reach --records")
    options.companion, options.candidate, options.device = ",".join(options.companions), BASE, "cpu"
    return options


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    path = options.out / RESULTS.name
    rows = read_rows(path)
    for cell in () if options.report else plan(options, ()):
        if any((row["dataset"], row["division"]) == (cell["dataset"], cell["division"]) for row in rows):
            continue
        store = open_dataset(cell["dataset"], options.root).store
        ledger = cross_validation(cell, store, options).run()
        facts = {name: cell[name] for name in ("dataset", "division", "members", "folds")}
        rows.append(
            facts | {"log_loss": subset_losses(ledger, options.companions), "versions": versions_and_commit()}
        )
        write_lines(path, sorted(rows, key=lambda row: (row["dataset"], row["division"])))
    print(report(rows))


if __name__ == "__main__":
    main()
