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


def check_drawing(path: Path | None, kind: str | None, graph: str | None) -> None:
    """Refuses, before anything is computed, a picture that could not be drawn."""
    from graphcaps.explanation.drawings_base import check_ending
    from graphcaps.explanation.drawings_explanation import DrawingKind

    kinds = get_args(DrawingKind)
    if kind is not None and (path is None or kind not in kinds):
        expected = f"be one of {', '.join(kinds)}" if path is not None else "stand with --draw"
        raise ArgumentError("explain", "--kind", expected, f"'{kind}'")
    if path is not None:
        if graph is None:
            raise ArgumentError("explain", "--draw", "stand with --graph", "none")
        check_ending("explain", path)


def draw(path: Path, kind: str | None, one: Explanation, loaded: LoadedDataset, graph: int) -> None:
    """Draws a molecule as one where its SMILES are known, and any graph otherwise."""
    from graphcaps.explanation.molecule import molecule_from_smiles, molecule_from_store
    from graphcaps.explanation.molecule_picture import can_draw_molecule, draw_explained_molecule

    if kind is None:
        kind = MOLECULE if can_draw_molecule(one, path) else "parts"
    if kind != MOLECULE:
        one.draw(path, kind=kind)  # type: ignore[arg-type]
        return
    smiles = _smiles(loaded, graph)
    if one.nodes is not None and one.elements is not None:
        draw_explained_molecule(one, path)  # the atoms that the model read
    elif smiles is not None:  # atom i of the SMILES that a table was read to is node i
        draw_explained_molecule(one, path, molecule_from_smiles(smiles))
    elif one.elements is None and loaded.store.node_labels is None:
        raise ArgumentError(
            "explain", "--kind", "be another for graphs that are no molecules", f"'{MOLECULE}'"
        )
    else:
        draw_explained_molecule(one, path, molecule_from_store(loaded.store, graph))


def _smiles(loaded: LoadedDataset, graph: int) -> str | None:
    listed = None if loaded.rows is None else loaded.rows.smiles
    return None if not listed else listed[graph]
