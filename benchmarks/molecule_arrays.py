"""Saves molecules and their scaffold splits as arrays, for machines without RDKit.

    python -m benchmarks.molecule_arrays DIR --root FOLDER

FOLDER holds bace.csv, bbbp.csv and hiv.csv. For every data set and featurizer DIR gets a file ``NAME-FEATURIZER.npz``
with the graphs, the parts of the splits of ``--split scaffold`` with seeds 0 to 9, and the seconds that reading the
SMILES took.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.splits.folds import Split
from graphcaps.data.splits.groups import resolve_splits
from graphcaps.data.store import GraphStore

__all__ = [
    "LABELS",
    "MoleculeArrays",
    "load_molecules",
    "read_molecules",
    "save_molecules",
    "store_arrays",
    "store_from_arrays",
]

LABELS = {"bace": "Class", "bbbp": "p_np", "hiv": "HIV_active"}
"""Column with the class of each data set."""
SEEDS = 10
_TENSORS = ("node_ptr", "edge_ptr", "neighbours", "y", "node_labels", "edge_labels")


@dataclass(frozen=True, eq=False)
class MoleculeArrays:
    """Molecules as graphs, with their splits.

    Args:
        store (GraphStore): The graphs; those of a saved file have no SMILES.
        splits (tuple): Scaffold splits, in the order of seeds.
        read_seconds (float): Time from the CSV file to graphs.
    """

    store: GraphStore
    splits: tuple[Split, ...]
    read_seconds: float


def read_molecules(
    csv: Path, *, featurizer: str = "standard", seeds: Sequence[int] = range(SEEDS)
) -> MoleculeArrays:
    """Reads the molecules of a CSV file and splits them by scaffold."""
    began = time.perf_counter()
    store = open_dataset(csv, label=LABELS[csv.stem], bad="skip", featurizer=featurizer).store
    seconds = time.perf_counter() - began
    return MoleculeArrays(store, resolve_splits("scaffold", store, seeds=seeds), seconds)


def save_molecules(csv: Path, path: Path, *, featurizer: str, seeds: Sequence[int] = range(SEEDS)) -> None:
    """Reads the molecules of a CSV file and writes their arrays and splits."""
    molecules = read_molecules(csv, featurizer=featurizer, seeds=seeds)
    store = molecules.store
    parts = np.full((len(seeds), len(store)), -1, dtype=np.int8)  # 0 training, 1 validation, 2 test
    for row, split in zip(parts, molecules.splits, strict=True):
        assert split.validation is not None
        for part, graphs in enumerate((split.train, split.validation, split.test)):
            row[graphs.numpy()] = part
    np.savez_compressed(
        path,
        **store_arrays(store),
        parts=parts,
        seeds=np.array(seeds),
        read_seconds=molecules.read_seconds,
    )


def store_arrays(store: GraphStore) -> dict[str, Any]:
    """The arrays of molecules with classes and labels, for ``numpy.savez``; without SMILES."""
    return {
        **{name: getattr(store, name).numpy() for name in _TENSORS},
        "element": store.truth["element"].numpy(),
        "name": store.name,
        "class_names": np.array(store.class_names),
        "featurizer": store.featurizer,
    }


def store_from_arrays(saved: Mapping[str, Any]) -> GraphStore:
    """The molecules of :func:`store_arrays`."""
    return GraphStore(
        str(saved["name"]),
        **{name: torch.from_numpy(saved[name]) for name in _TENSORS},
        class_names=tuple(map(str, saved["class_names"])),
        truth={"element": torch.from_numpy(saved["element"])},
        featurizer=str(saved["featurizer"]),
    )


def load_molecules(path: Path) -> MoleculeArrays:
    """The molecules of a saved file."""
    with np.load(path) as saved:
        store = store_from_arrays(saved)
        splits = []
        for seed, row in zip(saved["seeds"].tolist(), saved["parts"], strict=True):
            train, validation, test = (torch.from_numpy(np.flatnonzero(row == part)) for part in range(3))
            splits.append(Split(train, validation, test, "scaffold", seed=seed))
        return MoleculeArrays(store, tuple(splits), float(saved["read_seconds"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder for the files")
    parser.add_argument("--root", type=Path, required=True, help="folder with the CSV files")
    parser.add_argument("--datasets", nargs="+", choices=[*LABELS], default=[*LABELS])
    parser.add_argument("--featurizers", nargs="+", default=["standard"])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.datasets:
        for featurizer in options.featurizers:
            began = time.perf_counter()
            path = options.out / f"{name}-{featurizer}.npz"
            save_molecules(options.root / f"{name}.csv", path, featurizer=featurizer)
            print(f"{path}: {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
