"""Folds: those of scikit-learn, both protocols, and files that belong to their graphs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold

from graphcaps.data.splits.folds import Folds, stratified_folds
from graphcaps.errors import ArgumentError, DataError


@pytest.fixture
def y() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).choice(3, 120, p=[0.5, 0.3, 0.2]))


@pytest.mark.parametrize(("num_folds", "seed"), [(10, 12345), (5, 0), (2, 7)])
def test_folds_are_those_of_scikit_learn(y: torch.Tensor, num_folds: int, seed: int) -> None:
    folds = stratified_folds(y, num_folds, seed)
    reference = StratifiedKFold(num_folds, shuffle=True, random_state=seed)
    for fold, (train, test) in enumerate(reference.split(np.zeros(len(y)), y.numpy())):
        split = folds.paper(fold)
        assert split.train.tolist() == train.tolist()
        assert split.test.tolist() == test.tolist()
        assert split.validation is None
    assert folds.class_counts == tuple(torch.bincount(y).tolist())
    assert folds.notes == ()


def test_defaults_are_the_published_folds(y: torch.Tensor) -> None:
    folds = stratified_folds(y)
    assert (folds.num_folds, folds.seed) == (10, 12345)
    assert torch.equal(folds.assignment, stratified_folds(y, 10, 12345).assignment)
    assert not torch.equal(folds.assignment, stratified_folds(y, 10, 0).assignment)


@settings(max_examples=40, deadline=None)
@given(num_folds=st.integers(3, 8), counts=st.lists(st.integers(1, 30), min_size=2, max_size=4))
def test_held_out_parts_are_three_whole_sets(num_folds: int, counts: list[int]) -> None:
    counts[0] += num_folds
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    folds = stratified_folds(y, num_folds, 1)
    tested = []
    for fold in range(num_folds):
        split = folds.held_out(fold)
        assert split.validation is not None
        assert split.validation.tolist() == folds.paper((fold - 1) % num_folds).test.tolist()
        assert split.test.tolist() == folds.paper(fold).test.tolist()
        parts = torch.cat([split.train, split.validation, split.test])
        assert sorted(parts.tolist()) == list(range(len(y)))
        tested += split.test.tolist()
    assert sorted(tested) == list(range(len(y)))
    small = [label for label, count in enumerate(counts) if count < num_folds]
    assert len(folds.notes) == len(small)
    for label, note in zip(small, folds.notes, strict=True):
        assert note.startswith(f"Class {label} has {counts[label]} graph")


def test_small_class_is_allowed_and_told(y: torch.Tensor) -> None:
    folds = stratified_folds(torch.cat([y, torch.tensor([3, 3])]))
    assert folds.notes == ("Class 3 has 2 graphs for 10 folds and is missing from some.",)


def test_first_fold_chooses_by_the_last(y: torch.Tensor) -> None:
    folds = stratified_folds(y)
    assert folds.held_out(0).validation.tolist() == folds.paper(9).test.tolist()  # type: ignore[union-attr]
    assert repr(folds) == "Folds(graphs=120, num_folds=10, seed=12345)"
    assert repr(folds.paper(0)) == "Split(train=108, validation=none, test=12)"


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("classes", "arguments", "text"),
    [
        (None, {}, r"'y' must give the class of each graph, got none\. Folds need labelled graphs"),
        ([0, 1, 0], {}, r"'y' must hold at least 10 graphs for as many folds, got 3\."),
        ([1] * 20, {}, r"'y' must hold at least two classes, got class 1 alone\."),
        ([0, 1] * 8, {}, r"no more than the graphs of the largest class, got 10 folds for 8 graphs\. Use 8"),
        ([0, 1, -1] * 8, {}, r"'y' must hold classes from 0 on, got -1 for graph 2\."),
        ([0, 1] * 8, {"num_folds": 1}, r"'num_folds' must be a whole number from 2 on, got 1\."),
        ([0, 1] * 8, {"seed": -1}, r"'seed' must be a whole number from 0 to 2³² − 1, got -1\."),
    ],
)
def test_graphs_that_cannot_be_split_are_refused(
    classes: list[int] | None, arguments: dict[str, int], text: str
) -> None:
    with pytest.raises(ArgumentError, match=text):
        stratified_folds(None if classes is None else torch.tensor(classes), **arguments)


def test_fold_out_of_range_is_refused(y: torch.Tensor) -> None:
    folds = stratified_folds(y, 2)
    with pytest.raises(ArgumentError, match=r"'fold' must be from 0 to 1, got 2\."):
        folds.paper(2)
    with pytest.raises(ArgumentError, match=r"'num_folds' must be at least 3, got 2\."):
        folds.held_out(0)


# ---------------------------------------------------------------------- files
def test_folds_survive_a_file(y: torch.Tensor, tmp_path: Path) -> None:
    folds = stratified_folds(torch.cat([y, torch.tensor([3])]), seed=5)
    path = tmp_path / "folds.json"
    path.write_text("old")
    folds.save(path)
    again = Folds.load(path, torch.cat([y, torch.tensor([3])]))
    assert torch.equal(again.assignment, folds.assignment)
    for name in ("seed", "num_folds", "class_counts", "checksum", "notes"):
        assert getattr(again, name) == getattr(folds, name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folds.json"]


def test_failed_write_leaves_the_old_file(
    y: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folds.json"
    path.write_text("old")

    def fail(number: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        stratified_folds(y).save(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["folds.json"]


def test_folds_of_other_graphs_are_refused(y: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "folds.json"
    stratified_folds(y).save(path)
    with pytest.raises(DataError, match=r"folds\.json: expected folds of 119 graphs, found folds of 120\."):
        Folds.load(path, y[1:])
    with pytest.raises(DataError, match=r"expected folds of these graphs, found folds of graphs with other"):
        Folds.load(path, y.flip(0))
    assert len(Folds.load(path, None)) == 120


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": "other"}, r"a file that names its format 'graphcaps folds 1', found none"),
        ({"seed": "x"}, r"a whole number under 'seed', found 'x'"),
        ({"num_folds": None}, r"a whole number under 'num_folds', found None"),
        ({"assignment": [0.5]}, r"a list of numbers under 'assignment'"),
        ({"assignment": [0, 1]}, r"a fold for each of 120 graphs, found 2"),
        ({"assignment": [11] * 120}, r"folds from 0 to 9, found 11"),
        ({"y_sha256": 4}, r"a checksum under 'y_sha256', found 4"),
        ({"notes": [1]}, r"a list of sentences under 'notes'"),
    ],
)
def test_file_that_holds_no_folds_is_refused(
    y: torch.Tensor, tmp_path: Path, change: dict[str, object], text: str
) -> None:
    path = tmp_path / "folds.json"
    stratified_folds(y).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=rf"folds\.json: expected {text}"):
        Folds.load(path, y)


def test_missing_file_and_junk_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.json: expected a file that can be read, found No such file"):
        Folds.load(tmp_path / "none.json", None)
    for junk in (b"", b"\xff\x00", b"[1, 2]", b"{"):
        (tmp_path / "junk.json").write_bytes(junk)
        with pytest.raises(DataError, match=r"junk\.json: expected"):
            Folds.load(tmp_path / "junk.json", None)
