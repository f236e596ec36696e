"""Programs that graphcaps is compared with in speed; each passes a check before it is timed."""

from benchmarks.baselines.baseline import Baseline
from benchmarks.baselines.padded_hgcn import PaddedHGCN, PaddedOutput
from benchmarks.baselines.padded_training import PaddedGraphs, PaddedTraining, check_padded, padded_bytes
from benchmarks.baselines.pyg_training import PygKind, PygTraining, pyg_graphs

__all__ = [
    "Baseline",
    "PaddedGraphs",
    "PaddedHGCN",
    "PaddedOutput",
    "PaddedTraining",
    "PygKind",
    "PygTraining",
    "check_padded",
    "padded_bytes",
    "pyg_graphs",
]
