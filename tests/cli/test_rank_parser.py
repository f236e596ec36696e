"""Molecules that ranks parse together: the graphs of one process, and no rank holds those of two shards."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from graphcaps.chemistry.rdkit_pool import RDKitProgress, listen_to_rdkit
from graphcaps.cli import rank_parser
from graphcaps.cli.rank_parser import RankParser, help_parsing
from graphcaps.data.readers import parsed_molecules
from graphcaps.data.readers.molecules import MoleculeSet, read_smiles
from graphcaps.data.readers.parsed_molecules import parse_long_lists_with
from graphcaps.errors import DataError
from graphcaps.training.ranks import Ranks
from tests.graphs import assert_same_stores
from tests.training.thread_ranks import run_ranks

pytest.importorskip("rdkit", reason="RDKit is not installed: pip install 'graphcaps[chem]'")
# In shards of two, the fourth has no bonds and the last one has one molecule.
SMILES = ["CCO", "c1ccccc1Cl", "no molecule", "CC(=O)O.[Na+]", "C=C", "C#N", "O", "N", "CCN"]
LABELS = [0, 1, 0, 1, 0, 1, 0, 1, 0]


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parsed_molecules, "MIN_CACHED", 5)
    monkeypatch.setattr(rank_parser, "SHARD", 2)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def _read_together(size: int, **options: Any) -> MoleculeSet:
    def work(ranks: Ranks) -> MoleculeSet | None:
        if not ranks.is_first:
            help_parsing(ranks)
            return None
        parser = RankParser(ranks)
        with parse_long_lists_with(parser):
            read = read_smiles(SMILES, LABELS, **options)
        parser.finish()
        return read

    first, *others = run_ranks(size, work)
    assert others == [None] * (size - 1)
    assert first is not None
    return first


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("bad", ["skip", "keep"])
def test_graphs_and_remarks_are_those_of_one_process(size: int, bad: str, tmp_path: Path) -> None:
    expected, read = read_smiles(SMILES, LABELS, bad=bad), _read_together(size, bad=bad)
    assert_same_stores(read.store, expected.store)
    assert read.store.smiles == expected.store.smiles
    assert read.store.report == expected.store.report
    assert (read.store.featurizer, read.store.fragments) == ("standard", "all")
    assert read.row_indices == expected.row_indices
    assert read.skipped == expected.skipped
    assert read.unreadable == expected.unreadable
    assert read.fragmented == expected.fragmented == 1
    assert not list(tmp_path.iterdir())  # no temporary files are left


def test_an_error_names_the_row_in_the_whole_list() -> None:
    with pytest.raises(DataError, match=r"SMILES, line 3: .*no molecule"):
        _read_together(2)


def test_a_shard_is_released_before_the_next_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stores: list[weakref.ref[Any]] = []
    parse = rank_parser.parse_here

    def spy(*arguments: Any, **options: Any) -> Any:
        gc.collect()
        assert not any(store() is not None for store in stores), "an earlier shard is still in memory"
        parsed = parse(*arguments, **options)
        stores.append(weakref.ref(parsed.store))
        return parsed

    monkeypatch.setattr(rank_parser, "parse_here", spy)
    parser = RankParser(Ranks(0, 1))
    monkeypatch.setattr(Ranks, "gather", lambda ranks, value: [value])
    with parse_long_lists_with(parser):
        read = read_smiles(SMILES, bad="skip")
    assert len(stores) == 5
    assert_same_stores(read.store, read_smiles(SMILES, bad="skip").store)


def test_progress_counts_all_shards_of_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[RDKitProgress] = []
    monkeypatch.setattr(Ranks, "gather", lambda ranks, value: [value])
    with parse_long_lists_with(RankParser(Ranks(0, 1))), listen_to_rdkit(events.append):
        read_smiles(SMILES, bad="skip")
    assert {event.total for event in events} == {9}
    assert [event.done for event in events] == sorted(event.done for event in events)
    assert events[-1].done == 9


def test_short_lists_are_read_by_the_first_rank() -> None:
    with parse_long_lists_with(RankParser(Ranks(0, 2))):  # which would wait for the other rank
        assert len(read_smiles(SMILES[:2]).store) == 2
