"""The rows that this project trains: HGCN, its ablations, its sensitivity, and the text against the program."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from graphcaps.engine.config import RunConfig
from graphcaps.paper.presets import load_preset

__all__ = ["ABLATIONS", "EQUATIONS", "VARIANTS", "Variant", "find_variant"]


@dataclass(frozen=True)
class Variant:
    """A row of tables 1 to 6 that is a change of the paper's presets.

    Args:
        row (str): Its name in tables, ``"HGCN"``.
        name (str): Its name in records, ``"hgcn"``.
        published (str, optional): Its name in the published tables, ``"Ours"``; ``None`` where they have none.
        what (str): What it is, in words.
        changes (dict): Arguments of the model in place of the preset's.
    """

    row: str
    name: str
    published: str | None
    what: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def formulation(self) -> str:
        return str(self.changes.get("formulation", "released"))

    def config(self, dataset: str, *, epochs: int | None = None, precision: str | None = None) -> RunConfig:
        """The preset of a data set with this variant's changes."""
        preset = load_preset("paper", dataset)
        changed = replace(preset, model_arguments=preset.model_arguments | self.changes)
        return changed.with_training(epochs=epochs, precision=precision)


EQUATIONS = "HGCN (equations)"

VARIANTS: tuple[Variant, ...] = (
    Variant("A1", "A1", "A1", "no disentangling: features as capsules", {"disentangle": False}),
    Variant("A2", "A2", "A2", "no residual", {"residual": False}),
    Variant("A3", "A3", "A3", "no reconstruction", {"reconstruction": False}),
    Variant("HGCN", "hgcn", "Ours", "as released: K = 4 factors, R = 3 rounds"),
    *(Variant(f"K={K}", f"K={K}", f"K={K}", f"{K} factors", {"num_factors": K}) for K in (2, 8)),
    *(
        Variant(
            f"R={R}", f"R={R}", f"R={R}", f"{R} round{'s' * (R > 1)} of routing", {"routing_iterations": R}
        )
        for R in (1, 2, 4, 5)
    ),
    Variant(
        EQUATIONS,
        "equations",
        None,
        "the text's equations, not the released program",
        {"formulation": "paper"},
    ),
)
"""In the order of the paper's tables 3 and 4."""

ABLATIONS = ("A1", "A2", "A3")


def find_variant(row: str) -> Variant | None:
    """The variant of that row; case does not matter."""
    return next((variant for variant in VARIANTS if variant.row.lower() == row.lower()), None)
