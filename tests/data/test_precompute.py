"""Structures of a store: computed once, cached, and recomputed when graphs or options change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

import graphcaps.data.precompute as module
from graphcaps.data.datasets.cache import cache_contents, clear_cache
from graphcaps.data.precompute import precompute
from graphcaps.data.store import GraphStore
from graphcaps.errors import UsageError
from graphcaps.ops.structure.precomputation import GraphStructure, PlainGraph, Precomputation
from tests.coarse_levels import NeighbourLevels, levelled_store


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def computed(monkeypatch: pytest.MonkeyPatch, store: GraphStore, precomputation: Precomputation) -> int:
    """How many graphs a cached precomputation computes; its result is that of one that is not cached."""
    calls = []
    compute = type(precomputation).compute
    with monkeypatch.context() as patch:
        patch.setattr(
            type(precomputation),
            "compute",
            lambda self, graph: (calls.append(graph), compute(self, graph))[1],
        )
        result = precompute(store, precomputation, cached=True)
    expected = precompute(store, precomputation).structure
    assert result.structure is not None
    assert expected is not None
    for actual, wanted in zip(result.structure.levels, expected.levels, strict=True):
        for name, value in vars(wanted).items():
            other = getattr(actual, name)
            assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, name
    assert torch.equal(result.structure.columns, expected.columns)
    assert result.structure.columns.dtype == torch.float32
    return len(calls)


def test_a_structure_is_computed_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    store, _ = levelled_store()
    assert computed(monkeypatch, store, NeighbourLevels()) == 4  # not of the graph without nodes
    assert computed(monkeypatch, store, NeighbourLevels()) == 0
    assert computed(monkeypatch, replace(store, name="other"), NeighbourLevels()) == 0
    assert computed(monkeypatch, store, NeighbourLevels(2.0)) == 4
    assert computed(monkeypatch, store[[0, 1]], NeighbourLevels()) == 2
    contents = cache_contents()
    assert contents.files == 3
    for path in cache.iterdir():  # a damaged file is ignored and replaced
        path.write_bytes(path.read_bytes()[:-1])
    assert computed(monkeypatch, store, NeighbourLevels()) == 4
    assert computed(monkeypatch, store, NeighbourLevels()) == 0
    clear_cache()
    assert not list(cache.iterdir())


def test_without_a_precomputation_the_store_is_unchanged() -> None:
    store, _ = levelled_store()
    assert precompute(store, None) is store


@dataclass(frozen=True)
class LabelColumn(Precomputation):
    kind: ClassVar[str] = "labels"
    reads_labels: ClassVar[bool] = True

    @property
    def num_columns(self) -> int:
        return 1

    def compute(self, graph: PlainGraph) -> GraphStructure:
        assert graph.labels is not None
        return GraphStructure(columns=graph.labels[:, :1].astype(np.float64))


def test_labels_are_read_and_belong_to_the_key() -> None:
    store, graphs = levelled_store()
    for labels in (torch.arange(20), torch.arange(20).flip(0)):
        labelled = replace(store, node_labels=labels.unsqueeze(-1))
        batch = precompute(labelled, LabelColumn(), cached=True).batch(graphs.x)
        assert batch.columns.squeeze(-1).tolist() == labels.tolist()
        assert batch.levels == ()


def test_levels_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = levelled_store()
    monkeypatch.setattr(module, "MAX_ENTRIES", 40)
    with pytest.raises(
        UsageError, match="of 2 of 5 graphs of 'test' already have 61 edges and members, more than 40"
    ):
        precompute(store, NeighbourLevels())
