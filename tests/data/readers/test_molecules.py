"""SMILES are converted to the same graphs each time; an invalid SMILES is reported with its line."""

from __future__ import annotations

import pytest
import torch

from graphcaps.chemistry.featurizers import BOND_TYPE, ELEMENT
from graphcaps.chemistry.rdkit_tasks import MAX_SMILES_LENGTH
from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.data.readers.molecules import from_smiles, read_molecule_table, read_smiles
from graphcaps.errors import ArgumentError, DataError, MissingExtraError

chem = pytest.importorskip("rdkit.Chem")


def test_atoms_and_bonds_of_small_molecules():
    store = from_smiles(["CC(=O)N", "C#N"], ["no", "yes"], featurizer="elements")
    assert store.class_names == ("no", "yes")
    assert store.y.tolist() == [0, 1]
    one = to_networkx(store, 0)
    elements = [ELEMENT.values[one.nodes[node]["label"]] for node in one]
    assert elements == ["C", "C", "N", "O"]  # CC(N)=O, the canonical order
    types = [(min(e), max(e), BOND_TYPE.values[one.edges[e]["label"]]) for e in one.edges]
    assert sorted(types) == [(0, 1, "single"), (1, 2, "single"), (1, 3, "double")]
    other = to_networkx(store, 1)
    assert [BOND_TYPE.values[entry["label"]] for *_, entry in other.edges(data=True)] == ["triple"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("OCC", "CCO"),
        ("c1ccccc1O", "OC1=CC=CC=C1"),
        ("[H]C([H])([H])O", "CO"),
        ("N[C@@H](C)C(=O)O", "C[C@H](N)C(O)=O"),
        ("C/C=C/Cl", "Cl\\C=C\\C"),
        ("[Na+].CC(=O)[O-]", "CC(=O)[O-].[Na+]"),
    ],
)
def test_a_molecule_gives_the_same_arrays_however_it_is_written(one, other):
    a, b = from_smiles([one]), from_smiles([other])
    for name in ("node_labels", "neighbours", "edge_labels", "edge_ptr"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name


def test_the_largest_fragment():
    read = read_smiles(["CC(=O)[O-].[Na+]", "CC.CCO.CC"], fragments="largest")
    assert read.store.smiles == ("CC(=O)[O-]", "CCO")
    assert from_smiles(["CC(=O)[O-].[Na+]"]).num_nodes == 5


def test_canonical_smiles_has_the_atoms_in_the_order_of_nodes():
    read = read_smiles(["OC1CC(Cl)C(=O)N1", "c1cc(F)ccc1Br"])
    # Canonical SMILES stay as they are.
    assert from_smiles(list(read.store.smiles)).smiles == read.store.smiles
    for graph, text in enumerate(read.store.smiles):
        atoms = [atom.GetAtomicNum() for atom in chem.MolFromSmiles(text).GetAtoms()]
        assert atoms == read.store[graph].truth["element"].tolist()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("C(C", "'C(C': invalid SMILES syntax"),
        ("c1cccc1", "'c1cccc1': Can't kekulize mol. Unkekulized atoms: 0 1 2 3 4"),
        ("C(C)(C)(C)(C)C", "Explicit valence for atom # 0 C, 5, is greater than permitted"),
        ("", "'': the entry is empty"),
        ("*C", "it contains the wildcard atom *"),
        ("[#0]C", "it contains the wildcard atom *"),
        ("C C", "it contains a space"),
        ("C" * 100 + "(", "C…': invalid SMILES"),
        ("C" * 60_000, "C…': it has 60,000 characters, more than 5,000"),
        ("C(" * 30_000 + "C" + ")" * 30_000, "it has 90,001 characters, more than 5,000"),
    ],
)
def test_an_invalid_smiles_is_reported_with_its_line(text, reason, capfd):
    with pytest.raises(DataError) as caught:
        from_smiles(["CO", text], where="own.csv", lines=[2, 7])
    assert str(caught.value).startswith("own.csv, line 7: expected a molecule in SMILES, found ")
    assert reason in str(caught.value)
    assert str(caught.value).endswith("Correct the row, or skip such rows with bad='skip'.")
    assert capfd.readouterr().err == ""  # RDKit prints nothing


