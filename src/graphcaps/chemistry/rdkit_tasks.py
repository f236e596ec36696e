"""What RDKit computes of one molecule: numbers of its atoms and bonds, scaffolds, fingerprints, coordinates.

These functions run in the processes of :mod:`graphcaps.chemistry.rdkit_pool`. Each takes one molecule as text and
returns texts and bytes, the two things that are sent back. Some molecules of a few hundred characters take RDKit
hours, others end the process: call these functions only through the pool.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from graphcaps._io.optional_imports import require
from graphcaps.chemistry.featurizers import Featurizer, find_featurizer
from graphcaps.chemistry.functional_groups import group_smarts, name_group

__all__ = ["ATOM_NUMBERS", "INTEGERS", "MAX_SMILES_LENGTH", "TASKS", "Option", "ParsedMolecule", "perform"]

MAX_SMILES_LENGTH = 5_000
"""Longest SMILES that is parsed, in characters. RDKit follows bonds recursively and ends the whole process when the
stack overflows: with the usual 8 MiB, at a chain of 16,000 to 20,000 atoms."""
INTEGERS = "i"
"""Type code of the integers that tasks return as bytes: 32 bits."""
ATOM_NUMBERS = "h"
"""Type code of the numbers of atoms and bonds of the task ``"graph"``: 16 bits. A SMILES of
:data:`MAX_SMILES_LENGTH` characters has fewer atoms and bonds; only a formal charge can be larger, which no vocabulary
has."""

Option = str | int | bool
ParsedMolecule = tuple[list[str], bytes]
"""Texts and bytes that a task returns of one molecule."""

_PURPOSE = "Reading molecules"
_MAX_REASON = 120  # characters of RDKit's message
_LEAST, _MOST = -(1 << 15), (1 << 15) - 1  # of ATOM_NUMBERS


class _InvalidMolecule(Exception):
    """The reason why a molecule cannot be used, as the end of a sentence."""


def perform(task: str, text: object, options: Mapping[str, Option]) -> ParsedMolecule | str:
    """The result of a task for one molecule, or why there is none.

    Args:
        task (str): Key of :data:`TASKS`.
        text (object): The molecule; anything but text is reported as an empty entry.
        options (dict): Arguments of the task.
    """
    try:
        return TASKS[task](text, **options)
    except _InvalidMolecule as error:
        return str(error)
    except MemoryError:
        return "RDKit needs too much memory for it"
    except Exception as error:  # RDKit raises RuntimeError, ValueError and its own types
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (lines[0] if lines else type(error).__name__).rstrip(".:")
        return f"RDKit cannot read it ({reason[:_MAX_REASON]})"


def _read_graph(text: object, featurizer: str, fragments: str) -> ParsedMolecule:
    """Numbers of atoms and bonds in the order of the canonical SMILES, see :mod:`graphcaps.data.readers.molecules`.

    Returns:
        tuple: The canonical SMILES; and integers: number of fragments as written, number of atoms n, number of bonds m,
        then n numbers of each atom column, m numbers of each bond column, and both atoms of the bonds, m and m.
    """
    chem = _chem()
    molecule, canonical, count = _parse(chem, text, fragments)
    columns = find_featurizer(featurizer)
    numbers = [count, molecule.GetNumAtoms(), molecule.GetNumBonds(), *_atoms_and_bonds(molecule, columns)]
    try:
        content = array(ATOM_NUMBERS, numbers)
    except OverflowError:  # a charge; it stays outside of every vocabulary
        content = array(ATOM_NUMBERS, [max(_LEAST, min(number, _MOST)) for number in numbers])
    return [canonical], content.tobytes()


def _atoms_and_bonds(molecule: Any, columns: Featurizer) -> list[int]:
    """RDKit's numbers of a molecule whose canonical SMILES was written; its atoms are listed in that order."""
    order = list(molecule.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])
    node_of = {atom: node for node, atom in enumerate(order)}
    atom_at, bond_at = molecule.GetAtomWithIdx, molecule.GetBondWithIdx
    atoms = [atom_at(index) for index in order]
    bonds = [bond_at(index) for index in range(molecule.GetNumBonds())]
    numbers: list[int] = []
    for column in columns.atoms:
        numbers += column.read(molecule, atoms)
    for column in columns.bonds:
        numbers += column.read(molecule, bonds)
    numbers += [node_of[bond.GetBeginAtomIdx()] for bond in bonds]
    numbers += [node_of[bond.GetEndAtomIdx()] for bond in bonds]
    return numbers


