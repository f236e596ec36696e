"""``summary.csv``: a line per record, so that a change of results shows in a diff."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphcaps._io.csv_cells import csv_text
from graphcaps.evaluation.fold_metrics import FOLD_METRICS
from graphcaps.evaluation.ledger import RULES, choose_epochs
from graphcaps.evaluation.record import SeedRecord

__all__ = ["COLUMNS", "summary_csv"]

COLUMNS = (
    *("dataset", "variant", "protocol", "seed", "folds", "epochs"),
    *RULES,
    *FOLD_METRICS,
    *("seconds", "hardware", "finished", "commit"),
)
"""Header of the table. Accuracies of the rules are in percent, the other metrics as they are; all are means over folds.
Columns of the other protocol, and of metrics that a record does not have, are empty."""


def summary_csv(records: Iterable[SeedRecord]) -> str:
    """The table as text, sorted by key; with a column ``division`` at the end if there are several."""
    records = sorted(records, key=lambda record: record.key)
    has_divisions = any(record.key.division for record in records)
    table: list[Sequence[object]] = [(*COLUMNS, *(("division",) if has_divisions else ()))]
    for record in records:
        choices = choose_epochs(record)
        accuracies = [f"{choices[name].mean:.2f}" if name in choices else "" for name in RULES]
        accuracies += [_mean(record, name) for name in FOLD_METRICS]
        key, curves = record.key, record.curves
        sizes = (curves.num_folds, curves.num_epochs)
        origin = (record.seconds, record.hardware, record.finished, record.versions.get("commit", ""))
        division = (key.division,) if has_divisions else ()
        names = (key.dataset, key.variant, key.protocol, key.seed)
        table.append([*names, *sizes, *accuracies, *origin, *division])
    return csv_text(table)


def _mean(record: SeedRecord, name: str) -> str:
    """Mean of a metric over folds; "" if the record does not have it, or it is not defined in a fold."""
    values = None if record.metrics is None else record.metrics.fold_values(name)
    return "" if values is None else f"{values.mean():.4f}"
