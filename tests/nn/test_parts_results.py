"""Stored results of the option ``parts``, and the agreement that chance gives."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    entries = json.loads((ROOT / "results" / "parts.json").read_text("utf-8"))["rows"]
    return {row["model"]: row for row in entries if (row["level"], row["draw"]) == ("easy", 0)}


def test_blocks_have_higher_agreement_and_accuracy(rows: dict[str, dict[str, Any]]) -> None:
    plain, parts = rows["HGCN"], rows["parts='blocks'"]
    assert [seed["seed"] for seed in parts["seeds"]] == [0, 1, 2, 3, 4]
    assert parts["mean"]["nmi"] >= 0.88
    assert parts["mean"]["accuracy"] >= plain["mean"]["accuracy"]


@pytest.mark.slow
def test_agreement_of_random_parts() -> None:
    import torch

    from graphcaps.data import load_dataset
    from graphcaps.explanation.agreement import partition_agreement

    store = load_dataset("planted-parts")
    for count, expected in ((5, 0.18), (8, 0.27)):
        capsules = torch.randint(0, count, (store.num_nodes,), generator=torch.Generator().manual_seed(0))
        agreement = partition_agreement(capsules, store.truth["kind"], store.node_ptr)
        assert agreement["nmi"] == pytest.approx(expected, abs=0.01)
        assert abs(agreement["nmi_all"]) < 0.01
        assert abs(agreement["ari"]) < 0.02