def _parse(chem: Any, text: object, fragments: str) -> tuple[Any, str, int]:
    """The molecule, its canonical SMILES and the number of fragments written.

    RDKit keeps the order of the atoms in that SMILES as a property of the molecule.
    """
    if not isinstance(text, str) or not text.strip():
        raise _InvalidMolecule("the entry is empty")
    if len(text.split()) > 1:
        raise _InvalidMolecule("it contains a space")
    if len(text.strip()) > MAX_SMILES_LENGTH:
        raise _InvalidMolecule(f"it has {len(text.strip()):,} characters, more than {MAX_SMILES_LENGTH:,}")
    molecule = chem.MolFromSmiles(text.strip())  # sanitised, without explicit hydrogens
    if molecule is None:
        raise _InvalidMolecule(_problem(chem, text.strip()))
    if not molecule.GetNumAtoms():
        raise _InvalidMolecule("it contains no atom")
    count = len(chem.GetMolFrags(molecule)) if "." in text else 1
    if fragments == "largest" and count > 1:
        parts = chem.GetMolFrags(molecule, asMols=True)
        largest = min(parts, key=lambda part: (-part.GetNumHeavyAtoms(), chem.MolToSmiles(part)))
        molecule = chem.MolFromSmiles(chem.MolToSmiles(largest))
        if molecule is None:
            raise _InvalidMolecule("its largest fragment cannot be parsed")
    canonical = chem.MolToSmiles(molecule)
    if "*" in canonical:  # however it was written
        raise _InvalidMolecule("it contains the wildcard atom *")
    return molecule, canonical, count


def _problem(chem: Any, text: str) -> str:
    """Why RDKit cannot read a SMILES."""
    raw = chem.MolFromSmiles(text, sanitize=False)
    problems = () if raw is None else chem.DetectChemistryProblems(raw)
    return " ".join(problems[0].Message().split()).rstrip(".") if problems else "invalid SMILES syntax"


def _write_smiles(text: object) -> ParsedMolecule:
    """The SMILES of a molecule in RDKit's binary form, in base 64."""
    chem = _chem()
    return [str(chem.MolToSmiles(chem.Mol(base64.b64decode(str(text)))))], b""


def _scaffold_and_skeleton(text: object) -> ParsedMolecule:
    """Two canonical texts, see :mod:`graphcaps.data.splits.scaffolds`."""
    chem = _chem()
    murcko = require("rdkit.Chem.Scaffolds.MurckoScaffold", extra="chem", purpose=_PURPOSE)
    molecule = _valid(chem, text)
    scaffold = str(murcko.MurckoScaffoldSmiles(mol=molecule, includeChirality=False))
    chem.RemoveStereochemistry(molecule)
    for atom in molecule.GetAtoms():
        atom.SetFormalCharge(0)
        atom.SetIsotope(0)
        atom.SetNumExplicitHs(0)
        atom.SetNumRadicalElectrons(0)
        atom.SetAtomMapNum(0)
        atom.SetNoImplicit(True)  # otherwise brackets differ with the hydrogens
    return [scaffold, str(chem.MolToSmiles(molecule))], b""


def _fingerprint(text: object, radius: int, bits: int, counts: bool) -> ParsedMolecule:
    """Columns of a Morgan fingerprint as integers; with ``counts`` the columns and then their counts."""
    generators = require("rdkit.Chem.rdFingerprintGenerator", extra="chem", purpose=_PURPOSE)
    generator = generators.GetMorganGenerator(radius=radius, fpSize=bits)
    molecule = _valid(_chem(), text, allow_empty=True)
    if not counts:
        return [], array(INTEGERS, generator.GetFingerprint(molecule).GetOnBits()).tobytes()
    entries = generator.GetCountFingerprint(molecule).GetNonzeroElements()
    return [], array(INTEGERS, [*entries.keys(), *entries.values()]).tobytes()


