"""Steps of large sets: calls grow as the number of molecules, counted so that the load of the machine plays no part."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from graphcaps.data.readers.row_rules import (
    describe_copies_across,
    describe_parents,
    find_repeated,
    read_ids,
    read_labels,
    select_duplicates,
)
from graphcaps.data.readers.text_tables import Table
from graphcaps.data.splits.seeded_splits import grouped_split
from graphcaps.inference.predictions import Predictions
from graphcaps.inference.split_hashes import SplitHashes

FEW, TIMES = 200, 4


def count_calls(work: Callable[[], object]) -> int:
    """Calls of Python and of compiled functions."""
    calls = 0

    def listen(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(listen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def read_rows(n: int) -> Callable[[], object]:
    texts = ["".join("CNOS"[row % (n // 2) >> 2 * digit & 3] for digit in range(8)) for row in range(n)]
    smiles = [text + (".O" if row % 7 == 0 else "") for row, text in enumerate(texts)]
    labels = [str(row % 2) for row in range(n)]
    rows = tuple((smiles[row], labels[row], f"M{row}") for row in range(n))
    table = Table("m.csv", ("smiles", "label", "id"), rows, tuple(range(2, n + 2)))
    parts = [list(range(n // 2)), list(range(n // 2, n))]

    def work() -> None:
        read_labels(table, "label", "refuse")
        read_ids(table)
        find_repeated(smiles, labels)
        select_duplicates(smiles, labels, "first")
        describe_parents(smiles, labels)
        describe_copies_across(smiles, labels, parts)

    return work


def split_groups(n: int) -> Callable[[], object]:
    groups = np.arange(n) * 3 // 4
    y = torch.from_numpy((np.arange(n) % 10 == 0).astype(np.int64))
    return lambda: grouped_split(groups, y)


def write_rows(n: int) -> Callable[[], object]:
    p = np.random.default_rng(0).dirichlet((1, 1), n)
    hashes = np.arange(n, dtype=np.uint64)
    split_hashes = SplitHashes(hashes[::2], hashes[1::2], hashes[:0])

    def work() -> None:
        used = split_hashes.parts(hashes)
        part = Predictions(("a", "b"), "lengths", p, p, ("",) * n, ("a",) * n, used_in=used)
        joined = Predictions.join([part, part])
        joined.to_csv()
        joined.summary()

    return work


@pytest.mark.parametrize("make", [read_rows, split_groups, write_rows])
def test_calls_grow_as_the_molecules(make: Callable[[int], Callable[[], object]]) -> None:
    few, many = (count_calls(make(n)) for n in (FEW, TIMES * FEW))
    assert few > FEW
    assert many < 1.3 * TIMES * few
