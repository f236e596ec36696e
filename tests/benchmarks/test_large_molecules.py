"""The generated table of molecules is seeded and has the stated sizes; substructures explain its class in part."""

from __future__ import annotations

import csv
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from benchmarks.large_molecules import PATTERNS, generate_molecules, write_molecules

from benchmarks import large_molecules as module

chem = pytest.importorskip("rdkit.Chem", reason="needs the extra 'chem'")


@pytest.fixture(autouse=True)
def short_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 100)
    monkeypatch.setattr(module, "ACTIVE_SHARE", 0.2)  # so that some of a few molecules are active


def test_molecules_are_seeded_and_different(tmp_path: Path) -> None:
    write_molecules(tmp_path / "m.csv", 150, seed=3)
    with (tmp_path / "m.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == ["smiles", "active", "id"]
    assert len({row["smiles"] for row in rows}) == 150
    fewer = list(islice(generate_molecules(3), 40))
    assert [(each.smiles, str(int(each.active))) for each in fewer] == [
        (row["smiles"], row["active"]) for row in rows[:40]
    ]
    assert [each.smiles for each in islice(generate_molecules(4), 40)] != [each.smiles for each in fewer]
    sizes = [chem.MolFromSmiles(row["smiles"]).GetNumAtoms() for row in rows]
    assert 24 <= np.mean(sizes) <= 28
    assert 8 <= min(sizes) <= max(sizes) <= 46
    assert 0.08 < np.mean([row["active"] == "1" for row in rows]) < 0.35


def test_substructures_explain_the_class_in_part() -> None:
    molecules = list(islice(generate_molecules(0), 150))
    queries = {chem.MolFromSmarts(pattern): value for pattern, value in PATTERNS.items()}
    sums = np.array(
        [
            sum(
                value
                for query, value in queries.items()
                if chem.MolFromSmiles(each.smiles).HasSubstructMatch(query)
            )
            for each in molecules
        ]
    )
    active = np.array([each.active for each in molecules])
    assert sums[active].mean() > sums[~active].mean() + 1
    assert (sums[~active].max() > sums[active].min()).all()  # noise: no threshold separates them
