"""The systems that the paper compares with: their models here, and how their published results were selected.

The paper quotes results of other publications, which select the epoch or the parameters in five different ways. Its
tables 1 and 2 and 5 and 6 therefore compare unlike numbers; the protocol of each row says which.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["PAPER_SYSTEMS", "PaperSystem", "find_system"]

_C = "C: one epoch for all folds, chosen on test data"
_C_STAR = "C*: each fold's best test epoch"
_VALIDATION = "epoch chosen on validation data"
_SVM = "SVM, parameters chosen inside the training part"
_UNKNOWN = "selection of the epoch not published"


@dataclass(frozen=True)
class PaperSystem:
    """A row of the paper's tables.

    Args:
        row (str): Name in the paper's tables.
        model (str): Name of the model in the registry.
        protocol (str): How its published results were selected.
        slips (dict): Data sets whose published value is a slip, with the correction in words.
    """

    row: str
    model: str
    protocol: str
    slips: dict[str, str] = field(default_factory=dict)


_GK_SLIP = "the value repeats that of IMDB-BINARY; its source has 77.34"

PAPER_SYSTEMS = (
    PaperSystem("GK", "gk", _SVM, {"REDDIT-BINARY": _GK_SLIP}),
    PaperSystem("WL", "wl", _SVM),
    PaperSystem("DGK", "dgk", _SVM),
    PaperSystem("AWE", "awe", _VALIDATION),
    PaperSystem("PSCN", "pscn", _UNKNOWN),
    PaperSystem("GCN", "gcn", _C),
    PaperSystem("GFN", "gfn", _C),
    PaperSystem("GIN", "gin", _C),
    PaperSystem("DGCNN", "dgcnn", "last epoch, mean of ten repetitions"),
    PaperSystem("SAGPool", "sagpool", f"{_VALIDATION}, 20 seeds"),
    PaperSystem("ASAP", "asap", f"{_VALIDATION}, 20 seeds"),
    PaperSystem("DIFFPOOL", "diffpool", _C),
    PaperSystem("EigenPooling", "eigenpool", _VALIDATION),
    PaperSystem(
        "HaarPool", "haarpool", "run by the authors of the paper; selection of the epoch not published"
    ),
    PaperSystem("CLIQUEPOOL", "cliquepool", _UNKNOWN),
    PaperSystem("CapsGNN", "capsgnn", _VALIDATION),
    PaperSystem("GCAPS-CNN", "gcaps-cnn", _UNKNOWN),
    PaperSystem("STRUCTPOOL", "structpool", _C_STAR),
    PaperSystem("MemGNN", "memgnn", _C_STAR),
    PaperSystem("GMN", "gmn", _C_STAR),
    PaperSystem("Ours", "hgcn", _C),
)
"""The systems, HGCN last; kernels first, then networks."""


def find_system(row: str) -> PaperSystem | None:
    """The system of a row of the paper's tables; ``None`` if there is none of that name."""
    return next((system for system in PAPER_SYSTEMS if system.row == row), None)
