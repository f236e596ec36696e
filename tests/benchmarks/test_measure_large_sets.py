"""The program that measures large sets: permuted molecules are the same graphs, and its measurements are merged."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.measure_large_sets import (
    Results,
    load_store,
    main,
    measure_reading,
    measure_training,
    permute_nodes,
)
from benchmarks.molecule_arrays import store_arrays

from benchmarks import large_molecules
from benchmarks import measure_large_sets as module
from graphcaps.bench.measurements import make_measurement, merge_measurements, read_measurements
from graphcaps.data.quality.weisfeiler_lehman import wl_graph_colours
from graphcaps.data.readers.molecules import from_smiles
from graphcaps.data.store import GraphStore

pytest.importorskip("rdkit", reason="needs the extra 'chem'")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 molecules, a quarter of them active."""
    path = tmp_path_factory.mktemp("large") / "big.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_molecules, "_SAMPLE", 60)
        patch.setattr(large_molecules, "ACTIVE_SHARE", 0.3)
        large_molecules.write_molecules(path, 40)
    return path


@pytest.fixture(scope="module")
def store(table: Path) -> GraphStore:
    with table.open(encoding="utf-8") as file:
        rows = [line.split(",") for line in islice(file, 1, None)]
    return from_smiles([row[0] for row in rows], [row[1] for row in rows])


def test_permuted_molecules_are_the_same_graphs(store: GraphStore) -> None:
    permuted = permute_nodes(store, seed=1)
    assert not torch.equal(permuted.node_labels, store.node_labels)  # type: ignore[arg-type]
    assert torch.equal(permuted.sizes, store.sizes)
    both = [wl_graph_colours(each, edges=True) for each in (store, permuted)]
    assert np.array_equal(*both)
    assert torch.equal(permute_nodes(store, seed=1).neighbours, permuted.neighbours)
    for node in range(permuted.num_nodes):  # ascending in each row, as in every store
        row = permuted.neighbours[permuted.edge_ptr[node] : permuted.edge_ptr[node + 1]]
        assert row.tolist() == sorted(row.tolist())


def test_a_larger_set_is_made_of_the_arrays(store: GraphStore, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "m.npz", **store_arrays(store))
    fewer, more = (load_store(tmp_path / "m.npz", count) for count in (10, 100))
    assert torch.equal(fewer.neighbours, store[:10].neighbours)
    assert len(more) == 100
    assert np.array_equal(wl_graph_colours(more[80:100]), wl_graph_colours(store[:20]))
    assert torch.equal(more.y[40:80], store.y)  # type: ignore[index, arg-type]


def test_reading_is_measured(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCAPS_CACHE", "elsewhere")
    results = Results()
    measure_reading(table, 40, results)
    found = {what: value for what, value, _ in results.values}
    assert found["store"] < 1200
    assert found["read, CPU time"] > 0
    assert {"read from the cache, CPU time", "scaffold groups, CPU time", "scaffold split, CPU time"} <= {
        *found
    }
    with pytest.raises(module.CheckError, match="has 40 molecules, fewer than 50"):
        measure_reading(table, 50, Results())


def test_training_and_predicting_are_measured(store: GraphStore, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "m.npz", **store_arrays(store))
    results = Results()
    measure_training(tmp_path / "m.npz", 60, "cpu", "tf32", results)
    found = {what: value for what, value, _ in results.values}
    assert found["train, an epoch"] > 0
    assert found["predict, molecules a second"] > 0
    assert "train, share of the roofline" not in found  # of a GPU


def test_measurements_of_another_file_are_merged_by_size(tmp_path: Path) -> None:
    def rows(value: float, *sizes: int) -> list[dict[str, object]]:
        return [make_measurement("large: read", module.title(n), "cpu", value, "s", "a") for n in sizes]

    merge_measurements(tmp_path / "all.json", rows(1.0, 10, 100))
    merge_measurements(tmp_path / "new.json", rows(2.0, 100, 1000))
    main(["merge", str(tmp_path / "new.json"), "--out", str(tmp_path / "all.json")])
    merged = {row["dataset"]: row["value"] for row in read_measurements(tmp_path / "all.json")}
    assert merged == {"10 molecules": 1.0, "100 molecules": 2.0, "1000 molecules": 2.0}
