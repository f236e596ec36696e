"""Stored results of explanations, and the options named in docs/explaining.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explaining.md"


@pytest.fixture
def measured() -> dict[str, Any]:
    results: dict[str, Any] = json.loads((ROOT / "results" / "explaining.json").read_text("utf-8"))
    return results


def test_stored_capsule_scores_are_more_faithful_than_gnnexplainer(measured: dict[str, Any]) -> None:
    planted = measured["sets"][0]
    same_graphs = planted["on_the_sample"]["fidelity_plus"]
    assert same_graphs["capsules"] >= same_graphs["gnnexplainer"]
    assert same_graphs["capsules"] >= max(planted["gnnexplainer_otherwise"].values())


def test_options_of_the_page_exist() -> None:
    from typer.testing import CliRunner

    from graphcaps.cli.main import app

    help_text = CliRunner().invoke(app, ["explain", "--help"], env={"COLUMNS": "200"}).stdout
    text = re.sub(r"`(python -m|graphcaps train)[^`]*`", "", PAGE.read_text("utf-8"))  # other programs
    for option in set(re.findall(r"`?(--[a-z]+)", text)):
        assert option in help_text, option
