"""Scaffolds and splits by scaffold."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphcaps.data.splits.scaffolds import murcko_scaffolds, scaffold_split
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


def test_scaffolds_by_hand():
    assert murcko_scaffolds(["c1ccccc1CC", "CCO", "C1CCCCC1OC"]) == ("c1ccccc1", "", "C1CCCCC1")
    with pytest.raises(ArgumentError, match="'C\\('"):
        murcko_scaffolds(["C("])
    with pytest.raises(ArgumentError, match=r"'C{60}…' at 1"):  # such a text crashes RDKit
        murcko_scaffolds(["CC", "C" * 50_000])


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_no_scaffold_is_in_two_sets_and_common_ones_train(seed):
    split = scaffold_split(MOLECULES, (0.5, 0.2, 0.3), seed)
    scaffolds = np.array(
        [scaffold or text for scaffold, text in zip(murcko_scaffolds(MOLECULES), MOLECULES, strict=True)]
    )
    sets = [set(scaffolds[indices.numpy()]) for indices in (split.train, split.validation, split.test)]
    assert len(sets[0] | sets[1] | sets[2]) == sum(map(len, sets))
    assert sum(indices.numel() for indices in (split.train, split.validation, split.test)) == len(MOLECULES)
    assert {0, 1, 2} <= set(split.train.tolist())
    assert (split.train.numel(), split.validation.numel(), split.test.numel()) == (5, 2, 3)
    again = scaffold_split(MOLECULES, (0.5, 0.2, 0.3), seed)
    assert torch.equal(again.test, split.test)


def test_a_validation_fraction_of_zero_gives_no_validation_set():
    assert scaffold_split(MOLECULES, (0.8, 0.0, 0.2)).validation is None


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.9, 0.2, 0.1), (1.0, 0.0, 0.0), (0.0, 0.5, 0.5)])
def test_wrong_fractions_are_refused(fractions):
    with pytest.raises(ArgumentError, match="'fractions' must be three fractions that add up to 1"):
        scaffold_split(MOLECULES, fractions)


def test_one_scaffold_cannot_be_split():
    with pytest.raises(ArgumentError, match="fill the training set, got 3 of 3 molecules with one scaffold"):
        scaffold_split(["C1CC1", "CC1CC1", "C1CC1O"])


def test_molecules_without_rings_are_grouped_by_their_smiles():
    split = scaffold_split(["CC", "CO", "CN", "OC", "CS"], (0.6, 0.2, 0.2))
    assert (split.train.tolist(), split.validation.tolist(), split.test.tolist()) == ([0, 1, 3], [2], [4])
    with pytest.raises(ArgumentError, match="'groups' must be one per molecule, 2, got 1"):
        scaffold_split(["CC", "CO"], groups=[0])
