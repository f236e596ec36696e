"""The tables of docs/doctor.md are those of results/doctor.json, which the quality report reproduces."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from graphcaps.data.datasets.catalogue import CATALOGUE
from graphcaps.data.datasets.loading import load_dataset

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "doctor.md"
ROWS = {row["name"]: row for row in json.loads((ROOT / "results" / "doctor.json").read_text("utf-8"))["rows"]}


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "doctor_findings", ROOT / "benchmarks" / "doctor_findings.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_equal_the_results_file():
    assert list(ROWS) == [name for name, entry in CATALOGUE.items() if not entry.embedded]
    assert script().tables(list(ROWS.values())) in PAGE.read_text("utf-8")


def test_numbers_in_the_text_equal_the_results_file():
    page = PAGE.read_text("utf-8")
    for name in ("MUTAG", "PTC_MR"):
        row, bare = ROWS[name], ROWS[name]["without_edge_labels"]
        said = f"{bare['graphs']} of its {row['graphs']} graphs are copies in {bare['groups']} groups"
        assert said in page
        assert f"{bare['leakage']:.1%} of the test graphs have been seen" in page
    assert "Every candidate was decided" in page
    assert not any(row["duplicates"]["unsure_groups"] for row in ROWS.values())
    assert not any(row["grouped_folds"]["leakage"] for row in ROWS.values())
    assert (
        f"{ROWS['IMDB-MULTI']['ceiling']:.1%} and {ROWS['IMDB-BINARY']['ceiling']:.1%}".replace("%", " %")
        in page
    )


@pytest.mark.parametrize("name", ["MUTAG", "PTC_MR", "PROTEINS", "IMDB-BINARY"])
def test_the_results_file_is_reproduced(name, shared_data):
    found = script().look_over(load_dataset(name, shared_data))
    assert {key: value for key, value in found.items() if key != "seconds"} == {
        key: value for key, value in ROWS[name].items() if key != "seconds"
    }


@pytest.mark.parametrize(("page", "blocks"), [("doctor.md", 1), ("inputs.md", 3)])
def test_python_on_the_pages_runs(page, blocks, own_folders):
    pytest.importorskip("rdkit.Chem")
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.S)
    assert len(found) == blocks
    for block in found:
        exec(block, {})


def test_the_column_name_on_the_page():
    pytest.importorskip("rdkit.Chem")
    from graphcaps.data import FeatureRecipe
    from graphcaps.data.readers.molecules import from_smiles

    name = FeatureRecipe(edge_labels=True).fit(from_smiles(["CCO", "C=O"])).column_names()[-1]
    assert f"# '{name}'" in (ROOT / "docs" / "inputs.md").read_text("utf-8")
