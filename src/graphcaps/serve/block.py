"""Explanations as the report's page reads them, so that the same code draws them here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcaps.explanation.report.block import pack_block
from graphcaps.explanation.report.columns import Columns, explanation_columns, smallest_type
from graphcaps.explanation.types import StoreExplanation
from graphcaps.imports import require
from graphcaps.serve.items import Item

__all__ = ["page_block"]


def page_block(found: StoreExplanation, items: Sequence[Item], numbers: Sequence[int]) -> str:
    """The data block of the page.

    Args:
        found (StoreExplanation): Graphs that have a class.
        items (sequence): All graphs of the request.
        numbers (sequence): Which of them each graph of ``found`` is, from 0.
    """
    last = len(found.rounds[0]) - 1
    columns, steps = explanation_columns(found, np.arange(len(found)), weights=range(1, last + 1))
    columns["number"] = np.asarray(numbers, dtype=np.uint32)
    meta = {
        "classes": list(found.class_names),
        "levels": [
            {"capsules": own.size(-1), "step": step}
            for own, step in zip(found.assignments, steps, strict=True)
        ],
        "rounds": last + 1,
        "names": [items[number].name for number in numbers],
        "molecules": all(items[number].smiles for number in numbers),
    }
    if found.node_labels is not None and found.node_labels.size(-1):
        names, label = _labels(found, [items[number] for number in numbers])
        columns |= label
        meta["labels"] = {"names": names}
    return pack_block(meta, columns)


def _labels(found: StoreExplanation, items: Sequence[Item]) -> tuple[list[str], Columns]:
    """Names of the different labels, and which of them each node has."""
    assert found.node_labels is not None
    different, place = np.unique(found.node_labels.numpy(), axis=0, return_inverse=True)
    texts = {code: text for item in items for code, text in item.texts.items()}
    molecules = all(item.smiles for item in items)
    if molecules:
        chem = require("rdkit.Chem", extra="chem", purpose="Reading SMILES")
        symbols = chem.GetPeriodicTable()
        texts = {int(row[0]): str(symbols.GetElementSymbol(int(row[0]))) for row in different}
    names = []
    for row in different.tolist():
        first = texts.get(row[0], str(row[0]))
        # An atom's charge, aromaticity and hydrogens would not fit on it.
        names.append(_atom(first, row) if molecules else "/".join([first, *map(str, row[1:])]))
    return names, {"label": place.reshape(-1).astype(smallest_type(len(different)))}


def _atom(symbol: str, row: list[int]) -> str:
    """An element with its charge, where that is known: N+, O−."""
    charge = row[1] if len(row) > 1 else 0
    sign = "" if not charge else "+" if charge > 0 else "−"
    return f"{symbol}{abs(charge) if abs(charge) > 1 else ''}{sign}"
