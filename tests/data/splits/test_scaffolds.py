"""Scaffolds and splits by scaffold, on small molecules and on BACE and BBBP."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps.data.readers.text_tables import open_table
from graphcaps.data.splits.class_counts import count_fold_classes
from graphcaps.data.splits.folds import Split, group_folds
from graphcaps.data.splits.scaffolds import murcko_scaffolds, scaffold_groups, scaffold_split
from graphcaps.errors import ArgumentError

pytest.importorskip("rdkit.Chem")

MOLECULES = [
    "c1ccccc1C",
    "c1ccccc1CC",
    "c1ccccc1O",
    "C1CCCCC1",
    "C1CCCCC1C",
    "CCO",
    "c1ccncc1",
    "C1CC1",
    "C1CCC1",
    "CO",
]
# Largest difference between the class share of a part and that of the whole set, and between the size of a part and
# the fraction asked for. Scaffolds of BACE have up to 55 molecules, of BBBP up to 137.
SHARE_TOLERANCE, SIZE_TOLERANCE = 0.005, 0.002


@dataclass(frozen=True)
class Molecules:
    """A public set: its SMILES, the class of each, and the scaffold group of each."""

    smiles: list[str]
    y: np.ndarray
    groups: np.ndarray


@cache
def _read(path: Path, label: str) -> Molecules:
    table = open_table(path)
    smiles = list(table.column("smiles"))
    return Molecules(smiles, np.array(table.column(label)).astype(int), scaffold_groups(smiles))


@pytest.fixture(params=[("bace", "Class"), ("bbbp", "p_np")], ids=["bace", "bbbp"])
def molecules(request: pytest.FixtureRequest, molecule_data: Path) -> Molecules:
    name, label = request.param
    return _read(molecule_data / f"{name}.csv", label)


def parts_of(split: Split) -> list[np.ndarray]:
    assert split.validation is not None
    return [graphs.numpy() for graphs in (split.train, split.validation, split.test)]


# ---------------------------------------------------------------------- scaffolds
def test_scaffolds_by_hand() -> None:
    assert murcko_scaffolds(["c1ccccc1CC", "CCO", "C1CCCCC1OC"]) == ("c1ccccc1", "", "C1CCCCC1")
    with pytest.raises(ArgumentError, match="'C\\('"):
        murcko_scaffolds(["C("])
    with pytest.raises(ArgumentError, match=r"'C{60}…' at 1"):  # such a text crashes RDKit
        murcko_scaffolds(["CC", "C" * 50_000])


def test_salts_and_stereoisomers_stay_together() -> None:
    """The charge changes the scaffold of the pyrrolidines; the isotope and the charge change acyclic SMILES."""
    same = [
        ("CC(=O)O", "CC(=O)[O-]"),
        ("C[13CH3]", "CC"),
        ("C1CCNC1", "C1CC[NH2+]C1"),
        ("F[C@H](Cl)Br", "F[C@@H](Cl)Br"),
        ("c1ccccc1C", "Oc1ccccc1"),
    ]
    ids = scaffold_groups([text for pair in same for text in pair])
    assert ids[::2].tolist() == ids[1::2].tolist()
    assert len(set(ids.tolist())) == 5
    assert len(set(scaffold_groups(["CCO", "CCN", "C=CO", "C1CC1", "C1CCC1"]).tolist())) == 5


def test_groups_are_numbered_by_their_molecules() -> None:
    ids, order = scaffold_groups(MOLECULES), np.random.default_rng(0).permutation(len(MOLECULES))
    assert scaffold_groups([MOLECULES[index] for index in order]).tolist() == ids[order].tolist()


# ---------------------------------------------------------------------- small sets
@pytest.mark.parametrize("seed", range(5))
def test_no_scaffold_is_in_two_sets(seed: int) -> None:
    split = scaffold_split(MOLECULES, fractions=(0.5, 0.2, 0.3), seed=seed)
    groups, parts = scaffold_groups(MOLECULES), parts_of(split)
    assert sorted(np.concatenate(parts).tolist()) == list(range(10))
    assert sum(len(set(groups[part])) for part in parts) == len(set(groups))
    assert {0, 1, 2} <= set(split.train.tolist())  # three of ten, more than half of the validation set
    assert [len(part) for part in parts] == [5, 2, 3]
    assert (split.name, split.seed) == ("by scaffold", seed)


def test_a_validation_fraction_of_zero_gives_no_validation_set() -> None:
    assert scaffold_split(MOLECULES, fractions=(0.8, 0.0, 0.2)).validation is None


def test_one_scaffold_cannot_be_split() -> None:
    message = (
        r"fill the validation set, got 3 of 3 graphs in one group\. Choose other fractions \(--fractions\)"
    )
    with pytest.raises(ArgumentError, match=message):
        scaffold_split(["C1CC1", "CC1CC1", "C1CC1O"])


def test_groups_are_one_per_molecule() -> None:
    with pytest.raises(ArgumentError, match="'groups' must be one per molecule, 2, got 1"):
        scaffold_split(["CC", "CO"], groups=[0])


def test_a_class_of_one_scaffold_is_refused() -> None:
    """Eight molecules of one ring system have the class 'ring' to themselves: it can be in one part only."""
    smiles = [f"{'C' * n}C1CC1" for n in range(8)] + [f"{'C' * n}O" for n in range(1, 33)]
    with pytest.raises(ArgumentError) as caught:
        scaffold_split(smiles, ["ring"] * 8 + ["chain"] * 32)
    assert str(caught.value) == (
        "scaffold_split: 'split' must give every part graphs of every class, got none of class 'ring' in the "
        "validation set, none of class 'ring' in the test set (by scaffold, seed 0). Choose another seed (--seed), "
        "other fractions (--fractions) or plain folds."
    )


# ---------------------------------------------------------------------- BACE and BBBP
def test_every_part_has_both_classes_in_their_proportions(molecules: Molecules) -> None:
    y, groups = molecules.y, molecules.groups
    tests = []
    for seed in range(20):
        split = scaffold_split(molecules.smiles, y, seed=seed, groups=groups)
        parts = parts_of(split)
        assert sum(len(part) for part in parts) == len(y)
        assert sum(len(set(groups[part])) for part in parts) == len(set(groups))
        for part, fraction in zip(parts, (0.8, 0.1, 0.1), strict=True):
            assert set(y[part]) == {0, 1}
            assert abs(y[part].mean() - y.mean()) < SHARE_TOLERANCE
            assert abs(len(part) / len(y) - fraction) < SIZE_TOLERANCE
        tests.append(set(split.test.tolist()))
    overlap = [len(a & b) / len(a) for a, b in pairwise(tests)]
    assert np.mean(overlap) < 0.2  # of two random tenths: 0.1


def test_large_scaffolds_are_tested_as_often_as_single_molecules(molecules: Molecules) -> None:
    """Over 20 seeds, the test sets hold scaffolds of several molecules about as often as the whole set does."""
    sizes = np.bincount(molecules.groups)[molecules.groups]
    dealt = sizes <= 0.05 * len(sizes)  # larger ones are always in the training set
    tested = np.concatenate(
        [
            scaffold_split(molecules.smiles, molecules.y, seed=seed, groups=molecules.groups).test.numpy()
            for seed in range(20)
        ]
    )
    assert abs((sizes[tested] == 1).mean() - (sizes[dealt] == 1).mean()) < 0.05


def test_the_order_of_the_file_does_not_matter(molecules: Molecules) -> None:
    expected = scaffold_split(molecules.smiles, molecules.y, seed=3, groups=molecules.groups)
    again = scaffold_split(molecules.smiles, molecules.y, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(parts_of(expected), parts_of(again), strict=True))
    shuffled = np.random.default_rng(0).permutation(len(molecules.y))
    for order in (np.argsort(molecules.y, kind="stable"), shuffled):
        smiles = [molecules.smiles[index] for index in order]
        # Classes with other names and in another order, too.
        y = np.where(molecules.y[order] == 1, "active", "inactive")
        other = scaffold_split(smiles, y.tolist(), seed=3)
        for part, moved in zip(parts_of(expected), parts_of(other), strict=True):
            assert np.array_equal(np.sort(order[moved]), part)


def test_folds_by_scaffold_have_both_classes(molecules: Molecules) -> None:
    y = torch.from_numpy(molecules.y)
    for order in (torch.arange(len(y)), y.argsort(stable=True)):
        folds = group_folds(y[order], molecules.groups[order.numpy()], 5)
        counts = count_fold_classes(folds, y[order]).counts
        assert (np.abs(counts[:, 1] / counts.sum(1) - molecules.y.mean()) < 0.02).all()
        assert (np.abs(counts.sum(1) / len(y) - 0.2) < 0.01).all()
