"""What docs/parts.md says is what results/parts.json holds, and what the option must reach it reaches."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphcaps.config import RunConfig
from graphcaps.presets import load_preset

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("nmi", "nmi_all", "ari", "nmi_planted", "nmi_all_planted")


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    found = json.loads((ROOT / "results" / "parts.json").read_text("utf-8"))["rows"]
    return {row["model"]: row for row in found if (row["level"], row["draw"]) == ("easy", 0)}


def test_the_page_shows_the_figures_measured(rows: dict[str, dict[str, Any]]) -> None:
    page = (ROOT / "docs" / "parts.md").read_text("utf-8")
    for model, row in rows.items():
        figures = " | ".join(f"{row['mean'][name]:.3f}" for name in NAMES)
        assert f"| {model} | {row['mean']['accuracy']:.1f} | {figures} |" in page
        for seed in row["seeds"] if model in ("HGCN", "parts='blocks'") else []:
            figures = " | ".join(f"{seed[name]:.3f}" for name in NAMES)
            assert f"| {model} | {seed['seed']} | {seed['accuracy']:.1f} | {figures} |" in page


def test_the_option_reaches_what_it_must(rows: dict[str, dict[str, Any]]) -> None:
    plain, parts = rows["HGCN"], rows["parts='blocks'"]
    assert [seed["seed"] for seed in parts["seeds"]] == [0, 1, 2, 3, 4]
    assert parts["mean"]["nmi"] >= 0.88
    assert parts["mean"]["accuracy"] >= plain["mean"]["accuracy"]
    for row, preset in ((plain, "planted-parts"), (parts, "planted-parts-blocks")):
        assert RunConfig.from_dict(row["config"]).as_dict() == load_preset(preset).as_dict()


def test_ten_folds_are_told_apart_with_the_option() -> None:
    from graphcaps.evaluation import ResultsStore

    (ledger,) = ResultsStore(ROOT / "results" / "parts").ledgers()
    assert ledger.config == load_preset("planted-parts-blocks")
    assert ledger.held_out is not None
    page = (ROOT / "docs" / "parts.md").read_text("utf-8")
    assert f"the preset with the option reaches {ledger.held_out.mean:.1f} %" in page


def test_chance_is_what_the_pages_say() -> None:
    import torch

    from graphcaps.data import load_dataset
    from graphcaps.explanation.agreement import partition_agreement

    store = load_dataset("planted-parts")
    for count, told in ((5, 0.18), (8, 0.27)):
        drawn = torch.randint(0, count, (store.num_nodes,), generator=torch.Generator().manual_seed(0))
        found = partition_agreement(drawn, store.truth["kind"], store.node_ptr)
        assert found["nmi"] == pytest.approx(told, abs=0.01)
        assert abs(found["nmi_all"]) < 0.01
        assert abs(found["ari"]) < 0.02
        for page in ("parts.md", "explaining.md"):
            assert f"{told:.2f}" in (ROOT / "docs" / page).read_text("utf-8")
