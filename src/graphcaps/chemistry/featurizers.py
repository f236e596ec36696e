"""Featurizers: which properties of atoms and bonds become label columns of a molecule's graph.

A featurizer has a name and fixed vocabularies. Code i of a column stands for ``values[i]``, whatever file the molecules
come from, so that a trained model reads new molecules the same way. The vocabularies, and RDKit's number of each value:

==================  ================================================================================================
atom column         values
==================  ================================================================================================
``element``         H, Li, B, C, N, O, F, Na, Mg, Si, P, S, Cl, K, Ca, As, Se, Br, I, other
``charge``          −2, −1, 0, +1, +2, other: the formal charge
``hydrogens``       0, 1, 2, 3, 4, other: bonded hydrogens, which are no nodes
``aromatic``        no, yes
``ring``            none, 3, 4, 5, 6, 7, 8, other: number of atoms of the smallest ring that contains the atom
``hybridisation``   s, sp, sp2, sp3, sp3d, sp3d2, other
``chirality``       none, R, S: the CIP label of a tetrahedral stereocentre, as far as RDKit assigns one
==================  ================================================================================================

==================  ================================================================================================
bond column         values
==================  ================================================================================================
``type``            single, double, triple, aromatic, other
``conjugated``      no, yes
``ring``            no, yes
``stereo``          none, E, Z: the CIP label of a double bond
==================  ================================================================================================

Degree is not among the columns: it is a property of every graph, and :class:`graphcaps.data.FeatureRecipe` adds it.
The first atom column is ``element`` and the first bond column is ``type`` in every featurizer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphcaps.errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = [
    "BOND_TYPE",
    "DEFAULT_FEATURIZER",
    "ELEMENT",
    "ELEMENT_SYMBOLS",
    "FEATURIZERS",
    "OTHER",
    "FeatureColumn",
    "Featurizer",
    "find_featurizer",
    "has_codes",
]

OTHER = "other"
"""The value of everything that a vocabulary does not list."""

_TABLE = (
    "* H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y "
    "Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os "
    "Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh "
    "Fl Mc Lv Ts Og"
)
ELEMENT_SYMBOLS = tuple(_TABLE.split())
"""Symbol of each atomic number; 0 is an atom of any element."""


@dataclass(frozen=True)
class FeatureColumn:
    """One label column of atoms or of bonds.

    Args:
        name (str): What the column holds.
        values (tuple): The values in words; a code is an index of this tuple. ``"other"``, if there is one, is last.
        numbers (tuple): RDKit's number of each value but ``"other"``, in the same order.
        read (callable): The numbers of the atoms (or bonds) of a molecule, from the RDKit molecule and a list of its
            atoms (or bonds).
    """

    name: str
    values: tuple[str, ...]
    numbers: tuple[int, ...]
    read: Callable[[Any, Sequence[Any]], list[int]] = field(compare=False, repr=False)

    @property
    def other(self) -> int | None:
        """The code of ``"other"``; ``None`` if every number has a value of its own."""
        return len(self.values) - 1 if self.values[-1] == OTHER else None

    def codes(self, numbers: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The code of each number; of an unlisted number, that of ``"other"``, or 0 where there is none."""
        import numpy as np  # here: the processes that call RDKit never need it, and start faster without

        listed = np.asarray(self.numbers, dtype=np.int64)
        order = np.argsort(listed)
        values = np.asarray(numbers, dtype=np.int64)
        index = order[np.searchsorted(listed, values, sorter=order).clip(max=len(listed) - 1)]
        return np.where(listed[index] == values, index, self.other or 0)

    def word(self, code: int) -> str:
        """The value that a code stands for; the code itself outside the vocabulary."""
        return self.values[code] if 0 <= code < len(self.values) else str(code)


@dataclass(frozen=True)
class Featurizer:
    """The label columns of atoms and of bonds, under a name.

    Args:
        name (str): Name, as in ``featurizer="standard"`` and ``--atoms standard``.
        atoms (tuple): Columns of ``store.node_labels``.
        bonds (tuple): Columns of ``store.edge_labels``.
    """

    name: str
    atoms: tuple[FeatureColumn, ...]
    bonds: tuple[FeatureColumn, ...]

    def columns(self, kind: str) -> tuple[FeatureColumn, ...]:
        """Columns of the labels of kind ``"node"`` or ``"edge"``."""
        return self.atoms if kind == "node" else self.bonds

    def atom_column(self, name: str) -> int | None:
        """Index of an atom column; ``None`` if this featurizer does not have it."""
        return next((index for index, column in enumerate(self.atoms) if column.name == name), None)


def find_featurizer(name: str, owner: str = "from_smiles", argument: str = "featurizer") -> Featurizer:
    """The featurizer of a name.

    Raises:
        ArgumentError: If there is none of that name; the message lists the names.
    """
    if name not in FEATURIZERS:
        expected = f"be one of {', '.join(map(repr, FEATURIZERS))}"
        raise ArgumentError(owner, argument, expected, repr(name))
    return FEATURIZERS[name]


def has_codes(featurizer: Featurizer, kind: str, labels: Tensor) -> bool:
    """Whether label columns ``[rows, columns]`` of kind ``"node"`` or ``"edge"`` hold codes of a featurizer."""
    columns = featurizer.columns(kind)
    return labels.size(1) == len(columns) and all(
        bool(((values >= 0) & (values < len(column.values))).all())
        for column, values in zip(columns, labels.unbind(1), strict=True)
    )


