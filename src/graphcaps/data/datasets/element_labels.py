"""Which element or bond a label of a data set stands for, as the data sets' own README files say.

NCI1 and NCI109 come without such a list: their labels stay numbers here, and pictures say so.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphcaps.data.store import GraphStore

__all__ = ["BONDS", "ELEMENTS", "MOLECULES", "SYMBOLS", "atom_names", "label_names", "label_words"]


_TABLE = (
    "* H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y "
    "Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os "
    "Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh "
    "Fl Mc Lv Ts Og"
)
SYMBOLS = tuple(_TABLE.split())
"""Symbol of each atomic number; 0 is an atom of any element."""

_COLUMNS = ("element", "charge", "aromatic", "hydrogens")  # as read_smiles has them
_BONDS = ("", "single", "double", "triple", "aromatic", "other")
_SHOWN = 3


def label_words(store: GraphStore, column: int, values: Iterable[int], *, kind: str = "node") -> str:
    """Labels of a store, the first three of them: "element S" where it was read from SMILES, else "node label 16".

    Args:
        store (GraphStore): Whose labels they are.
        column (int): Label column, from 0.
        values (iterable): Different labels of it.
        kind (str): ``"node"`` or ``"edge"``. (default: ``"node"``)
    """
    listed = [int(value) for value in values]
    one, texts = f"{kind} label", [str(value) for value in listed]
    if "element" in store.truth and kind == "node" and column < len(_COLUMNS):
        one = _COLUMNS[column]
        if not column:
            texts = [SYMBOLS[value] if 0 <= value < len(SYMBOLS) else str(value) for value in listed]
    elif "element" in store.truth and kind == "edge" and not column:
        one = "bond"
        texts = [_BONDS[value] if 0 < value < len(_BONDS) else str(value) for value in listed]
    told = ", ".join(texts[:_SHOWN]) + (", …" if len(texts) > _SHOWN else "")
    plural = len(listed) > 1 and one not in ("aromatic", "hydrogens")
    return f"{one}{'s' if plural else ''} {told}"


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
