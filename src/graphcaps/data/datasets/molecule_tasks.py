"""The embedded data sets ``benzene``, ``fluoride-carbonyl`` and ``nitro-or-amine``: molecules of known reasons.

The class of a molecule is determined by patterns in SMARTS, so that the atoms that decide are known. Molecules of 10 to
30 heavy atoms are joined from blocks (:mod:`graphcaps.data.datasets.molecule_blocks`). Positive and negative molecules
come in pairs with the same number of atoms of each element, of aromatic atoms, of rings and of charged atoms: these
numbers carry no information about the class. The negative molecules have the atoms of the pattern in other groups, such
as an ether and a nitrile in place of an amide.

Generating needs the extra ``chem``. :func:`graphcaps.load_dataset` keeps the graphs in the cache; a machine without
RDKit can read them from a copy of the cache file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import torch

from graphcaps.data.datasets.molecule_blocks import (
    BLOCKS,
    ELEMENTS,
    JoinedBlocks,
    count_atoms,
    join_blocks,
    load_rdkit,
)
from graphcaps.data.datasets.portable_random import PortableRandom, Range
from graphcaps.data.readers.molecules import read_smiles
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = [
    "MOLECULE_KINDS",
    "MOLECULE_TASKS",
    "MoleculeTask",
    "deciding_groups",
    "molecule_task",
    "task_digest",
]

MOLECULE_KINDS: tuple[str, ...] = ("none", *BLOCKS)
"""Kinds of the molecule tasks, in the order of ``truth["kind"]``; every atom belongs to a block."""

_VERSION = 1  # increase it if the same seed gives other molecules
_NUM_GRAPHS = 4000
_SIZES: Range = (10, 30)  # heavy atoms
_NUM_SETS = 30_000  # sets of blocks that are compared
_TRIES = 4  # orders and sites that are tried for a set of blocks


@dataclass(frozen=True)
class MoleculeTask:
    """A classification of molecules by patterns.

    Args:
        name (str): Name of the data set.
        classes (tuple): Names of the negative and of the positive class.
        patterns (tuple): SMARTS of the deciding groups.
        rule (str): ``"any"``, positive if any pattern matches; ``"all"``, if all do.
        deciding (tuple): For each pattern the blocks that contain it.
        rings, chains, groups (tuple): Blocks that molecules are made of.
    """

    name: str
    classes: tuple[str, str]
    patterns: tuple[str, ...]
    rule: Literal["any", "all"]
    deciding: tuple[frozenset[str], ...]
    rings: tuple[str, ...]
    chains: tuple[str, ...]
    groups: tuple[str, ...]

    def is_positive(self, found: Sequence[bool]) -> bool:
        """The class, from the patterns that were found."""
        return any(found) if self.rule == "any" else all(found)

    def expected(self, blocks: Sequence[str]) -> bool:
        """The class that molecules of these blocks have, unless joining them makes or breaks a deciding group."""
        return self.is_positive([not names.isdisjoint(blocks) for names in self.deciding])


_TASKS = (
    MoleculeTask(
        name="benzene",
        classes=("no benzene", "benzene"),
        patterns=("c1ccccc1",),
        rule="any",
        deciding=(frozenset({"benzene"}),),
        rings=(
            *("benzene", "pyridine", "pyrimidine", "thiophene", "furan", "pyrrole"),
            *("cyclohexane", "cyclohexene", "cyclopentane", "piperidine", "oxane"),
        ),
        chains=("methylene", "ethylene", "vinylene", "ether", "imino", "carbonyl", "amide"),
        groups=("methyl", "hydroxy", "methoxy", "amino", "cyano", "fluoro", "chloro"),
    ),
    MoleculeTask(
        name="fluoride-carbonyl",
        classes=("not both", "fluoride and carbonyl"),
        patterns=("[#6][F]", "[#6]=[OX1]"),
        rule="all",
        deciding=(
            frozenset({"fluoro", "trifluoromethyl"}),
            frozenset({"carbonyl", "amide", "ester"}),
        ),
        rings=(
            "benzene",
            "pyridine",
            "thiophene",
            "furan",
            "cyclohexane",
            "cyclohexene",
            "piperidine",
            "oxane",
        ),
        chains=("methylene", "ethylene", "vinylene", "ether", "imino", "carbonyl", "amide", "ester"),
        groups=(
            *("methyl", "fluoro", "trifluoromethyl", "chloro", "hydroxy", "methoxy", "cyano", "nitroso"),
            *("methylsulfinyl", "methylsulfonyl", "fluorosulfonyl"),
        ),
    ),
    MoleculeTask(
        name="nitro-or-amine",
        classes=("neither", "nitro or amine"),
        patterns=("[#6][N+](=O)[O-]", "[#6;!$([#6]=[O,N,S])][NX3;H2]"),
        rule="any",
        deciding=(frozenset({"nitro"}), frozenset({"amino"})),
        rings=("benzene", "pyridine", "pyridine N-oxide", "thiophene", "furan", "cyclohexane", "piperidine"),
        chains=("methylene", "ethylene", "ether", "imino", "carbonyl", "amide"),
        groups=(
            *("methyl", "chloro", "hydroxy", "methoxy", "cyano", "amino", "methylamino", "dimethylamino"),
            *("hydroxyamino", "nitro", "nitrooxy", "nitroso", "sulfamoyl"),
        ),
    ),
)

MOLECULE_TASKS: dict[str, MoleculeTask] = {task.name: task for task in _TASKS}
"""The three tasks by name."""


def task_digest(name: str) -> str:
    """Checksum that names the cache file of a task with its default seed and size."""
    return hashlib.sha256(f"graphcaps molecule task {name} {_VERSION}".encode()).hexdigest()


def molecule_task(name: str, seed: int = 0, num_graphs: int = _NUM_GRAPHS) -> GraphStore:
    """Generates the molecules of a task, half of them positive. Needs the extra ``chem``.

    Molecules ``2k`` and ``2k + 1`` are one of each class, in random order, with the same number of atoms of each
    element, of aromatic atoms, of rings and of charged atoms. All molecules are different. With the same seed, fewer
    graphs are the beginning of more graphs.

    Args:
        name (str): A name of :data:`MOLECULE_TASKS`.
        seed (int): Seed, 0 or more; the data set of the catalogue has seed 0. (default: 0)
        num_graphs (int): Number of graphs, even. (default: 4000)

    Returns:
        GraphStore: Molecules with the featurizer "standard". ``truth["reason"] [N]`` numbers the deciding groups of a
        positive molecule, −1 elsewhere; ``truth["part"] [N]`` is the block of each atom, numbered within its molecule;
        ``truth["kind"] [N]`` is an index into :data:`MOLECULE_KINDS`; ``truth["element"] [N]`` is the atomic number.

    Raises:
        ArgumentError: If the name is unknown, the seed is negative or the number is odd.
        MissingExtraError: If RDKit is not installed.
    """
    if name not in MOLECULE_TASKS:
        raise ArgumentError("molecule_task", "name", f"be one of {', '.join(MOLECULE_TASKS)}", repr(name))
    if seed < 0:
        raise ArgumentError("molecule_task", "seed", "be 0 or more", seed)
    if num_graphs < 2 or num_graphs % 2:
        raise ArgumentError("molecule_task", "num_graphs", "be 2, 4, 6 … (half for each class)", num_graphs)
    task = MOLECULE_TASKS[name]
    random = PortableRandom(seed, 4, _TASKS.index(task))
    molecules: list[_LabelledMolecule] = []
    for pair in _pairs(task, random):
        molecules += random.shuffled(pair)
        if len(molecules) == num_graphs:
            break
    else:
        expected = f"be at most {len(molecules)}, the number of molecules found"
        raise ArgumentError("molecule_task", "num_graphs", expected, num_graphs)
    return _to_store(task, molecules)


def deciding_groups(task: MoleculeTask, molecule: Any) -> list[set[int]]:
    """Atoms of each deciding group of an RDKit molecule; empty if the molecule is negative.

    A group is a match of a pattern; matches that share an atom are one group, such as the three bonds of CF₃.
    """
    matches = [molecule.GetSubstructMatches(query) for query in _queries(task.name)]
    if not task.is_positive([bool(found) for found in matches]):
        return []
    groups: list[set[int]] = []
    for match in (set(atoms) for found in matches for atoms in found):
        touching = [group for group in groups if group & match]
        groups = [group for group in groups if not group & match] + [match.union(*touching)]
    return sorted(groups, key=min)


@cache
def _queries(name: str) -> list[Any]:
    return [load_rdkit().MolFromSmarts(pattern) for pattern in MOLECULE_TASKS[name].patterns]


@dataclass(frozen=True, eq=False)
class _LabelledMolecule:
    joined: JoinedBlocks
    blocks: tuple[str, ...]
    label: int


def _pairs(task: MoleculeTask, random: PortableRandom) -> Iterator[list[_LabelledMolecule]]:
    """Pairs of a negative and a positive molecule with equal numbers of atoms; none occurs twice."""
    by_numbers: dict[tuple[int, ...], tuple[list[tuple[str, ...]], ...]] = {}
    for _ in range(_NUM_SETS):
        blocks = _sample_blocks(task, random)
        numbers = tuple(map(sum, zip(*map(count_atoms, blocks), strict=True)))
        if _SIZES[0] <= sum(numbers[: len(ELEMENTS)]) <= _SIZES[1]:
            by_class = by_numbers.setdefault(numbers, ([], []))
            by_class[task.expected(blocks)].append(blocks)
    matched = [by_class for by_class in by_numbers.values() if all(by_class)]
    seen: set[str] = set()
    for _ in range(50):  # each round has at most one pair of equal numbers
        for by_class in random.shuffled(matched):
            pair = [
                _sample_molecule(task, random.choose(by_class[label]), label, seen, random)
                for label in (0, 1)
            ]
            found = [molecule for molecule in pair if molecule is not None]
            if len(found) == 2:
                seen |= {molecule.joined.smiles for molecule in found}
                yield found


def _sample_blocks(task: MoleculeTask, random: PortableRandom) -> tuple[str, ...]:
    """One to three rings, up to three chains, and one to four groups."""
    counts = ((task.rings, (1, 3)), (task.chains, (0, 3)), (task.groups, (1, 4)))
    return tuple(random.choose(names) for names, ends in counts for _ in range(random.between(ends)))


def _sample_molecule(
    task: MoleculeTask, blocks: tuple[str, ...], label: int, seen: set[str], random: PortableRandom
) -> _LabelledMolecule | None:
    """A new molecule of these blocks and this class, or ``None`` if a few attempts give none."""
    for _ in range(_TRIES):
        joined = join_blocks(blocks, random)
        if joined is None or joined.smiles in seen:
            continue
        if bool(deciding_groups(task, joined.molecule)) == bool(label):
            return _LabelledMolecule(joined, blocks, label)
    return None


def _to_store(task: MoleculeTask, molecules: Sequence[_LabelledMolecule]) -> GraphStore:
    """The molecules as a store, read like those of a user, with their ground truth."""
    chem = load_rdkit()
    store = read_smiles(
        [molecule.joined.smiles for molecule in molecules],
        [task.classes[molecule.label] for molecule in molecules],
        class_names=task.classes,
        name=task.name,
    ).store
    assert store.smiles is not None
    kind_of = {name: 1 + index for index, name in enumerate(BLOCKS)}
    part: list[int] = []
    kind: list[int] = []
    reason: list[int] = []
    for smiles, molecule in zip(store.smiles, molecules, strict=True):
        read = chem.MolFromSmiles(smiles)  # atom i is node i
        # Atoms in the order of the blocks; another isomorphism would exchange equivalent atoms only.
        order = read.GetSubstructMatch(molecule.joined.molecule)
        block_of = dict(zip(order, molecule.joined.block_of, strict=True))
        parts = [block_of[atom] for atom in range(read.GetNumAtoms())]
        part += parts
        kind += [kind_of[molecule.blocks[index]] for index in parts]
        group_of = {atom: index for index, group in enumerate(deciding_groups(task, read)) for atom in group}
        reason += [group_of.get(atom, -1) for atom in range(read.GetNumAtoms())]
    truth = {"part": part, "kind": kind, "reason": reason}
    return replace(store, truth=store.truth | {name: torch.tensor(values) for name, values in truth.items()})
