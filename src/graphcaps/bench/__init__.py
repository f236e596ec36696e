"""The bench: what our programs are timed against. A rival proves itself right before it is timed."""

from graphcaps.bench.padded import PaddedHGCN, PaddedOutput
from graphcaps.bench.padded_training import PaddedGraphs, PaddedTraining, check_padded, padded_bytes
from graphcaps.bench.pyg import PygKind, PygTraining, pyg_graphs
from graphcaps.bench.rival import Rival, RivalError

__all__ = [
    "PaddedGraphs",
    "PaddedHGCN",
    "PaddedOutput",
    "PaddedTraining",
    "PygKind",
    "PygTraining",
    "Rival",
    "RivalError",
    "check_padded",
    "padded_bytes",
    "pyg_graphs",
]
