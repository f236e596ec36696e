"""Several models on the same folds: equal to single cross-validations, failures apart, records reused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import graphcaps
from graphcaps.comparison.comparison_tables import learning_warnings
from graphcaps.comparison.runner import CellProgress, choose_models, compare
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation import CrossValidation, ResultsStore, cross_validate
from graphcaps.models.lookup import model_names
from graphcaps.presets.model_presets import comparison_config
from graphcaps.reproduction.paper_systems import PAPER_SYSTEMS
from graphcaps.reproduction.published import systems
from tests.graphs import random_graphs


def store(name: str = "small", graphs: int = 31, classes: int = 2) -> GraphStore:
    sizes = torch.randint(2, 9, (graphs,), generator=torch.Generator().manual_seed(1)).tolist()
    return replace(random_graphs(sizes, classes=classes, seed=3).as_store(), name=name)


STORE = store()
SETTINGS: dict[str, Any] = {"folds": 3, "epochs": 1, "device": "cpu"}


def test_each_cell_is_the_cross_validation_of_its_model() -> None:
    seen: list[CellProgress] = []
    found = compare(STORE, "gin, majority", protocol="both", on_progress=seen.append, **SETTINGS)
    assert (found.datasets, found.models, found.baseline) == (("small",), ("gin", "majority"), "gin")
    alone = cross_validate(
        STORE, comparison_config(STORE, "gin").with_training(epochs=1), folds=3, protocol="both"
    )
    ledger = found.ledger("small", "gin")
    assert ledger is not None
    assert [record.curves for record in ledger.records] == [record.curves for record in alone.records]
    assert [event.number for event in seen if event.cell is not None] == [1, 2]
    assert seen[0].config.training.epochs == 1
    assert seen[0].epoch is None
    assert any(event.epoch is not None and event.model == "gin" for event in seen)


def test_a_model_that_has_hardly_learned_is_said() -> None:
    """Graphs that are all alike were compared without a word."""
    alike = replace(STORE[torch.zeros(30, dtype=torch.long)], y=torch.arange(30) % 2)
    found = compare(alike, "gin,majority", **SETTINGS)
    warnings = {model: cell.warning for (_, model), cell in found.cells.items()}
    assert warnings["majority"] == ""  # the largest class by definition
    assert warnings["gin"].startswith(
        "small: gin has hardly learned: its training accuracy (with dropout) is "
    )
    assert warnings["gin"] in learning_warnings(found)
    assert [row.get("warning", "") for row in found.as_dict()["results"]] == [warnings["gin"], ""]


def test_a_cell_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    run = CrossValidation.run

    def fail(self: CrossValidation, on_event: Any = None) -> Any:
        if self.config.model == "gin":
            raise RuntimeError("a matrix is\nsingular")
        return run(self, on_event)

    monkeypatch.setattr(CrossValidation, "run", fail)
    found = compare(STORE, ["ecfp-forest", "gin", "majority"], **SETTINGS)
    reasons = {cell.model: cell.failure for cell in found.failures}
    assert "has no SMILES" in reasons["ecfp-forest"]
    assert reasons["gin"] == "RuntimeError: a matrix is singular"
    assert found.held_out("small", "majority") is not None
    assert found.held_out("small", "gin") is None
    assert found.ranks is None


def test_records_are_reused_and_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compare(STORE, "majority", results=tmp_path, **SETTINGS)
    with pytest.raises(DataError, match=r"expected no record yet, .*Add --resume"):
        compare(STORE, "majority,gin", results=tmp_path, **SETTINGS)
    monkeypatch.setattr(CrossValidation, "_cell", None)  # nothing is trained again
    again = compare(STORE, "majority", results=tmp_path, resume=True, **SETTINGS)
    assert again.held_out("small", "majority") == first.held_out("small", "majority")


def test_ctrl_c_keeps_what_is_finished_and_resume_continues(tmp_path: Path) -> None:
    def stop(event: CellProgress) -> None:
        if event.model == "gin" and event.epoch is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(STORE, "majority,gin", results=tmp_path, on_progress=stop, **SETTINGS)
    trained: list[str] = []
    resumed = compare(
        STORE,
        "majority,gin",
        results=tmp_path,
        resume=True,
        on_progress=lambda event: trained.append(event.model) if event.epoch is not None else None,
        **SETTINGS,
    )
    assert set(trained) <= {"gin"}
    whole = compare(STORE, "gin", **SETTINGS)
    assert resumed.held_out("small", "gin") == whole.held_out("small", "gin")


def test_a_second_comparison_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.comparison.test_runner import STORE, SETTINGS, compare\n"
        f"compare(STORE, 'majority', results={str(tmp_path)!r}, **SETTINGS)"
    )

    def start_another(event: CellProgress) -> None:
        if event.cell is None and event.epoch is None:
            other = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=False
            )
            assert "another process is running a comparison in this folder" in other.stderr

    # The other one would compute a record that this one does not: it is the folder that is locked.
    found = compare(STORE, "gk", results=tmp_path, on_progress=start_another, **SETTINGS)
    assert not found.failures
    assert [record.key.variant for record in ResultsStore(tmp_path).records()] == ["gk"]
    assert not [*tmp_path.glob(".*.lock")]


@pytest.mark.parametrize(
    ("models", "changes", "message"),
    [
        ("gni", {}, r"compare: 'models' must name models, 'paper' or 'all', got 'gni'\. Did you mean .*gin"),
        ("", {}, "name at least one model, or 'paper' or 'all'"),
        ("gin", {"seeds": 0}, "'seeds' must be a whole number from 1 on, got 0"),
        ("gin", {"protocol": "mine"}, "'protocol' must be one of held-out, paper, both"),
        ("gin", {"baseline": "gcn"}, "'baseline' must be one of the models, gin, got 'gcn'"),
        ("gin", {"folds": 40}, "for as many folds"),
        ("gin", {"resume": True}, "come with a folder of results"),
        ("gin", {"epochs": 0}, "'epochs' must be a whole number from 1 on"),
    ],
)
def test_wrong_arguments_are_refused_before_training(
    models: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        compare(STORE, models, **(SETTINGS | changes))


def test_one_class_and_repeated_names_are_refused() -> None:
    with pytest.raises(ArgumentError, match="classes"):
        compare(store(classes=1), "majority", **SETTINGS)
    with pytest.raises(ArgumentError, match="have different names, got 'small' twice"):
        compare([STORE, store()], "majority", **SETTINGS)


def test_paper_and_all_stand_for_registered_models(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = choose_models(["paper"], [STORE])
    assert paper[0] == "hgcn"
    assert {"gcn", "gin"} <= {*paper} <= {system.model for system in PAPER_SYSTEMS}
    every = choose_models(["all"], [STORE])
    assert {*every} == {*model_names()} - {"ecfp-forest"}
    assert choose_models(["gin", "all", "gin"], [STORE])[0] == "gin"
    molecules = store()
    object.__setattr__(molecules, "smiles", ("C",) * len(molecules))
    assert "ecfp-forest" in choose_models(["all"], [molecules])


def test_every_row_of_the_paper_has_a_system() -> None:
    rows = {row for number in (1, 2, 5, 6) for row in systems(number)}
    assert rows == {system.row for system in PAPER_SYSTEMS}
    assert len({system.model for system in PAPER_SYSTEMS}) == len(PAPER_SYSTEMS) == 21


def test_settings_are_the_published_ones_for_the_data_sets_of_the_paper(shared_data: Path) -> None:
    mutag = graphcaps.load_dataset("MUTAG", root=shared_data)
    assert comparison_config(mutag, "hgcn").source == "paper/MUTAG"
    assert comparison_config(mutag, "gcn").source.startswith("published/gcn")
    assert comparison_config(mutag, "majority").model == "majority"
    assert comparison_config(STORE, "hgcn").source == "default"
    with pytest.raises(ArgumentError, match="gin"):
        comparison_config(STORE, "gni")