# ---------------------------------------------------------------------- numbers of atoms and bonds, from RDKit
def _elements(molecule: Any, atoms: Sequence[Any]) -> list[int]:
    return [atom.GetAtomicNum() for atom in atoms]


def _charges(molecule: Any, atoms: Sequence[Any]) -> list[int]:
    return [atom.GetFormalCharge() for atom in atoms]


def _hydrogens(molecule: Any, atoms: Sequence[Any]) -> list[int]:
    return [atom.GetTotalNumHs() for atom in atoms]


def _aromatic(molecule: Any, atoms: Sequence[Any]) -> list[int]:
    return [atom.GetIsAromatic() for atom in atoms]


def _ring_sizes(molecule: Any, atoms: Sequence[Any]) -> list[int]:
    """Size of the smallest ring of each atom, 0 outside rings."""
    sizes: dict[int, int] = {}
    for ring in molecule.GetRingInfo().AtomRings():
        for atom in ring:
            sizes[atom] = min(len(ring), sizes.get(atom, len(ring)))
    return [sizes.get(atom.GetIdx(), 0) for atom in atoms] if sizes else [0] * len(atoms)


def _hybridisation(molecule: Any, atoms: Sequence[Any]) -> list[int]:
    return [int(atom.GetHybridization()) for atom in atoms]


def _chirality(molecule: Any, atoms: Sequence[Any]) -> list[int]:
    """1 for R, 2 for S, 0 for every other atom."""
    labels = (atom.GetProp("_CIPCode") if atom.HasProp("_CIPCode") else "" for atom in atoms)
    return [{"R": 1, "S": 2}.get(label, 0) for label in labels]


def _bond_types(molecule: Any, bonds: Sequence[Any]) -> list[int]:
    return [int(bond.GetBondType()) for bond in bonds]


def _conjugated(molecule: Any, bonds: Sequence[Any]) -> list[int]:
    return [bond.GetIsConjugated() for bond in bonds]


def _bonds_in_rings(molecule: Any, bonds: Sequence[Any]) -> list[int]:
    return [bond.IsInRing() for bond in bonds]


def _bond_stereo(molecule: Any, bonds: Sequence[Any]) -> list[int]:
    return [int(bond.GetStereo()) for bond in bonds]


# ---------------------------------------------------------------------- columns
_VOCABULARY = (
    "H",
    "Li",
    "B",
    "C",
    "N",
    "O",
    "F",
    "Na",
    "Mg",
    "Si",
    "P",
    "S",
    "Cl",
    "K",
    "Ca",
    "As",
    "Se",
    "Br",
    "I",
)
_YES_NO = ("no", "yes")

ELEMENT = FeatureColumn(
    "element", (*_VOCABULARY, OTHER), tuple(map(ELEMENT_SYMBOLS.index, _VOCABULARY)), _elements
)
"""The first atom column of every featurizer."""
_CHARGE = FeatureColumn("charge", ("-2", "-1", "0", "+1", "+2", OTHER), (-2, -1, 0, 1, 2), _charges)
_HYDROGENS = FeatureColumn("hydrogens", ("0", "1", "2", "3", "4", OTHER), (0, 1, 2, 3, 4), _hydrogens)
_AROMATIC = FeatureColumn("aromatic", _YES_NO, (0, 1), _aromatic)
_RING = FeatureColumn(
    "ring", ("none", "3", "4", "5", "6", "7", "8", OTHER), (0, 3, 4, 5, 6, 7, 8), _ring_sizes
)
_HYBRIDISATION = FeatureColumn(  # numbers of rdkit.Chem.HybridizationType
    "hybridisation", ("s", "sp", "sp2", "sp3", "sp3d", "sp3d2", OTHER), (1, 2, 3, 4, 6, 7), _hybridisation
)
_CHIRALITY = FeatureColumn("chirality", ("none", "R", "S"), (0, 1, 2), _chirality)

BOND_TYPE = FeatureColumn(  # numbers of rdkit.Chem.BondType
    "type", ("single", "double", "triple", "aromatic", OTHER), (1, 2, 3, 12), _bond_types
)
"""The first bond column of every featurizer."""
_CONJUGATED = FeatureColumn("conjugated", _YES_NO, (0, 1), _conjugated)
_BOND_RING = FeatureColumn("ring", _YES_NO, (0, 1), _bonds_in_rings)
_STEREO = FeatureColumn("stereo", ("none", "E", "Z"), (0, 3, 2), _bond_stereo)  # rdkit.Chem.BondStereo

_STANDARD = Featurizer(
    "standard",
    (ELEMENT, _CHARGE, _HYDROGENS, _AROMATIC, _RING, _HYBRIDISATION, _CHIRALITY),
    (BOND_TYPE, _CONJUGATED, _BOND_RING, _STEREO),
)
_ELEMENTS = Featurizer("elements", (ELEMENT,), (BOND_TYPE,))

FEATURIZERS: dict[str, Featurizer] = {featurizer.name: featurizer for featurizer in (_STANDARD, _ELEMENTS)}
"""All featurizers by name."""
DEFAULT_FEATURIZER = _STANDARD.name
"""The featurizer of SMILES if none is named."""
