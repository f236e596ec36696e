"""Hyper-parameter search: batches of trials, trained as replicas of one computation and judged by validation loss."""

from graphcaps.search.nested_search import NestedResult
from graphcaps.search.search_space import SearchSpace, default_space, read_space, space_from_dict
from graphcaps.search.trial import Trial
from graphcaps.search.tune_function import TuneResult, TuneRun, tune
from graphcaps.search.tuning import Search, SearchProgress, SearchResult

__all__ = [
    "NestedResult",
    "Search",
    "SearchProgress",
    "SearchResult",
    "SearchSpace",
    "Trial",
    "TuneResult",
    "TuneRun",
    "default_space",
    "read_space",
    "space_from_dict",
    "tune",
]
