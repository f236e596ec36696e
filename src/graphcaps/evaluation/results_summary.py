"""``summary.csv``: a line per record, so that a change of results shows in a diff."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from graphcaps.evaluation.ledger import RULES, choose_epochs
from graphcaps.evaluation.record import SeedRecord

__all__ = ["COLUMNS", "summary_csv"]

COLUMNS = (
    *("dataset", "variant", "protocol", "seed", "folds", "epochs"),
    *RULES,
    *("seconds", "hardware", "finished", "commit"),
)
"""Header of the table. Accuracies are in percent, means over folds; the columns of the other protocol are empty."""


def summary_csv(records: Iterable[SeedRecord]) -> str:
    """The table as text, sorted by key."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in sorted(records, key=lambda record: record.key):
        choices = choose_epochs(record)
        accuracies = [f"{choices[name].mean:.2f}" if name in choices else "" for name in RULES]
        key, curves = record.key, record.curves
        sizes = (curves.num_folds, curves.num_epochs)
        origin = (record.seconds, record.hardware, record.finished, record.versions.get("commit", ""))
        writer.writerow([key.dataset, key.variant, key.protocol, key.seed, *sizes, *accuracies, *origin])
    return text.getvalue()
