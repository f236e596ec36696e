"""Names and SMARTS of groups of atoms."""

from __future__ import annotations

import json

import pytest

from graphcaps.chemistry.rdkit_pool import call_rdkit

pytest.importorskip("rdkit")


def named(smiles: str, *groups: list[int]) -> list[tuple[str, str]]:
    (answer,) = call_rdkit(
        "name-groups", [json.dumps({"smiles": smiles, "groups": groups})], purpose="Testing"
    )
    assert not answer.problem
    return list(zip(answer.texts[::2], answer.texts[1::2], strict=True))


def test_groups_have_smarts_and_the_names_of_rdkit() -> None:
    aspirin = "CC(=O)Oc1ccccc1C(=O)O"
    ring, acid, both, methyl = named(aspirin, [4, 5, 6, 7, 8, 9], [10, 11, 12], list(range(4, 13)), [0])
    assert ring == ("[#6]1:[#6]:[#6]:[#6]:[#6]:[#6]:1", "benzene")
    assert acid == ("[#6](=[#8])-[#8]", "carboxylic acid")
    assert both[1] == "benzene + carboxylic acid"
    assert methyl == ("[#6]", "")


def test_smarts_have_no_stereochemistry() -> None:
    assert named("C[C@H](N)C(=O)O", [0, 1, 2])[0][0] == "[#6]-[#6]-[#7]"


def test_a_name_stands_for_at_least_half_of_the_atoms() -> None:
    # A hydroxyl group of two atoms in a group of nine.
    assert named("CC(C)(C)CC(C)(C)O", list(range(9)))[0][1] == ""
    assert named("CC(C)(C)CC(C)(C)O", [5, 8])[0][1] == "aliphatic hydroxyl"


def test_a_functional_group_must_lie_inside_the_group() -> None:
    assert named("O=[N+]([O-])c1ccccc1", [0, 1, 2])[0][1] == "nitro"
    assert named("O=[N+]([O-])c1ccccc1", [0, 1])[0][1] == ""


def test_molecules_that_rdkit_cannot_read_are_reported() -> None:
    (answer,) = call_rdkit(
        "name-groups", [json.dumps({"smiles": "C1CC", "groups": [[0]]})], purpose="Testing"
    )
    assert answer.problem == "invalid SMILES"


@pytest.mark.parametrize(
    ("smiles", "atoms", "replaced", "expected"),
    [
        ("CCO", [2], False, "CC"),
        ("CCO", [2], True, "CCC"),
        ("CCO", [1], False, ""),  # two fragments
        ("CCO", [1], True, ""),  # the same molecule
        ("c1ccccc1O", [6], False, "c1ccccc1"),
        ("c1cc[nH]c1", [3], False, "C=CC=C"),
        ("C[N+](C)(C)C", [0], False, "C[NH+](C)C"),
        ("O=[N+]([O-])C", [0, 1, 2], False, "C"),
        ("CC", [0, 1], False, ""),  # nothing is left
    ],
)
def test_edited_molecules(smiles: str, atoms: list[int], replaced: bool, expected: str) -> None:
    request = json.dumps({"smiles": smiles, "edits": [[atoms, replaced]]})
    (answer,) = call_rdkit("edit-smiles", [request], purpose="Testing")
    assert answer.texts == [expected]
