"""What docs/explaining.md says was measured is what was measured, and reaches what it must."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explaining.md"


@pytest.fixture
def measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "results" / "explaining.json").read_text("utf-8"))
    return found


def test_the_tables_are_those_measured(measured: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import explaining  # type: ignore[import-not-found]

    page = PAGE.read_text("utf-8")
    assert [entry["dataset"] for entry in measured["sets"]] == ["planted-parts", "MUTAG"]
    for entry in measured["sets"]:
        rows = explaining.table(entry)
        assert len(rows) >= 5
        for row in rows:
            assert row in page, row
    assert measured["command"] in page
    sys.modules.pop("explaining", None)


def test_the_other_figures_are_those_measured(measured: dict[str, Any]) -> None:
    page = PAGE.read_text("utf-8")
    planted, mutag = measured["sets"]
    told = [
        f"{100 * planted['random_fifth_zeroed']:.0f} % of the graphs",
        f"{planted['meeting_auc']:.2f}",
        f"{measured['nci1']['seconds']:.1f} s",
        *(f"{way} {value:.3f}" for way, value in planted["gnnexplainer_otherwise"].items()),
    ]
    for entry in (planted, mutag):
        same = entry["stability"]
        told.append(f"NMI {same['nmi']:.3f}, ARI {same['ari']:.3f}, rank correlation {same['rank']:.3f}")
        use = entry["methods"]["capsules"]
        told.append(f"entropy {use['entropy']:.3f}, {use['dead_capsules']:.1f} dead")
    for words in told:
        assert words in page, words


def test_own_scores_reach_what_they_must(measured: dict[str, Any]) -> None:
    planted = measured["sets"][0]
    same_graphs = planted["on_the_sample"]["fidelity_plus"]
    assert same_graphs["capsules"] >= same_graphs["gnnexplainer"]
    assert same_graphs["capsules"] >= max(planted["gnnexplainer_otherwise"].values())
    seconds = {name: row["seconds_per_graph"] for name, row in planted["methods"].items()}
    assert seconds["capsules"] < seconds["gnnexplainer"] / 100
    assert measured["nci1"]["graphs"] == 4110
    assert measured["nci1"]["seconds"] < 60


def test_the_page_s_commands_name_options_that_exist() -> None:
    from typer.testing import CliRunner

    from graphcaps.cli.main import app

    shown = CliRunner().invoke(app, ["explain", "--help"], env={"COLUMNS": "200"}).stdout
    for option in set(re.findall(r"`?(--[a-z]+)", PAGE.read_text("utf-8"))) - {"--seeds", "--seed"}:
        assert option in shown, option