def _draw_smiles(text: object, kekulize: bool) -> ParsedMolecule:
    """RDKit's binary form of a molecule with 2D coordinates, atoms in the order of the text.

    Args:
        text (object): The SMILES.
        kekulize (bool): With alternating instead of aromatic bonds, and with wedges.
    """
    chem = _chem()
    molecule = _valid(chem, text)
    _compute_coordinates(molecule)
    drawing = require("rdkit.Chem.Draw.rdMolDraw2D", extra="chem", purpose=_PURPOSE)
    try:
        # What a drawing does first. Done here as well, so that a molecule on which it never ends is found here.
        drawing.PrepareMolForDrawing(molecule)
        if kekulize:
            chem.Kekulize(molecule, clearAromaticFlags=True)
            chem.WedgeMolBonds(molecule, molecule.GetConformer())
    except chem.KekulizeException:
        pass
    return [], molecule.ToBinary(chem.PropertyPickleOptions.AllProps)


def _draw_graph(text: object) -> ParsedMolecule:
    """As :func:`_draw_smiles`, of a molecule in RDKit's binary form, in base 64, whose valences are not checked."""
    chem = _chem()
    molecule = chem.Mol(base64.b64decode(str(text)))
    chem.FastFindRings(molecule)
    _compute_coordinates(molecule)
    return [], molecule.ToBinary(chem.PropertyPickleOptions.AllProps)


def _name_groups(text: object) -> ParsedMolecule:
    """SMARTS and name of groups of atoms of one molecule, one after the other.

    Args:
        text (object): JSON with ``groups``, lists of atoms, and the molecule: ``smiles``, whose atoms are counted in
            the order of the text, or ``binary``, RDKit's binary form in base 64, whose valences are not checked.
    """
    chem, request = _chem(), json.loads(str(text))
    if "smiles" in request:
        molecule = _valid(chem, request["smiles"])
        chem.RemoveStereochemistry(molecule)  # of one example; other groups of the kind may have another
    else:
        molecule = chem.Mol(base64.b64decode(request["binary"]))
        for atom in molecule.GetAtoms():  # as many hydrogens as the valence asks for
            atom.SetNoImplicit(False)
        molecule.UpdatePropertyCache(strict=False)
        chem.FastFindRings(molecule)
    texts: list[str] = []
    for atoms in request["groups"]:
        texts += [group_smarts(molecule, atoms), name_group(molecule, atoms)]
    return texts, b""


def _edit_smiles(text: object) -> ParsedMolecule:
    """Canonical SMILES of edited molecules, one after the other; "" for an edit that gives no valid molecule.

    An edit removes atoms, whose bonds to the rest become hydrogens, or replaces them by one carbon with single bonds.
    The result is valid if RDKit sanitises it and it has no more fragments than before.

    Args:
        text (object): JSON with ``smiles``, whose atoms are counted in the order of the text, and ``edits``: pairs of a
            list of atoms and whether a carbon takes their place.
    """
    chem, request = _chem(), json.loads(str(text))
    molecule = _valid(chem, request["smiles"])
    before = chem.MolToSmiles(molecule)
    fragments = len(chem.GetMolFrags(molecule))
    chem.Kekulize(molecule, clearAromaticFlags=True)
    texts = []
    for atoms, replaced in request["edits"]:
        edited = _without_atoms(chem, molecule, set(atoms), replaced)
        smiles = (
            "" if edited is None or len(chem.GetMolFrags(edited)) > fragments else chem.MolToSmiles(edited)
        )
        texts.append("" if smiles == before or not smiles or chem.MolFromSmiles(smiles) is None else smiles)
    return texts, b""


