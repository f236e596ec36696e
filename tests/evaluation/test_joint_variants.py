"""Variants that differ only in their initial weights are replicas of one run and equal separate trainings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation import CrossValidation, ResultsStore
from tests.graphs import random_graphs

FACTORS = {"K=1": 1, "K=2": 2, "K=4": 4}


def _config(num_factors: int, **changes: object) -> RunConfig:
    arguments = {"capsule_dim": 8, "num_capsules": (3,), "dropout": 0.2, "num_factors": num_factors}
    return RunConfig(
        model_arguments=arguments | changes,
        features=FeatureConfig(degree_onehot=4, propagation=1),
        training=TrainConfig(epochs=4, batch_size=8, learning_rate=0.01),
    )


CONFIGS = {name: _config(count) for name, count in FACTORS.items()}
SIZES = torch.randint(2, 9, (31,), generator=torch.Generator().manual_seed(1)).tolist()
STORE = random_graphs(SIZES, classes=2, seed=3).as_store()


def _together(folder: Path | None = None, resume: bool = False, seeds: int = 2) -> CrossValidation:
    joint_variants = {name: config for name, config in CONFIGS.items() if name != "K=1"}
    results = None if folder is None else ResultsStore(folder)
    return CrossValidation(
        STORE, CONFIGS["K=1"], variant="K=1", joint_variants=joint_variants, folds=4, seeds=seeds, protocol="both",
        results=results, resume=resume,
    )  # fmt: skip


def test_joint_variants_equal_separate_trainings() -> None:
    ledgers = _together().run_all()
    assert list(ledgers) == list(CONFIGS)
    for name, config in CONFIGS.items():
        alone = CrossValidation(STORE, config, variant=name, folds=4, seeds=2, protocol="both").run()
        for one, other in zip(ledgers[name].records, alone.records, strict=True):
            assert one.key == other.key
            assert one.config == config
            np.testing.assert_array_equal(one.curves.test_right, other.curves.test_right)
            np.testing.assert_allclose(one.curves.train_loss, other.curves.train_loss, atol=3)
    first, second = (ledgers[name].records[0].curves.train_loss for name in ("K=1", "K=4"))
    assert not np.array_equal(first, second), "they start from the same weights"


def test_finished_records_are_kept(tmp_path: Path) -> None:
    CrossValidation(
        STORE, CONFIGS["K=2"], variant="K=2", folds=4, protocol="paper", results=ResultsStore(tmp_path)
    ).run()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.json")}
    assert len(before) == 1
    validation = _together(tmp_path, resume=True, seeds=1)
    assert len(validation.finished) == 1
    validation.run_all()
    assert {record.key.variant for record in ResultsStore(tmp_path).records()} == set(CONFIGS)
    for name, text in before.items():
        assert (tmp_path / name).read_bytes() == text


def test_an_interrupted_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(event: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _together(tmp_path).run_all(stop)
    assert [path.name for path in (tmp_path / "unfinished").iterdir()]
    with pytest.raises(DataError, match="--resume"):
        _together(tmp_path)
    resumed, unbroken = _together(tmp_path, resume=True).run_all(), _together().run_all()
    for name in CONFIGS:
        for one, other in zip(resumed[name].records, unbroken[name].records, strict=True):
            np.testing.assert_array_equal(one.curves.test_right, other.curves.test_right)
    assert not (tmp_path / "unfinished").exists()


@pytest.mark.parametrize(
    "other",
    [
        _config(2, routing_iterations=1),
        _config(2, dropout=0.0),
        replace(_config(2), training=TrainConfig(epochs=3)),
    ],
    ids=["iterations", "dropout", "epochs"],
)
def test_variants_that_differ_in_more_than_num_factors_are_refused(other: RunConfig) -> None:
    with pytest.raises(ArgumentError, match="'num_factors' alone"):
        CrossValidation(STORE, CONFIGS["K=1"], variant="K=1", joint_variants={"other": other}, folds=4)


def test_separately_squashed_factors_are_refused() -> None:
    one, other = (_config(count, factor_squash="separate") for count in (1, 2))
    with pytest.raises(ArgumentError, match="joined"):
        CrossValidation(STORE, one, variant="K=1", joint_variants={"K=2": other}, folds=4)
