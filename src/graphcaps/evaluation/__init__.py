"""Evaluation: cross-validation with folds and seeds as replicas, epoch selection, records and results stores."""

from graphcaps.evaluation.cross_validation import CrossValidation, cross_validate
from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.evaluation.epoch_selection import AccuracyEstimate, Choice
from graphcaps.evaluation.joint_training import GroupEpoch
from graphcaps.evaluation.ledger import RULES, Ledger
from graphcaps.evaluation.record import RecordKey, SeedRecord
from graphcaps.evaluation.results_store import MergeReport, ResultsStore

__all__ = [
    "RULES",
    "AccuracyEstimate",
    "Choice",
    "CrossValidation",
    "EpochRecords",
    "GroupEpoch",
    "Ledger",
    "MergeReport",
    "RecordKey",
    "ResultsStore",
    "SeedRecord",
    "cross_validate",
]
