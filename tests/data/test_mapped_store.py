"""Stores in files that several processes map."""

from __future__ import annotations

import pickle
from dataclasses import replace

import torch

from graphcaps.data.mapped_store import join_mapped, write_mapped
from graphcaps.ops.edges import EdgeReport
from tests.graphs import assert_same_stores
from tests.small_models import bonded
from tests.training.thread_ranks import run_ranks


def test_a_mapped_store_is_the_store_that_was_written(tmp_path):
    store = replace(bonded(), label_names={3: "three"}, catalogue_name="PARTS", featurizer=None)
    described = pickle.loads(pickle.dumps(write_mapped(store, tmp_path)))
    opened = described.open()
    assert_same_stores(store, opened)
    for file in tmp_path.iterdir():  # the arrays stay until the store is gone
        file.unlink()
    assert_same_stores(store[torch.arange(3, 9)], opened[torch.arange(3, 9)])


def test_a_mapped_store_changes_no_file(tmp_path):
    described = write_mapped(bonded(), tmp_path)
    described.open().node_labels.zero_()
    assert_same_stores(bonded(), described.open())


def test_smiles_stay_with_the_first_rank(tmp_path, monkeypatch):
    from graphcaps.training.shared_store import share_store

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    smiles = tuple("C" * (1 + graph) for graph in range(len(bonded())))
    stores = run_ranks(2, lambda ranks: share_store(ranks, lambda: replace(bonded(), smiles=smiles)))
    assert stores[0].smiles == smiles
    assert stores[1].smiles is None
    assert_same_stores(stores[1], bonded())
    assert not list(tmp_path.iterdir())


def test_joined_parts_are_the_store_that_was_divided(tmp_path):
    store = replace(bonded(), label_names={3: "three"})
    parts = []
    for number, (start, stop) in enumerate([(0, 1), (1, 1), (1, len(store))]):
        (tmp_path / str(number)).mkdir()
        parts.append(write_mapped(store[start:stop], tmp_path / str(number)))
    joined = join_mapped(parts, tmp_path)
    # Each part has the report on all edges.
    assert_same_stores(joined.open(), replace(store, report=EdgeReport.total([store.report] * 3)))
    assert not list(tmp_path.glob("*/*.npy"))  # the parts are removed
