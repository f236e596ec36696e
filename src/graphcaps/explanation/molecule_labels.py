"""Which element or bond a label of a data set stands for, as the data sets' own README files say.

NCI1 and NCI109 come without such a list: their labels stay numbers here, and pictures say so.
"""

from __future__ import annotations

from graphcaps.data.elements import SYMBOLS

__all__ = ["BONDS", "ELEMENTS", "MOLECULES", "SYMBOLS", "atom_names", "label_names"]

MOLECULES = ("MUTAG", "PTC_MR", "NCI1", "NCI109")
"""Data sets whose graphs are molecules."""

ELEMENTS: dict[str, tuple[str, ...]] = {
    "MUTAG": ("C", "N", "O", "F", "I", "Cl", "Br"),
    "PTC_MR": (
        *("In", "P", "O", "N", "Na", "C", "Cl", "S", "Br", "F", "K", "Cu", "Zn", "I", "Ba", "Sn", "Pb", "Ca"),
    ),
}
"""Element of each node label."""

BONDS: dict[str, tuple[str, ...]] = {
    "MUTAG": ("aromatic", "single", "double", "triple"),
    "PTC_MR": ("triple", "double", "single", "aromatic"),
}
"""Kind of bond of each edge label."""


def atom_names(labels: list[tuple[int, ...]]) -> list[str]:
    """How labels of stores read from SMILES are written: the element, and its charge where that is a label too."""
    names = []
    for number, *others in labels:
        charge = others[0] if others else 0
        sign = "" if not charge else "+" if charge > 0 else "−"
        symbol = SYMBOLS[number] if 0 <= number < len(SYMBOLS) else str(number)
        names.append(f"{symbol}{abs(charge) if abs(charge) > 1 else ''}{sign}")
    return names


def label_names(dataset: str, labels: list[tuple[int, ...]]) -> list[str]:
    """How labels are written: the element where it is known, else the number itself.

    Args:
        dataset (str): Name of the data set.
        labels (list): Different labels, each a row of the store's ``node_labels``.
    """
    elements = ELEMENTS.get(dataset, ())
    names = []
    for row in labels:
        known = len(row) == 1 and 0 <= row[0] < len(elements)
        names.append(elements[row[0]] if known else "/".join(str(value) for value in row))
    return names
