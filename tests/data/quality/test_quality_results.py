"""The quality report reproduces results/data-quality.json; Python on the pages runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks.measure_quality import measure

from graphcaps.data.datasets.catalogue import CATALOGUE
from graphcaps.data.datasets.loading import load_dataset

ROOT = Path(__file__).resolve().parents[3]
ROWS = {
    row["name"]: row
    for row in json.loads((ROOT / "results" / "data-quality.json").read_text("utf-8"))["rows"]
}


def test_the_results_file_has_all_data_sets():
    assert list(ROWS) == [name for name, entry in CATALOGUE.items() if not entry.embedded]
    assert not any(row["duplicates"]["unsure_groups"] for row in ROWS.values())
    assert not any(row["grouped_folds"]["leakage"] for row in ROWS.values())


@pytest.mark.parametrize("name", ["MUTAG", "PTC_MR", "PROTEINS", "IMDB-BINARY"])
def test_the_results_file_is_reproduced(name, shared_data):
    measured = measure(load_dataset(name, shared_data))
    assert {key: value for key, value in measured.items() if key != "seconds"} == {
        key: value for key, value in ROWS[name].items() if key != "seconds"
    }


@pytest.mark.parametrize(("page", "blocks"), [("data-quality.md", 1), ("inputs.md", 4)])
def test_python_on_the_pages_runs(page, blocks, isolated_folders):
    pytest.importorskip("rdkit.Chem")
    code_blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.S)
    assert len(code_blocks) == blocks
    for block in code_blocks:
        exec(block, {})


def test_the_column_name_on_the_page():
    pytest.importorskip("rdkit.Chem")
    from graphcaps.data import FeatureRecipe
    from graphcaps.data.readers.molecules import from_smiles

    name = FeatureRecipe(edge_labels="counts").fit(from_smiles(["CCO", "C=O"])).column_names()[-1]
    assert f"# '{name}'" in (ROOT / "docs" / "inputs.md").read_text("utf-8")
