"""Building blocks of generated molecules, and how they are joined. Needs the extra ``chem``.

A block is a ring, a chain or a functional group with sites, atoms that can take a bond to another block. Blocks are
joined by single bonds into a tree, so that elements, aromatic atoms, rings and charges of a molecule are those of its
blocks together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Literal

from graphcaps._io.optional_imports import require
from graphcaps.data.datasets.portable_random import PortableRandom

__all__ = ["BLOCKS", "ELEMENTS", "JoinedBlocks", "MoleculeBlock", "count_atoms", "join_blocks", "load_rdkit"]


@dataclass(frozen=True)
class MoleculeBlock:
    """A fragment of a molecule.

    Args:
        name (str): Its name.
        role (str): ``"ring"``; ``"chain"``, which can join several blocks; ``"group"``, which has one bond.
        smiles (str): The fragment, with hydrogens in place of bonds to other blocks.
        sites (tuple): Atoms that can take a bond, in the order of the SMILES, once for each bond. A group is attached
            by its only site.
    """

    name: str
    role: Literal["ring", "chain", "group"]
    smiles: str
    sites: tuple[int, ...]


_TABLE: tuple[MoleculeBlock, ...] = (
    MoleculeBlock("benzene", "ring", "c1ccccc1", (0, 1, 2, 3, 4, 5)),
    MoleculeBlock("pyridine", "ring", "c1ccncc1", (0, 1, 2, 4, 5)),
    MoleculeBlock("pyridine N-oxide", "ring", "c1cc[n+]([O-])cc1", (0, 1, 2, 5, 6)),
    MoleculeBlock("pyrimidine", "ring", "c1cncnc1", (0, 1, 3, 5)),
    MoleculeBlock("thiophene", "ring", "c1ccsc1", (0, 1, 2, 4)),
    MoleculeBlock("furan", "ring", "c1ccoc1", (0, 1, 2, 4)),
    MoleculeBlock("pyrrole", "ring", "c1cc[nH]c1", (0, 1, 2, 4)),
    MoleculeBlock("cyclohexane", "ring", "C1CCCCC1", (0, 1, 2, 3, 4, 5)),
    MoleculeBlock("cyclohexene", "ring", "C1CCC=CC1", (0, 1, 2, 3, 4, 5)),
    MoleculeBlock("cyclopentane", "ring", "C1CCCC1", (0, 1, 2, 3, 4)),
    MoleculeBlock("piperidine", "ring", "C1CCNCC1", (0, 1, 2, 3, 4, 5)),
    MoleculeBlock("oxane", "ring", "C1CCOCC1", (0, 1, 2, 4, 5)),
    MoleculeBlock("methylene", "chain", "C", (0, 0, 0)),
    MoleculeBlock("ethylene", "chain", "CC", (0, 0, 1, 1)),
    MoleculeBlock("vinylene", "chain", "C=C", (0, 1)),
    MoleculeBlock("ether", "chain", "O", (0, 0)),
    MoleculeBlock("imino", "chain", "N", (0, 0)),
    MoleculeBlock("carbonyl", "chain", "C=O", (0, 0)),
    MoleculeBlock("amide", "chain", "C(=O)N", (0, 2)),
    MoleculeBlock("ester", "chain", "C(=O)O", (0, 2)),
    MoleculeBlock("methyl", "group", "C", (0,)),
    MoleculeBlock("fluoro", "group", "F", (0,)),
    MoleculeBlock("trifluoromethyl", "group", "C(F)(F)F", (0,)),
    MoleculeBlock("chloro", "group", "Cl", (0,)),
    MoleculeBlock("hydroxy", "group", "O", (0,)),
    MoleculeBlock("methoxy", "group", "OC", (0,)),
    MoleculeBlock("cyano", "group", "C#N", (0,)),
    MoleculeBlock("amino", "group", "N", (0,)),
    MoleculeBlock("methylamino", "group", "NC", (0,)),
    MoleculeBlock("dimethylamino", "group", "N(C)C", (0,)),
    MoleculeBlock("hydroxyamino", "group", "NO", (0,)),
    MoleculeBlock("nitro", "group", "[N+](=O)[O-]", (0,)),
    MoleculeBlock("nitrooxy", "group", "O[N+](=O)[O-]", (0,)),
    MoleculeBlock("nitroso", "group", "N=O", (0,)),
    MoleculeBlock("methylsulfinyl", "group", "S(=O)C", (0,)),
    MoleculeBlock("methylsulfonyl", "group", "S(=O)(=O)C", (0,)),
    MoleculeBlock("fluorosulfonyl", "group", "S(=O)(=O)F", (0,)),
    MoleculeBlock("sulfamoyl", "group", "S(=O)(=O)N", (0,)),
)

BLOCKS: dict[str, MoleculeBlock] = {block.name: block for block in _TABLE}
"""All blocks by name; ``truth["kind"]`` of generated molecules is 1 + the index in this table."""


ELEMENTS: tuple[str, ...] = ("C", "N", "O", "F", "S", "Cl")
"""Elements of the blocks."""


@dataclass(frozen=True, eq=False)
class JoinedBlocks:
    """A molecule made of blocks.

    Args:
        molecule (Any): The RDKit molecule, sanitised.
        smiles (str): Its canonical SMILES.
        block_of (tuple): For each atom the index of its block in the list of blocks that were joined.
    """

    molecule: Any
    smiles: str
    block_of: tuple[int, ...]


def load_rdkit(purpose: str = "Generating molecules") -> ModuleType:
    """``rdkit.Chem``.

    Raises:
        MissingExtraError: If RDKit is not installed.
    """
    return require("rdkit.Chem", extra="chem", purpose=purpose)


@cache
def _parsed(name: str) -> Any:
    return load_rdkit().MolFromSmiles(BLOCKS[name].smiles)


@cache
def count_atoms(name: str) -> tuple[int, ...]:
    """Atoms of a block of each element in :data:`ELEMENTS`, then its aromatic atoms, charged atoms and rings."""
    molecule = _parsed(name)
    atoms = list(molecule.GetAtoms())
    symbols = [atom.GetSymbol() for atom in atoms]
    aromatic = sum(atom.GetIsAromatic() for atom in atoms)
    charged = sum(atom.GetFormalCharge() != 0 for atom in atoms)
    rings = molecule.GetRingInfo().NumRings()
    return (*map(symbols.count, ELEMENTS), aromatic, charged, rings)


def join_blocks(names: Sequence[str], random: PortableRandom) -> JoinedBlocks | None:
    """Joins blocks in random order at random sites; ``None`` if this order has no free site or no valid molecule.

    The first block is a ring or a chain. No bond joins two atoms other than carbon.

    Args:
        names (sequence): Names of the blocks, with repetitions.
        random (PortableRandom): Draws order and sites.
    """
    chem = load_rdkit()
    carriers = [index for index, name in enumerate(names) if BLOCKS[name].role != "group"]
    groups = [index for index, name in enumerate(names) if BLOCKS[name].role == "group"]
    molecule = chem.RWMol()
    block_of: list[int] = []
    free: list[int] = []  # atoms of the molecule that can take a bond, once for each bond
    for index in [*random.shuffled(carriers), *random.shuffled(groups)]:
        block, first = BLOCKS[names[index]], len(block_of)
        molecule.InsertMol(_parsed(block.name))
        block_of += [index] * (molecule.GetNumAtoms() - first)
        sites = [first + site for site in block.sites]
        if first:
            site = random.choose(sites)
            carbon = molecule.GetAtomWithIdx(site).GetAtomicNum() == 6
            possible = [atom for atom in free if carbon or molecule.GetAtomWithIdx(atom).GetAtomicNum() == 6]
            if not possible:
                return None
            other = random.choose(possible)
            molecule.AddBond(other, site, chem.BondType.SINGLE)
            free.remove(other)
            sites.remove(site)
        free += sites
    whole = molecule.GetMol()
    if chem.SanitizeMol(whole, catchErrors=True) != chem.SanitizeFlags.SANITIZE_NONE:
        return None
    return JoinedBlocks(whole, chem.MolToSmiles(whole), tuple(block_of))
