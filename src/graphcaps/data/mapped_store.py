"""A store in files that several processes map into their memory: one copy of the graphs, read page by page.

Each array is a file in a folder. The operating system keeps the pages that are read in its cache, once for all
processes, and drops them if memory runs short. The folder can be removed as soon as all processes have opened it, where
the system keeps mapped files until they are closed, as Linux and macOS do.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.store import GraphStore

__all__ = ["MappedStore", "write_mapped"]


@dataclass(frozen=True)
class MappedStore:
    """The description of a store whose arrays are in files; small, so that it can be sent to other processes.

    Args:
        folder (Path): Folder of the files.
        values (dict): Arguments of :class:`GraphStore` that are not arrays.
        arrays (tuple): Names of the arrays.
        truth (tuple): Names of the arrays of ``truth``.
    """

    folder: Path
    values: dict[str, Any]
    arrays: tuple[str, ...]
    truth: tuple[str, ...]

    def open(self) -> GraphStore:
        """The store, whose arrays are mapped. Changes to them stay in this process."""
        arrays: dict[str, Any] = {name: self._map(name) for name in self.arrays}
        truth = {name: self._map(f"truth.{name}") for name in self.truth}
        return GraphStore(**self.values, **arrays, truth=truth)

    def _map(self, name: str) -> Tensor:
        # Copy on write: torch has no tensors that cannot be written.
        return torch.from_numpy(np.load(self.folder / f"{name}.npy", mmap_mode="c"))


def write_mapped(store: GraphStore, folder: Path) -> MappedStore:
    """Writes the arrays of a store on the host to a folder. SMILES, which no network reads, are left out."""
    assert store.structure is None, "structures are computed by each process"
    store = replace(store, smiles=None)
    values: dict[str, Any] = {entry.name: getattr(store, entry.name) for entry in fields(store)}
    truth = values.pop("truth")
    arrays = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    for name, value in (*arrays.items(), *((f"truth.{key}", each) for key, each in truth.items())):
        np.save(folder / f"{name}.npy", value.numpy())
    rest = {name: value for name, value in values.items() if name not in arrays}
    return MappedStore(folder, rest, tuple(arrays), tuple(truth))
