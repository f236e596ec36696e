"""Folds by groups and fixed splits: the sets that are trained on, and the entries in records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.splits.folds import Split, split_codes, stratified_folds
from graphcaps.data.splits.seeded_splits import random_split
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation import CrossValidation, Ledger, ResultsStore, SeedRecord, cross_validate
from graphcaps.evaluation.partition import Partition, describe_splits, partition_by_groups
from tests.evaluation.records import record
from tests.graphs import random_graphs

GIN = RunConfig(
    model="gin",
    model_arguments={"hidden": 8},
    features=FeatureConfig(degree_onehot=4, propagation=1),
    training=TrainConfig(epochs=2, batch_size=8),
)
STORE = random_graphs([3, 4, 5] * 8, classes=2, seed=3).as_store()
GROUPS = np.arange(24) // 2
SPLIT = Split(torch.arange(0, 12), torch.arange(12, 16), torch.arange(16, 24))
PARTITION = Partition("groups", 12, "ab" * 32, "copies")


# ---------------------------------------------------------------------- fingerprints
def test_fingerprint_is_independent_of_group_names() -> None:
    one = partition_by_groups(np.array(["b", "a", "b", "c"]), "x")
    assert one is not None
    assert (one.kind, one.count, one.by) == ("groups", 3, "x")
    other, third = (
        partition_by_groups(np.array([0, 5, 0, 3]), "y"),
        partition_by_groups(np.array([5, 0, 9, 9]), "y"),
    )
    assert other is not None
    assert third is not None
    assert one.fingerprint == other.fingerprint != third.fingerprint
    assert partition_by_groups(np.arange(4), "x") is None  # each graph alone: the plain folds


def test_only_records_of_grouped_folds_have_an_entry_partition() -> None:
    plain, grouped = record(), record(partition=PARTITION)
    assert "partition" not in plain.as_dict()
    assert "partition" not in plain.settings
    assert grouped.settings == plain.settings | {"partition": "12 groups abababababababab"}
    assert record(partition=replace(PARTITION, by="elsewhere")).settings == grouped.settings
    again = SeedRecord.from_json(grouped.to_json())
    assert (again, again.partition) == (grouped, PARTITION)
    assert SeedRecord.from_json(plain.to_json()).partition is None


@pytest.mark.parametrize(
    "values",
    [
        None,
        3,
        {},
        {**vars(PARTITION), "kind": "x"},
        {**vars(PARTITION), "count": "2"},
        {**vars(PARTITION), "drawn": "2"},
        {name: value for name, value in vars(PARTITION).items() if name != "drawn"},
        {"kind": "groups"},
    ],
)
def test_an_invalid_partition_is_refused(values: Any) -> None:
    text = json.dumps({**record().as_dict(), "partition": values})
    with pytest.raises(DataError, match="kind, count, sha256, by and drawn under 'partition'"):
        SeedRecord.from_json(text, "r.json")


def test_grouped_and_plain_records_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="share the settings"):
        Ledger((record(), record(seed=1, partition=PARTITION)))
    store = ResultsStore(tmp_path / "a")
    store.add(record())
    with pytest.raises(DataError, match=r"\(partition none \(plain folds\) and 12 groups abababababababab\)"):
        store.add(record(partition=PARTITION))
    other = ResultsStore(tmp_path / "b")
    other.add(record(partition=PARTITION))
    with pytest.raises(DataError, match="two that differ"):
        store.merge(tmp_path / "b")


# ---------------------------------------------------------------------- groups
def test_no_group_is_in_two_folds() -> None:
    validation = CrossValidation(STORE, GIN, folds=3, groups=GROUPS)
    for group in range(12):
        assert len(set(validation.folds.assignment[group == GROUPS].tolist())) == 1
    expected = stratified_folds(STORE.y, 3, groups=GROUPS)
    assert torch.equal(validation.folds.assignment, expected.assignment)
    named = CrossValidation(STORE, GIN, folds=3, groups=[f"z{9 - group}" for group in GROUPS])
    assert torch.equal(named.folds.assignment, expected.assignment)
    ledger = validation.run()
    assert ledger.partition is not None
    assert (ledger.partition.count, ledger.partition.by) == (12, "given")
    assert "Folds keep groups together: 12 groups (given)." in repr(ledger)
    assert ledger.notes[0].startswith("Folds keep groups together: 12 groups, 12 of them with several graphs")
    assert ledger.summary()["partition"]["count"] == 12
    assert Ledger.from_json(ledger.to_json()).partition == ledger.partition
    sizes = torch.bincount(expected.assignment).tolist()
    assert ledger.records[0].curves.test_graphs.tolist() == sizes


def test_resume_refuses_to_mix_grouped_and_plain_folds(tmp_path: Path) -> None:
    cross_validate(STORE, GIN, folds=3, results=tmp_path, groups=GROUPS)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.json")}
    for groups in (None, np.arange(24) // 3):
        with pytest.raises(DataError, match="partition 12 groups"):
            cross_validate(STORE, GIN, folds=3, results=tmp_path, resume=True, groups=groups)
    again = CrossValidation(
        STORE, GIN, folds=3, results=ResultsStore(tmp_path), resume=True, groups=GROUPS.tolist()
    )
    assert len(again.finished) == 1
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.json")} == before


def test_copies_are_grouped(tmp_path: Path) -> None:
    doubled = STORE[torch.arange(12).repeat(2)]
    validation = CrossValidation(doubled, GIN, folds=3, groups="copies")
    assert torch.equal(validation.folds.assignment[:12], validation.folds.assignment[12:])
    assert validation.partition is not None
    assert validation.partition.by == "copies"


def test_groups_of_single_graphs_give_plain_folds() -> None:
    validation = CrossValidation(STORE, GIN, folds=3, groups=range(24))
    assert validation.partition is None
    assert torch.equal(validation.folds.assignment, stratified_folds(STORE.y, 3).assignment)


def test_invalid_groups_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'groups' must hold one group per graph, 24, got 3 in 'test'"):
        CrossValidation(STORE, GIN, folds=3, groups=[1, 2, 3])
    with pytest.raises(ArgumentError, match="'groups' must be at least 3, one per fold, got 2 in 'test'"):
        CrossValidation(STORE, GIN, folds=3, groups=[0, 1] * 12)


# ---------------------------------------------------------------------- one split
def test_a_fixed_split_is_used_as_given() -> None:
    ledger = cross_validate(STORE, GIN, protocol="both", seeds=2, split=SPLIT)
    held, paper = ledger.of("held-out")[0].curves, ledger.of("paper")[0].curves
    sizes = [curves.as_dict() for curves in (held, paper)]
    assert [size["folds"] for size in sizes] == [1, 1]
    assert (held.train_graphs.tolist(), held.test_graphs.tolist()) == ([12], [8])
    assert held.validation_graphs.tolist() == [4]
    assert (paper.train_graphs.tolist(), paper.test_graphs.tolist()) == ([16], [8])
    assert ledger.held_out is not None
    assert ledger.held_out.std_folds is None
    assert ledger.held_out.std_seeds is not None
    assert repr(ledger).startswith("Ledger: test, gin, one split")
    assert ledger.notes == ("One split (given): 12 training, 4 validation, 8 test graphs.",)
    assert ledger.partition is not None
    assert (ledger.partition.kind, ledger.partition.count) == ("split", 3)


@pytest.mark.parametrize("missing", [None, torch.empty(0, dtype=torch.long)])
def test_without_validation_set_a_tenth_of_every_class_is_drawn(
    missing: torch.Tensor | None, tmp_path: Path
) -> None:
    two = Split(torch.arange(0, 16), missing, torch.arange(16, 24), "column 'part'")
    ledger = cross_validate(STORE, GIN, protocol="both", split=two, results=tmp_path)
    held, paper = ledger.of("held-out")[0].curves, ledger.of("paper")[0].curves
    drawn = int(held.validation_graphs[0])
    assert (held.train_graphs.tolist(), held.test_graphs.tolist()) == ([16 - drawn], [8])
    assert (paper.train_graphs.tolist(), paper.test_graphs.tolist()) == ([16], [8])
    assert ledger.partition is not None
    assert (ledger.partition.count, ledger.partition.drawn, drawn) == (2, 2, 2)
    assert f"One split (column 'part', {drawn} training graphs drawn for validation)" in repr(ledger)
    assert (
        f"{drawn} validation (a tenth, at least one graph, of every class of the training set"
        in ledger.notes[0]
    )
    assert Ledger.from_json(ledger.to_json()).partition == ledger.partition
    one, again = (CrossValidation(STORE, GIN, split=two).folds.held_out(0) for _ in range(2))
    assert one.validation is not None
    assert again.validation is not None
    assert torch.equal(one.validation, again.validation)
    assert STORE.y is not None
    assert set(STORE.y[one.validation].tolist()) == {0, 1}
    assert torch.equal(torch.cat((one.train, one.validation)).sort().values, two.train)
    # A run of paper alone draws nothing, and its record stands beside the others.
    alone = CrossValidation(
        STORE, GIN, protocol="paper", split=two, results=ResultsStore(tmp_path), resume=True
    )
    assert len(alone.finished) == 1
    assert alone.partition is not None
    assert alone.partition.drawn == 0


def test_several_splits_are_trained_together_as_folds(tmp_path: Path) -> None:
    splits = [random_split(STORE.y, (0.5, 0.25, 0.25), seed) for seed in (2, 3, 4)]  # type: ignore[arg-type]
    validation = CrossValidation(STORE, GIN, protocol="both", split=splits, results=ResultsStore(tmp_path))
    for fold, split in enumerate(splits):
        held_out, paper = validation.folds.held_out(fold), validation.folds.paper(fold)
        assert split.validation is not None
        assert held_out is split
        assert torch.equal(paper.test, split.test)
        assert torch.equal(paper.train, torch.cat([split.train, split.validation]).sort().values)
    ledger = validation.run()
    test_graphs = ledger.of("held-out")[0].curves.test_graphs
    assert test_graphs.tolist() == [split.test.numel() for split in splits]
    assert ledger.partition == validation.partition
    assert ledger.partition is not None
    assert (ledger.partition.kind, ledger.partition.count) == ("splits", 3)
    assert ledger.partition.by == "random, seeds 2 to 4"
    assert ledger.partition.sentence == "3 splits (random, seeds 2 to 4) in place of folds."
    assert ledger.notes[0].startswith("3 splits (random, seeds 2 to 4): 12 ")
    assert repr(ledger).startswith("Ledger: test, gin, 3 splits")
    assert "over splits" in repr(ledger)
    assert ledger.held_out is not None
    assert ledger.held_out.std_folds is not None
    assert Ledger.from_json(ledger.to_json()).partition == ledger.partition
    again = CrossValidation(
        STORE, GIN, protocol="both", split=splits, results=ResultsStore(tmp_path), resume=True
    )
    assert len(again.finished) == 2
    with pytest.raises(DataError, match="partition 3 splits"):
        CrossValidation(STORE, GIN, split=splits[::-1], results=ResultsStore(tmp_path), resume=True)


def test_splits_are_described_in_words() -> None:
    other = replace(SPLIT, name="random", seed=5)
    assert describe_splits([SPLIT]) == "given"
    assert describe_splits([other]) == "random, seed 5"
    assert describe_splits([other, replace(other, seed=9)]) == "random, seeds 5, 9"
    assert describe_splits([SPLIT, other, SPLIT]) == "given; random, seed 5"
    with pytest.raises(ArgumentError, match="'split' must be a split or several, got none"):
        cross_validate(STORE, GIN, split=[])


def test_parts_and_folds_without_one_of_the_classes_are_refused() -> None:
    assert STORE.y is not None
    one_class = (STORE.y == 0).nonzero().squeeze(-1)
    train = torch.tensor([graph for graph in range(24) if graph not in one_class[:4].tolist()])
    with pytest.raises(
        ArgumentError, match=r"none of class '1' in the test set \(column 'part'\)\. Move graphs"
    ):
        cross_validate(STORE, GIN, split=Split(train, None, one_class[:4], "column 'part'"))
    groups = torch.where(STORE.y == 0, torch.arange(24), 99)  # all graphs of class 1 are one group
    message = r"'groups' must give every part .* got none of class '1' in fold .* \(given of 'test'\)\. Use fewer folds"
    with pytest.raises(ArgumentError, match=message):
        cross_validate(STORE, GIN, folds=3, groups=groups)


def test_another_split_is_another_run(tmp_path: Path) -> None:
    cross_validate(STORE, GIN, results=tmp_path, split=SPLIT)
    other = Split(SPLIT.train, torch.arange(12, 15), torch.arange(15, 24))
    with pytest.raises(DataError, match="partition 3 parts"):
        CrossValidation(STORE, GIN, results=ResultsStore(tmp_path), resume=True, split=other)


def test_invalid_splits_are_refused() -> None:
    two = replace(SPLIT, validation=None, name="column 'part'")
    assert STORE.y is not None
    y = STORE.y.clone()
    y[two.train] = 0
    y[two.train[3]] = 1
    few = replace(STORE, y=y)
    message = (
        r"'split' must leave .* got 1 graph of class '1' in all \(column 'part'\)\. Add validation graphs"
    )
    with pytest.raises(ArgumentError, match=message):
        CrossValidation(few, GIN, split=two)
    assert CrossValidation(few, GIN, protocol="paper", split=two).folds.num_folds == 1
    with pytest.raises(ArgumentError, match="'groups' must be left out beside a split"):
        CrossValidation(STORE, GIN, split=SPLIT, groups=GROUPS)
    nothing = torch.empty(0, dtype=torch.long)
    for wrong, message in (
        (replace(SPLIT, test=torch.arange(15, 24)), "every graph at most once"),
        (replace(SPLIT, test=torch.tensor([24])), "graph indices from 0 to 23"),
        (replace(SPLIT, test=nothing), "have training and test graphs"),
    ):
        with pytest.raises(ArgumentError, match=message):
            split_codes(wrong, 24)
