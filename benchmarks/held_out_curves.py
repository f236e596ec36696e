"""Learning curves of stored held-out trainings."""

from __future__ import annotations

from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.evaluation.record import RecordKey
from graphcaps.evaluation.results_store import ResultsStore

__all__ = ["MAX_SEEDS", "held_out_curves"]

MAX_SEEDS = 5


def held_out_curves(store: ResultsStore, dataset: str, variant: str = "hgcn") -> list[EpochRecords]:
    """Learning curves of a data set and variant, one per stored seed, in the order of seeds."""
    records = (store.get(RecordKey(dataset, variant, "held-out", seed)) for seed in range(MAX_SEEDS))
    return [record.curves for record in records if record is not None]
