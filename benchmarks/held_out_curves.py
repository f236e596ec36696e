"""Curves of stored held-out trainings, seed by seed."""

from __future__ import annotations

from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.evaluation.record import RecordKey
from graphcaps.evaluation.results_store import ResultsStore

__all__ = ["MOST_SEEDS", "held_out_curves"]

MOST_SEEDS = 5


def held_out_curves(store: ResultsStore, dataset: str, variant: str = "hgcn") -> list[EpochRecords]:
    """Of every seed that there is a record of, in the order of seeds."""
    records = (store.get(RecordKey(dataset, variant, "held-out", seed)) for seed in range(MOST_SEEDS))
    return [record.curves for record in records if record is not None]
