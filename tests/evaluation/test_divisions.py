"""Several divisions into folds: which folds they are, their records and checkpoints, and means over them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation import Ledger, RecordKey, ResultsStore, SeedRecord, cross_validate
from graphcaps.evaluation.committee_results import committee_results
from graphcaps.evaluation.cross_validation import CrossValidation
from graphcaps.evaluation.divisions import build_folds
from graphcaps.evaluation.results_summary import COLUMNS, summary_csv
from graphcaps.training.loop import Callback, CallbackError, TrainingLoop
from tests.evaluation.records import measured_record, record
from tests.graphs import random_graphs

STORE = random_graphs([5, 4, 6, 3, 7, 5, 4, 6, 3, 7, 5, 4, 6, 3, 7, 8], classes=2, seed=3).as_store()
FOREST = RunConfig(model="wl-forest", model_arguments={"trees": 3})
GIN = RunConfig(
    model="gin",
    model_arguments={"hidden": 4, "num_layers": 1},
    features=FeatureConfig(degree_onehot=4),
    training=TrainConfig(epochs=3, batch_size=8),
)


def in_division(number: int, each: SeedRecord) -> SeedRecord:
    """A record of another division, with other folds."""
    key = replace(each.key, division=number)
    return replace(each, key=key, folds_seed=each.folds_seed + number)


def test_division_0_has_todays_folds_and_others_are_shuffled_anew() -> None:
    first, _ = build_folds(STORE, 4)
    assert first.assignment.tolist() == build_folds(STORE, 4, division=0)[0].assignment.tolist()
    second, _ = build_folds(STORE, 4, division=2)
    assert second.seed == 12347
    assert second.assignment.tolist() != first.assignment.tolist()
    y = STORE.y.numpy()  # type: ignore[union-attr]
    for fold, (_, test) in enumerate(StratifiedKFold(4, shuffle=True, random_state=12347).split(y, y)):
        assert second.paper(fold).test.tolist() == test.tolist()
    groups = np.arange(16) // 2
    together = build_folds(STORE, 4, groups, division=1)[0].assignment.numpy()
    assert (together[::2] == together[1::2]).all()


def test_each_division_is_a_cross_validation_of_its_own(tmp_path: Path) -> None:
    both = cross_validate(STORE, FOREST, folds=4, seeds=2, divisions=2, results=tmp_path)
    assert (both.divisions, len(both.records)) == ((0, 1), 4)
    single = cross_validate(STORE, FOREST, folds=4, seeds=2)
    assert single.divisions == (0,)
    assert both.division(0).per_seed() == single.per_seed()
    folds = stratified_folds(STORE.y, 4, 12346)
    assert [each.folds_seed for each in both.records] == [12345, 12345, 12346, 12346]
    sizes = [folds.paper(fold).test.numel() for fold in range(4)]
    assert both.division(1).records[0].curves.test_graphs.tolist() == sizes
    names = sorted(path.name for path in tmp_path.glob("*.record.json"))
    assert names == [
        f"test--wl-forest--held-out--seed{seed}{division}.record.json"
        for seed in (0, 1)
        for division in ("--division1", "")
    ]
    assert ResultsStore(tmp_path).ledgers() == (both,)
    more = cross_validate(STORE, FOREST, folds=4, seeds=2, divisions=3, results=tmp_path, resume=True)
    assert more.records[:4] == both.records
    with pytest.raises(ArgumentError, match="'number' must be one of 0, 1, 2, got 3"):
        more.division(3)


def test_accuracies_are_means_over_divisions() -> None:
    records = [in_division(number, record(seed + 2 * number)) for number in range(3) for seed in range(2)]
    records = [replace(each, key=replace(each.key, seed=each.key.seed % 2)) for each in records]
    ledger = Ledger(tuple(records))
    means = [ledger.division(number).held_out.mean for number in range(3)]  # type: ignore[union-attr]
    estimate = ledger.held_out
    assert estimate is not None
    assert estimate.mean == pytest.approx(np.mean(means))
    assert estimate.per_division == pytest.approx(tuple(means))
    assert estimate.std_divisions == pytest.approx(np.std(means, ddof=1))
    seeds = [ledger.division(number).held_out.std_seeds for number in range(3)]  # type: ignore[union-attr]
    assert estimate.std_seeds == pytest.approx(np.mean(seeds))
    assert estimate.seeds == (0, 1)
    figure = ledger.summary()["figures"]["held-out"]
    assert figure["std_divisions"] == pytest.approx(estimate.std_divisions, abs=1e-4)
    assert figure["per_division"] == pytest.approx(means, abs=1e-4)
    assert ledger.summary()["divisions"] == [0, 1, 2]
    assert [row["division"] for row in ledger.per_seed()[:6]] == [0, 0, 1, 1, 2, 2]
    assert "over 3 divisions" in repr(ledger)
    assert Ledger.from_json(ledger.to_json()) == ledger
    single = ledger.division(0)
    assert "divisions" not in single.summary()
    assert "std_divisions" not in single.summary()["figures"]["held-out"]


def test_committees_are_of_one_division() -> None:
    records = [in_division(number, measured_record(seed)) for number in (0, 1) for seed in range(4)]
    results = Ledger(tuple(records)).committees(2)
    assert results.seeds == ((0, 1), (2, 3), (0, 1), (2, 3))
    first = committee_results(records[:4], 2)
    assert results.accuracy.per_division[0] == pytest.approx(first.accuracy.mean)
    assert results.accuracy.std_divisions == pytest.approx(0)  # the same predictions in both
    assert "std_divisions" in results.as_dict()["accuracy"]
    with pytest.raises(ArgumentError, match="got 4 in division 0, 3 in division 1"):
        committee_results(records[:7], 2)


def test_keys_of_divisions() -> None:
    one, other = record(3), in_division(2, record(3))
    assert other.key == RecordKey("MUTAG", "hgcn", "held-out", 3, 2)
    assert str(other.key) == "MUTAG, hgcn, held-out, seed 3, division 2"
    assert "division" not in one.as_dict()
    assert SeedRecord.from_json(other.to_json()) == other
    assert one.settings == other.settings
    with pytest.raises(DataError, match="a whole number from 0 on under 'division', found -1"):
        SeedRecord.from_dict(other.as_dict() | {"division": -1})
    assert summary_csv([one]).splitlines()[0] == ",".join(COLUMNS)
    lines = summary_csv([one, other]).splitlines()
    assert lines[0].endswith(",commit,division")
    assert [line.rsplit(",", 1)[1] for line in lines[1:]] == ["0", "2"]


def test_records_of_several_divisions_are_packed(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    records = (record(0), in_division(1, record(0)))
    for each in records:
        store.add(each)
    store.pack()
    assert ResultsStore(tmp_path).records() == records


class _Stop(Exception):
    pass


def test_a_division_is_resumed_from_its_own_checkpoint(tmp_path: Path) -> None:
    whole = cross_validate(STORE, GIN, folds=3, divisions=2)
    epochs = 0

    def stop(_: Any) -> None:
        nonlocal epochs
        epochs += 1
        if epochs == 5:  # the second of division 1
            raise _Stop

    with pytest.raises(_Stop):
        cross_validate(STORE, GIN, folds=3, divisions=2, results=tmp_path, checkpoint_every=1, on_event=stop)
    (checkpoint,) = (tmp_path / "unfinished").iterdir()
    assert checkpoint.name.startswith("test--gin--held-out--division1-seed0")
    CrossValidation(STORE, GIN, folds=3, results=ResultsStore(tmp_path), resume=True)
    with pytest.raises(DataError, match="this is the checkpoint of an interrupted run"):
        CrossValidation(STORE, GIN, folds=3, results=ResultsStore(tmp_path), division=1)
    resumed = cross_validate(STORE, GIN, folds=3, divisions=2, results=tmp_path, resume=True)
    for one, other in zip(whole.records, resumed.records, strict=True):
        assert one.key == other.key
        assert one.curves == other.curves
    assert not (tmp_path / "unfinished").exists()


class _Results(Callback):
    """Fails at the results of the first division."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, str]] = []

    def on_start(self, loop: TrainingLoop) -> None:
        self.runs.append((loop.info.name, loop.info.digest))

    def on_result(self, results: Any) -> None:
        if len(self.runs) == 1:
            raise ValueError("no space")


def test_an_error_of_a_callback_loses_no_division() -> None:
    callback = _Results()
    with pytest.raises(CallbackError, match="no space") as raised:
        cross_validate(STORE, GIN, folds=3, divisions=2, callbacks=[callback])
    (first, digest), (second, other) = callback.runs
    assert (first, second) == ("test-gin", "test-gin-division1")
    assert digest != other
    assert isinstance(raised.value.result, Ledger)
    assert raised.value.result.divisions == (0, 1)


@pytest.mark.parametrize("divisions", [0, -1, 1001, 2.0, True])
def test_wrong_numbers_of_divisions(divisions: Any) -> None:
    with pytest.raises(ArgumentError, match="'divisions' must be a whole number from 1 to 1,000"):
        cross_validate(STORE, FOREST, divisions=divisions)


def test_a_split_has_no_divisions() -> None:
    split = stratified_folds(STORE.y, 4).held_out(0)
    with pytest.raises(
        ArgumentError, match="'divisions' must be left out beside a split, which has no folds"
    ):
        cross_validate(STORE, FOREST, split=split, divisions=2)
