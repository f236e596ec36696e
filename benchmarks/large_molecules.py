"""Writes a large table of generated molecules: blocks recombined with RDKit, 3 % of them active.

    python -m benchmarks.large_molecules big.csv --molecules 400000

Rings, chains and functional groups (:mod:`graphcaps.data.datasets.molecule_blocks`) are drawn until a molecule has the
size that was drawn for it, 11 to 41 heavy atoms and 26 on average, give or take half a block, and joined by single
bonds. A molecule is active if a sum over its substructures (:data:`PATTERNS`) plus noise is among the highest 3 %, so
that substructures explain the class in part. The threshold comes from a seeded sample of the same distribution. All
molecules are different. With the same seed, fewer molecules are the beginning of more. Rows are written as they are
made: the columns ``smiles``, ``active`` (0 or 1) and ``id``.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from graphcaps._io.atomic_write import write_atomically
from graphcaps.data.datasets.molecule_blocks import BLOCKS, join_blocks, load_rdkit
from graphcaps.data.datasets.portable_random import PortableRandom

__all__ = ["ACTIVE_SHARE", "COLUMNS", "PATTERNS", "LargeMolecule", "generate_molecules", "write_molecules"]

ACTIVE_SHARE = 0.03
"""Share of the molecules that are active."""
COLUMNS = ("smiles", "active", "id")
"""Columns of the table."""
PATTERNS: dict[str, float] = {
    "c1ccncc1": 1.0,
    "[#6]S(=O)(=O)[NX3;H2]": 2.0,
    "[#6][N+](=O)[O-]": -1.0,
    "C(F)(F)F": 1.0,
    "c-C(=O)[NX3]": 1.5,
    "C1CCNCC1": 0.75,
    "C=C": -0.75,
}
"""SMARTS of the substructures, and what the first match of each adds to the sum."""

_SIZES = (26, 10)  # mean heavy atoms, and the largest distance of the sum of two numbers from it
_NOISE = 0.75  # standard deviation of the noise, in the units of PATTERNS
_SAMPLE = 2000  # molecules that give the threshold
_ROLE_WEIGHTS = ("ring", "ring", "chain", "chain", "chain", "group", "group")


@dataclass(frozen=True)
class LargeMolecule:
    """A molecule: its canonical SMILES, and whether it is active."""

    smiles: str
    active: bool


def generate_molecules(seed: int = 0) -> Iterator[LargeMolecule]:
    """Different molecules without end. Needs the extra ``chem``.

    Args:
        seed (int): Seed, 0 or more. (default: 0)
    """
    sample = sorted(score for _, score in _scored(PortableRandom(seed, 6, 0), _SAMPLE))
    threshold = sample[math.ceil((1 - ACTIVE_SHARE) * _SAMPLE)]
    seen: set[str] = set()
    for smiles, score in _scored(PortableRandom(seed, 6, 1)):
        if smiles not in seen:
            seen.add(smiles)
            yield LargeMolecule(smiles, score >= threshold)


def write_molecules(path: Path, molecules: int, seed: int = 0) -> None:
    """Writes a table of molecules, row by row; the file appears when it is complete.

    Args:
        path (Path): The CSV file.
        molecules (int): Number of rows.
        seed (int): Seed. (default: 0)
    """

    def write(file: BinaryIO) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, molecule in zip(range(1, molecules + 1), generate_molecules(seed), strict=False):
            writer.writerow((molecule.smiles, int(molecule.active), f"M{number:07d}"))
        text.flush()
        text.detach()

    write_atomically(path, write)


def _scored(random: PortableRandom, number: int | None = None) -> Iterator[tuple[str, float]]:
    """SMILES of molecules, with the sum over their substructures plus noise."""
    made = 0
    while number is None or made < number:
        joined = join_blocks(_draw_blocks(random), random)
        if joined is not None:
            made += 1
            found = sum(
                value
                for query, value in zip(_queries(), PATTERNS.values(), strict=True)
                if joined.molecule.HasSubstructMatch(query)
            )
            yield joined.smiles, found + _NOISE * _normal(random)


def _draw_blocks(random: PortableRandom) -> list[str]:
    """Blocks with about as many heavy atoms as were drawn for the molecule, a ring first."""
    size = _SIZES[0] + random.between((-_SIZES[1], _SIZES[1])) // 2 + random.between((-_SIZES[1], _SIZES[1]))
    names = [random.choose(_names("ring"))]
    atoms = _num_atoms(names[0])
    while True:
        name = random.choose(_names(random.choose(_ROLE_WEIGHTS)))
        if 2 * (atoms - size) + _num_atoms(name) > 0:  # nearer to the size without it
            return names
        names.append(name)
        atoms += _num_atoms(name)


def _normal(random: PortableRandom) -> float:
    """A number of mean 0 and standard deviation 1: the sum of twelve uniform ones, which needs no logarithm."""
    return sum(random.below(1 << 20) + 0.5 for _ in range(12)) / (1 << 20) - 6


@cache
def _names(role: str) -> tuple[str, ...]:
    return tuple(block.name for block in BLOCKS.values() if block.role == role)


@cache
def _num_atoms(name: str) -> int:
    return int(load_rdkit().MolFromSmiles(BLOCKS[name].smiles).GetNumAtoms())


@cache
def _queries() -> list[Any]:
    return [load_rdkit().MolFromSmarts(pattern) for pattern in PATTERNS]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the CSV file")
    parser.add_argument("--molecules", type=int, default=400_000, help="number of rows; default: 400000")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write_molecules(options.out, options.molecules, options.seed)


if __name__ == "__main__":
    main()
