"""The picture of one explanation that ``graphcaps explain --draw`` writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

from graphcaps.errors import ArgumentError

if TYPE_CHECKING:
    from graphcaps.data.datasets import LoadedDataset
    from graphcaps.explanation import Explanation

__all__ = ["check_drawing", "draw"]

MOLECULE = "molecule"


def check_drawing(path: Path | None, kind: str | None, graph: int | None) -> None:
    """Refuses, before anything is computed, a picture that could not be drawn."""
    from graphcaps.explanation.drawings_base import check_ending
    from graphcaps.explanation.drawings_explanation import DrawingKind

    kinds = (*get_args(DrawingKind), MOLECULE)
    if kind is not None and (path is None or kind not in kinds):
        expected = f"be one of {', '.join(kinds)}" if path is not None else "stand with --draw"
        raise ArgumentError("explain", "--kind", expected, f"'{kind}'")
    if path is not None:
        if graph is None:
            raise ArgumentError("explain", "--draw", "stand with --graph", "none")
        check_ending("explain", path)


def draw(path: Path, kind: str | None, one: Explanation, loaded: LoadedDataset, graph: int) -> None:
    """Draws a molecule as one where its SMILES are known, and any graph otherwise."""
    if kind is None:
        kind = MOLECULE if _smiles(loaded, graph) is not None else "parts"
    if kind != MOLECULE:
        one.draw(path, kind=kind)  # type: ignore[arg-type]
        return
    from graphcaps.explanation.molecule import draw_molecule, molecule_from_smiles, molecule_from_store

    smiles = _smiles(loaded, graph)
    # Atom i of the SMILES that a table was read to is node i.
    molecule = molecule_from_store(loaded.store, graph) if smiles is None else molecule_from_smiles(smiles)
    name, share = one.class_names[one.predicted], float(one.probabilities[one.predicted])
    draw_molecule(path, molecule, one.levels[0].capsule, title=f"{name}, {share:.0%}")


def _smiles(loaded: LoadedDataset, graph: int) -> str | None:
    listed = None if loaded.rows is None else loaded.rows.smiles
    return None if not listed else listed[graph]
