"""Readable names for the labels of molecules: elements, bond types and the other columns of featurizers.

Stores read from SMILES have a featurizer, which names their label columns, and atomic numbers
(``store.truth["element"]``). For MUTAG and PTC_MR the tables below come from the README files of the data sets. NCI1
and NCI109 have no such list, so that their labels stay numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.chemistry.featurizers import ELEMENT_SYMBOLS, OTHER, find_featurizer
from graphcaps.data.label_encoding import label_text
from graphcaps.data.store import GraphStore

__all__ = [
    "EDGE_LABEL_BONDS",
    "NODE_LABEL_ELEMENTS",
    "atom_names",
    "describe_labels",
    "name_node_labels",
]

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


def atom_names(numbers: Iterable[int]) -> list[str]:
    """The element symbol of each atomic number."""
    known = range(len(ELEMENT_SYMBOLS))
    return [ELEMENT_SYMBOLS[number] if number in known else str(number) for number in map(int, numbers)]


def name_node_labels(
    labels: Tensor,
    *,
    featurizer: str | None = None,
    elements: Tensor | None = None,
    dataset: str = "",
    texts: Mapping[int, str] | None = None,
) -> tuple[list[str], NDArray[np.int64]]:
    """Distinct display names of nodes, and the index of each node's name among them.

    Args:
        labels (Tensor): Node labels, ``[N, L]``.
        featurizer (str, optional): Featurizer of molecules read from SMILES. A name is then the element with its
            charge, if there is a column of charges: C, N, N+.
        elements (Tensor, optional): Atomic numbers, ``[N]``, for elements outside the featurizer's vocabulary.
        dataset (str): Otherwise, a data set of :data:`NODE_LABEL_ELEMENTS` gives the element of a single label.
        texts (mapping, optional): Text of the labels that are codes of text, ``store.label_names``.

    Returns:
        tuple: Names, and indices ``[N]``. Where no name is known, a name is the text or numbers joined by ``/``.
    """
    rows, index = np.unique(labels.numpy(), axis=0, return_inverse=True)
    index = index.reshape(-1)
    if featurizer is None:
        return _label_names(rows, dataset, texts or {}), index
    columns = find_featurizer(featurizer)
    symbols = columns.atoms[0].values
    charge = columns.atom_column("charge")
    signs = [""] * len(rows)
    if charge is not None:
        signs = [_sign(columns.atoms[charge].word(code)) for code in rows[:, charge].tolist()]
    words = [f"{symbols[code]}{sign}" for code, sign in zip(rows[:, 0].tolist(), signs, strict=True)]
    names = np.array(words, dtype=object)[index]
    if elements is not None:
        unlisted = np.flatnonzero(rows[index, 0] == columns.atoms[0].other)
        actual = atom_names(elements[unlisted].tolist())
        names[unlisted] = [f"{name}{signs[index[node]]}" for node, name in zip(unlisted, actual, strict=True)]
    distinct, places = np.unique(names.astype(str), return_inverse=True)
    return distinct.tolist(), places.reshape(-1)


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
    noun, texts = f"{kind} label{'s' if len(listed) > 1 else ''}", label_text(listed, store.label_names)
    if store.featurizer is not None:
        feature = find_featurizer(store.featurizer).columns(kind)[column]
        noun = feature.name if kind == "node" else f"bond {feature.name}"
        texts = [feature.word(value) for value in listed]
    return f"{noun} {', '.join(texts[:_MAX_LISTED])}{', …' if len(texts) > _MAX_LISTED else ''}"


def _label_names(rows: NDArray[np.int64], dataset: str, texts: Mapping[int, str]) -> list[str]:
    """Names of labels that no featurizer describes."""
    elements = NODE_LABEL_ELEMENTS.get(dataset, ())
    return [
        elements[row[0]]
        if len(row) == 1 and 0 <= row[0] < len(elements)
        else "/".join(texts.get(code, str(code)) for code in row)
        for row in rows.tolist()
    ]


def _sign(charge: str) -> str:
    """A charge behind an element symbol: "+", "2−", or nothing for 0 and for a charge without a value."""
    if charge in ("0", OTHER):
        return ""
    return f"{charge[1:] if charge[1:] != '1' else ''}{'+' if charge[0] == '+' else '−'}"
