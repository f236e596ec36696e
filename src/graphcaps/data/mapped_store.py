"""A store in files that several processes map into their memory: one copy of the graphs, read page by page.

Each array is a file in a folder. The operating system keeps the pages that are read in its cache, once for all
processes, and drops them if memory runs short. The folder can be removed as soon as all processes have opened it, where
the system keeps mapped files until they are closed, as Linux and macOS do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.ops.edges import EdgeReport

__all__ = ["MappedStore", "join_mapped", "write_mapped"]

_OFFSETS = ("node_ptr", "edge_ptr")


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


def join_mapped(parts: Sequence[MappedStore], folder: Path) -> MappedStore:
    """The graphs of several stores, one after the other, in files of ``folder``; those of the parts are removed.

    Arrays are copied from file to file. A part may lack an array that has no rows in it. Other fields are those of the
    first part, apart from the report on edges.
    """
    arrays = tuple(dict.fromkeys(name for part in parts for name in part.arrays))
    truth = tuple(dict.fromkeys(name for part in parts for name in part.truth))
    for name in (*arrays, *(f"truth.{key}" for key in truth)):
        files = [part.folder / f"{name}.npy" for part in parts]
        _join_files([file for file in files if file.is_file()], folder / f"{name}.npy", name in _OFFSETS)
    values = {name: value for name, value in parts[0].values.items() if name not in arrays}
    values["report"] = EdgeReport.total([part.values["report"] for part in parts])
    return MappedStore(folder, values, arrays, truth)


def _join_files(files: Sequence[Path], target: Path, is_offsets: bool) -> None:
    """Joins arrays along their first axis; of offsets, which begin with 0, each continues the one before."""
    arrays = [np.load(file, mmap_mode="r") for file in files]
    first = arrays[0]
    rows = sum(len(array) - is_offsets for array in arrays) + is_offsets
    joined = np.lib.format.open_memmap(target, "w+", first.dtype, (rows, *first.shape[1:]))
    start = 0
    for file, array in zip(files, arrays, strict=True):
        stop = start + len(array) - is_offsets
        if is_offsets:
            joined[start + 1 : stop + 1] = array[1:] + joined[start]
        else:
            joined[start:stop] = array
        start = stop
        file.unlink()
    joined.flush()
