"""The bench: what our programs are timed against. A rival proves itself right before it is timed."""

from graphcaps.bench.entries import entry, merge_entries, read_entries
from graphcaps.bench.phases import PhaseTime, StepTime, time_phases
from graphcaps.bench.rivals.padded import PaddedHGCN, PaddedOutput
from graphcaps.bench.rivals.padded_training import PaddedGraphs, PaddedTraining, check_padded, padded_bytes
from graphcaps.bench.rivals.pyg_training import PygKind, PygTraining, pyg_graphs
from graphcaps.bench.rivals.rival import Rival, RivalError
from graphcaps.bench.roofline import (
    PHASES,
    Ceilings,
    Count,
    StepSizes,
    count_phases,
    measure_ceilings,
    step_sizes,
)
from graphcaps.bench.scaling import SIZES, Scaling, measure_scaling, scaling_entries
from graphcaps.bench.speed import RIVALS, RivalTime, Speed, measure_speed

__all__ = [
    "PHASES",
    "RIVALS",
    "SIZES",
    "Ceilings",
    "Count",
    "PaddedGraphs",
    "PaddedHGCN",
    "PaddedOutput",
    "PaddedTraining",
    "PhaseTime",
    "PygKind",
    "PygTraining",
    "Rival",
    "RivalError",
    "RivalTime",
    "Scaling",
    "Speed",
    "StepSizes",
    "StepTime",
    "check_padded",
    "count_phases",
    "entry",
    "measure_ceilings",
    "measure_scaling",
    "measure_speed",
    "merge_entries",
    "padded_bytes",
    "pyg_graphs",
    "read_entries",
    "scaling_entries",
    "step_sizes",
    "time_phases",
]
