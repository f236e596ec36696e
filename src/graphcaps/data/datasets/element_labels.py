"""Readable names for the labels of molecules: element symbols and bond types.

Stores read from SMILES hold atomic numbers (``store.truth["element"]`` marks them). For MUTAG and PTC_MR the tables
below come from the README files of the data sets. NCI1 and NCI109 have no such list, so that their labels stay numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphcaps.data.label_encoding import label_text
from graphcaps.data.readers.molecules import ATOM_COLUMNS, BOND_LABELS
from graphcaps.data.store import GraphStore

__all__ = [
    "EDGE_LABEL_BONDS",
    "ELEMENT_SYMBOLS",
    "NODE_LABEL_ELEMENTS",
    "describe_labels",
    "node_label_names",
]

_TABLE = (
    "* H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y "
    "Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os "
    "Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh "
    "Fl Mc Lv Ts Og"
)
ELEMENT_SYMBOLS = tuple(_TABLE.split())
"""Symbol of each atomic number; 0 is an atom of any element."""

NODE_LABEL_ELEMENTS: dict[str, tuple[str, ...]] = {
    "MUTAG": ("C", "N", "O", "F", "I", "Cl", "Br"),
    "PTC_MR": (
        *("In", "P", "O", "N", "Na", "C", "Cl", "S", "Br", "F", "K", "Cu", "Zn", "I", "Ba", "Sn", "Pb", "Ca"),
    ),
}
"""Element of each node label, by data set."""

EDGE_LABEL_BONDS: dict[str, tuple[str, ...]] = {
    "MUTAG": ("aromatic", "single", "double", "triple"),
    "PTC_MR": ("triple", "double", "single", "aromatic"),
}
"""Bond type of each edge label, by data set."""

_MAX_LISTED = 3


def node_label_names(
    labels: Sequence[tuple[int, ...]],
    *,
    atomic_numbers: bool = False,
    dataset: str = "",
    texts: Mapping[int, str] | None = None,
) -> list[str]:
    """Display name of each row of node labels.

    Args:
        labels (sequence): Rows of a store's ``node_labels``.
        atomic_numbers (bool): Whether the store was read from SMILES: the first column is an atomic number, the
            second, if any, a formal charge. The name is then the symbol with its charge. (default: ``False``)
        dataset (str): Otherwise, a data set of :data:`NODE_LABEL_ELEMENTS` gives the element of a single label.
        texts (mapping, optional): Text of the labels that are codes of text, ``store.label_names``.

    Returns:
        list: One name per row; text or the numbers, joined by ``/``, where no name is known.
    """
    if atomic_numbers:
        return [_atom_name(number, others[0] if others else 0) for number, *others in labels]
    elements, known = NODE_LABEL_ELEMENTS.get(dataset, ()), texts or {}
    return [
        elements[row[0]]
        if len(row) == 1 and 0 <= row[0] < len(elements)
        else "/".join(known.get(code, str(code)) for code in row)
        for row in labels
    ]


def describe_labels(store: GraphStore, column: int, values: Iterable[int], *, kind: str = "node") -> str:
    """Lists up to three labels for a message: "element S" in a store read from SMILES, else "node label 16" or, for a
    label that is text, "node label 'red'".

    Args:
        store (GraphStore): The store that the labels come from.
        column (int): Label column, from 0.
        values (iterable): Distinct labels of that column.
        kind (str): ``"node"`` or ``"edge"``. (default: ``"node"``)
    """
    listed = [int(value) for value in values]
    noun, texts = f"{kind} label", label_text(listed, store.label_names)
    atom_columns = ATOM_COLUMNS["full"]
    if "element" in store.truth and kind == "node" and column < len(atom_columns):
        noun = atom_columns[column]
        if not column:
            texts = [_symbol(value) for value in listed]
    elif "element" in store.truth and kind == "edge" and not column:
        noun = "bond"
        texts = [BOND_LABELS.get(value, str(value)) for value in listed]
    plural = len(listed) > 1 and noun not in ("aromatic", "hydrogens")
    shown = ", ".join(texts[:_MAX_LISTED]) + (", …" if len(texts) > _MAX_LISTED else "")
    return f"{noun}{'s' if plural else ''} {shown}"


def _atom_name(number: int, charge: int) -> str:
    sign = "" if not charge else "+" if charge > 0 else "−"
    return f"{_symbol(number)}{abs(charge) if abs(charge) > 1 else ''}{sign}"


def _symbol(number: int) -> str:
    return ELEMENT_SYMBOLS[number] if 0 <= number < len(ELEMENT_SYMBOLS) else str(number)