def _without_atoms(chem: Any, molecule: Any, atoms: set[int], replaced: bool) -> Any:
    """The sanitised molecule without atoms, or ``None`` if it is not valid."""
    edited = chem.RWMol(molecule)
    carbon = edited.AddAtom(chem.Atom(6)) if replaced else None
    for bond in molecule.GetBonds():
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        outside = [end for end in ends if end not in atoms]
        if len(outside) != 1:
            continue
        atom = edited.GetAtomWithIdx(outside[0])
        freed = round(bond.GetBondTypeAsDouble())
        if carbon is not None and edited.GetBondBetweenAtoms(carbon, outside[0]) is None:
            edited.AddBond(carbon, outside[0], chem.BondType.SINGLE)
            freed -= 1
        if atom.GetNoImplicit():  # its hydrogens are written out
            atom.SetNumExplicitHs(atom.GetNumExplicitHs() + freed)
        atom.SetChiralTag(chem.ChiralType.CHI_UNSPECIFIED)
    for index in sorted(atoms, reverse=True):
        edited.RemoveAtom(index)
    if not edited.GetNumAtoms():
        return None
    try:
        chem.SanitizeMol(edited)
    except ValueError:  # a valence that does not exist
        return None
    return edited


def _check_valences(text: object) -> ParsedMolecule:
    """SMILES of a molecule whose hydrogens and charges are not known.

    Nitro groups and other N-oxides are written without charges in data sets without charges: a nitrogen with four
    bonds and a terminal oxygen beside it get theirs.

    Args:
        text (object): JSON with ``elements``, the symbols of the atoms, and ``bonds``: two atoms and the type of each,
            ``"single"``, ``"double"``, ``"triple"`` or ``"aromatic"``.
    """
    chem, request = _chem(), json.loads(str(text))
    molecule = chem.RWMol()
    for symbol in request["elements"]:
        molecule.AddAtom(chem.Atom(symbol))
    for one, other, kind in request["bonds"]:
        molecule.AddBond(one, other, chem.BondType.names[kind.upper()])
        if kind == "aromatic":
            molecule.GetBondBetweenAtoms(one, other).SetIsAromatic(True)
            molecule.GetAtomWithIdx(one).SetIsAromatic(True)
            molecule.GetAtomWithIdx(other).SetIsAromatic(True)
    for atom in molecule.GetAtoms():
        order = sum(bond.GetBondTypeAsDouble() for bond in atom.GetBonds())
        if atom.GetAtomicNum() != 7 or order != 4:
            continue
        oxygens = [
            bond.GetOtherAtom(atom)
            for bond in atom.GetBonds()
            if bond.GetBondType() == chem.BondType.SINGLE and bond.GetOtherAtom(atom).GetDegree() == 1
        ]
        atom.SetFormalCharge(1)
        for oxygen in [other for other in oxygens if other.GetAtomicNum() == 8][:1]:
            oxygen.SetFormalCharge(-1)
    try:
        chem.SanitizeMol(molecule)
    except ValueError as error:
        raise _InvalidMolecule(" ".join(str(error).split())) from error
    return [str(chem.MolToSmiles(molecule))], b""


def _compute_coordinates(molecule: Any) -> None:
    require("rdkit.Chem.rdDepictor", extra="chem", purpose=_PURPOSE).Compute2DCoords(molecule)


def _valid(chem: Any, text: object, allow_empty: bool = False) -> Any:
    """RDKit's molecule of a SMILES."""
    short = isinstance(text, str) and len(text) <= MAX_SMILES_LENGTH
    molecule = chem.MolFromSmiles(text) if short else None
    if molecule is None or not (allow_empty or molecule.GetNumAtoms()):
        raise _InvalidMolecule("invalid SMILES")
    return molecule


def _chem() -> Any:
    return require("rdkit.Chem", extra="chem", purpose=_PURPOSE)


TASKS: Mapping[str, Callable[..., ParsedMolecule]] = {
    "graph": _read_graph,
    "smiles": _write_smiles,
    "scaffold": _scaffold_and_skeleton,
    "fingerprint": _fingerprint,
    "draw-smiles": _draw_smiles,
    "draw-graph": _draw_graph,
    "name-groups": _name_groups,
    "edit-smiles": _edit_smiles,
    "check-valences": _check_valences,
}
"""All tasks by name."""
