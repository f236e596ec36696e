"""Explanations as the report's page reads them, so that the same code draws them here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcaps.explanation.molecule_labels import atom_names
from graphcaps.explanation.report.block import pack_block
from graphcaps.explanation.report.columns import Columns, explanation_columns, smallest_type
from graphcaps.explanation.types import StoreExplanation
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
    kinds = [tuple(row) for row in different.tolist()]
    if molecules:
        names = atom_names(kinds)
    else:
        names = ["/".join([texts.get(first, str(first)), *map(str, rest)]) for first, *rest in kinds]
    return names, {"label": place.reshape(-1).astype(smallest_type(len(different)))}
