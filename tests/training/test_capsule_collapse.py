"""Trainings count the capsules in use and warn if it is one: a single model, folds in processes, commands, files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from graphcaps import HGCNClassifier, cross_validate
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data import planted_parts
from graphcaps.errors import DataError
from graphcaps.evaluation import Ledger, ResultsStore, SeedRecord
from graphcaps.nn.capsule_use import CapsuleCollapseWarning, CapsuleUse
from graphcaps.presets import load_preset
from graphcaps.training import train_final
from graphcaps.training.multiprocess import ProcessPoolTrainer
from tests.cli.training import invoke, write_inputs
from tests.one_capsule import force_new_models

STILL = TrainConfig(epochs=1, batch_size=8, learning_rate=1e-9)  # initial weights are kept
ARGUMENTS: dict[str, Any] = {"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2}
ONLY = "Only 1 of 4 capsules is in use"


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    force_new_models(monkeypatch)


def config(**arguments: Any) -> RunConfig:
    return RunConfig(model_arguments=ARGUMENTS | arguments, training=STILL)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("formulation", ["released", "paper"])
@pytest.mark.parametrize("validation", [0.2, 0.0])
def test_train_final_warns(formulation: str, validation: float) -> None:
    with pytest.warns(CapsuleCollapseWarning, match=ONLY) as caught:
        result = train_final(
            planted_parts(num_graphs=18), config(formulation=formulation), validation=validation, device="cpu"
        )
    assert caught[0].filename == __file__
    assert result.capsule_use == CapsuleUse(1, 4)
    assert result.model.training["capsule_use"] == {"in_use": 1, "capsules": 4}


@pytest.mark.usefixtures("forced")
def test_the_classifier_warns() -> None:
    store = planted_parts(num_graphs=18)
    model = HGCNClassifier(
        num_capsules=4, capsule_dim=8, epochs=1, learning_rate=1e-9, validation=0.2, device="cpu"
    )
    with pytest.warns(CapsuleCollapseWarning, match=ONLY) as caught:
        model.fit(store)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("name", ["gin", "majority"])
def test_models_without_capsules_have_no_entry(name: str) -> None:
    store = planted_parts(num_graphs=18)
    run = RunConfig(model=name, training=STILL) if name == "gin" else RunConfig(model=name)
    result = train_final(store, run, device="cpu")
    assert result.capsule_use is None
    assert "capsule_use" not in result.training
    ledger = cross_validate(store, run, folds=3)
    assert ledger.records[0].capsule_use == ()
    assert (ledger.summary()["capsule_use"], ledger.capsule_warning) == ([], "")


@pytest.mark.exhaustive
def test_parts_use_several_capsules() -> None:
    store = planted_parts(num_graphs=120)
    run = load_preset("planted-parts-blocks").with_training(epochs=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = train_final(store, run, device="cpu")
        ledger = cross_validate(store, run, folds=3)
    assert result.capsule_use is not None
    assert result.capsule_use.in_use > 2
    assert len(ledger.records[0].capsule_use) == 3
    assert all(use.in_use > 1 for use in ledger.records[0].capsule_use)


@pytest.mark.usefixtures("forced", "two_threads")
@pytest.mark.parametrize(("protocol", "group"), [("held-out", None), ("paper", 1)])
def test_folds_in_processes(
    protocol: Any, group: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one replica per group there is one process; with all of them there are two."""
    calls = []
    measure = ProcessPoolTrainer.capsule_use

    def capsule_use(self: ProcessPoolTrainer) -> list[CapsuleUse]:
        calls.append(len(self.shards))
        return measure(self)

    monkeypatch.setattr(ProcessPoolTrainer, "capsule_use", capsule_use)
    store = planted_parts(num_graphs=18)
    with pytest.warns(CapsuleCollapseWarning, match="In 3 of 3 trainings only 1 of 4 capsules is in use"):
        ledger = cross_validate(
            store, config(), folds=3, protocol=protocol, group=group, results=tmp_path / "results"
        )
    assert calls == ([2] if group is None else [])
    (record,) = ledger.records
    assert record.capsule_use == (CapsuleUse(1, 4),) * 3
    (read,) = ResultsStore(tmp_path / "results").records()
    assert read.capsule_use == record.capsule_use
    assert Ledger.from_json(ledger.to_json()).capsule_warning == ledger.capsule_warning
    assert ledger.summary()["capsule_use"] == [
        {"protocol": protocol, "seed": 0, "capsules": 4, "in_use": [1, 1, 1]}
    ]
    values = record.as_dict()
    earlier = {name: value for name, value in values.items() if name != "capsule_use"}
    assert SeedRecord.from_dict(earlier).capsule_use == ()
    for wrong in ([], [{"in_use": 1, "capsules": 4}], [{"in_use": "1", "capsules": 4}] * 3, [3, 3, 3], 3):
        with pytest.raises(DataError, match="3 tables of in_use and capsules under 'capsule_use'"):
            SeedRecord.from_dict(values | {"capsule_use": wrong})


@pytest.mark.usefixtures("forced")
def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*write_inputs(tmp_path, 1), "--learning-rate", "1e-9"]
    message = "nly 1 of 3 capsules is in use: almost all nodes belong to it"
    trained = invoke(*arguments, "--out", "m.safetensors", "--json")
    assert trained.stderr.count(f"O{message}") == 1
    assert json.loads(trained.stdout)["training"]["capsule_use"] == {"in_use": 1, "capsules": 3}
    again = invoke(*arguments, "--out", "m.safetensors", "--resume")
    assert f"O{message}" in again.stderr
    assert "capsules in use 1 of 3" in " ".join(again.stdout.split())
    assert "capsules in use 1 of 3" in " ".join(invoke("info", "m.safetensors").stdout.split())
    words = ["evaluate", *arguments[1:], "--folds", "3", "--no-baseline", "--out", "results"]
    evaluated = invoke(*words, "--json")
    assert f"SMALL: In 3 of 3 trainings o{message}" in evaluated.stderr
    (summary,) = json.loads(evaluated.stdout)
    assert summary["capsule_use"][0]["in_use"] == [1, 1, 1]
    assert summary["capsule_warning"].startswith(f"In 3 of 3 trainings o{message}")