def test_a_smiles_beyond_the_length_limit_is_skipped():
    read = read_smiles(["CO", "C" * (MAX_SMILES_LENGTH + 1), "C(O)" * (MAX_SMILES_LENGTH // 4)], bad="skip")
    assert read.row_indices == (0, 2)
    assert read.store.num_nodes == 2 + MAX_SMILES_LENGTH // 2
    assert [(row.line, row.reason) for row in read.skipped] == [
        (2, "it has 5,001 characters, more than 5,000")
    ]


def test_the_element_is_stored_beside_the_labels():
    store = from_smiles(["CCO", "C[NH3+]"])
    assert store.truth["element"].tolist() == [6, 6, 8, 6, 7]
    assert store[1].truth["element"].tolist() == [6, 7]


def test_invalid_smiles_can_be_skipped():
    read = read_smiles(["CO", "C(C", "CN", None], ["a", "b", "c", "d"], bad="skip")
    assert read.row_indices == (0, 2)
    assert read.store.class_names == ("a", "c")
    assert [(row.line, row.text, row.reason) for row in read.skipped] == [
        (2, "C(C", "invalid SMILES syntax"),
        (4, "", "the entry is empty"),
    ]
    with pytest.raises(DataError, match=r"at least one molecule in SMILES, found none \(line 1: invalid"):
        from_smiles(["C("], bad="skip")


def test_invalid_arguments_are_rejected():
    with pytest.raises(ArgumentError, match="'smiles' must be a list of texts"):
        from_smiles("CCO")
    with pytest.raises(ArgumentError, match="'y' must have one class per molecule, 2, got 1"):
        from_smiles(["C", "CC"], [1])
    for name in ("featurizer", "fragments", "bad"):
        with pytest.raises(ArgumentError, match=f"'{name}' must be "):
            from_smiles(["C"], **{name: "x"})


def test_without_rdkit_the_message_has_the_install_command(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'graphcaps\[chem\]'"):
        from_smiles(["C"])


def test_smiles_are_accepted_as_graphs():
    from graphcaps.data.coercion import coerce

    assert coerce("CCO").store.num_nodes == 3
    assert len(coerce(["CCO", "CC"]).store) == 2
    with pytest.raises(ArgumentError, match=r"SMILES, RDKit molecules, .* or a path, got int, str"):
        coerce(["CC", 3])


@pytest.mark.parametrize(
    ("ids", "id", "note"),
    [
        (("a", "b", "c"), None, ""),
        (("a", "a", "c"), None, "2 of 3 rows share an entry of column 'id' with another (first: 'a'); rows are named "
         "by their line instead. --id id names them by that column all the same."),
        (("a", "", "c"), None, "1 of 3 rows has no entry in column 'id'; rows are named by their line instead. "
         "--id id names them by that column all the same."),
        (("a", "a", "c"), "id", "2 of 3 rows share an entry of column 'id' with another (first: 'a')."),
        (("a", "", "c"), "id", "1 of 3 rows has no entry in column 'id'; a row without one is named by its line."),
        (("a", "", "a"), "id", "2 of 3 rows share an entry of column 'id' with another (first: 'a'); 1 of 3 rows has "
         "no entry in column 'id'; a row without one is named by its line."),
    ],
)  # fmt: skip
def test_ids_that_do_not_name_their_row_are_said(tmp_path, ids, id, note):
    path = tmp_path / "own.csv"
    rows = zip(("C", "CC", "CCC"), ids, strict=True)
    path.write_text("smiles,id\n" + "".join(f"{smiles},{name}\n" for smiles, name in rows))
    metadata = read_molecule_table(path, id=id).metadata
    assert "".join(metadata.notes) == note
    if id is not None:
        assert metadata.ids == tuple(name or "line 3" for name in ids)
