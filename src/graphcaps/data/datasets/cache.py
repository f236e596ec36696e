"""Cache of parsed data sets and of structures that models precompute: each is computed only once.

A cache file is a checked safetensors file (:mod:`graphcaps._io.checked_safetensors`). That of a data set is named after
the checksum of its source; for a table of molecules, of the SMILES and how they are read. A changed source therefore
has no cache file, and a damaged, truncated, foreign or newer file is ignored: the source is parsed again and the file
is replaced. Files of structures follow the same rules; their
names are checksums of the graphs and of the options of the computation. Cache files can be deleted at any time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps._io.user_folders import expand_home, user_folder
from graphcaps.data.store import GraphStore, offsets
from graphcaps.errors import GraphcapsError
from graphcaps.ops.edges import EdgeReport
from graphcaps.ops.structure.structure import StoredLevel, Structure

__all__ = [
    "CacheContents",
    "CachedStore",
    "cache_contents",
    "cache_folder",
    "clear_cache",
    "load_cached",
    "load_cached_store",
    "load_structure",
    "save_cached",
    "save_structure",
]

# Increase this whenever the same source would give other arrays, or the layout changes.
FORMAT = 6

_FORMAT_NAME = "graphcaps data set"
_SUFFIX = ".store.safetensors"
_STRUCTURE_FORMAT = 1
_STRUCTURE_NAME = "graphcaps structure"
_STRUCTURE_SUFFIX = ".structure.safetensors"
_TEMPORARY = re.compile(r"\.[0-9a-f]{64}\..*\.part")  # left behind by a writer that was killed
_COLUMNS = (
    "y",
    "node_labels",
    "node_attributes",
    "edge_labels",
    "edge_attributes",
    "edge_weight",
    "neighbours",
)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32)
_DTYPES = {str(dtype): dtype for dtype in (*_INTEGERS, torch.int64, torch.float32, torch.float64, torch.bool)}


@dataclass(frozen=True)
class CacheContents:
    """Contents of the cache: ``folder``, number of ``files`` and their total size in ``bytes``."""

    folder: Path
    files: int
    bytes: int


@dataclass(frozen=True, eq=False)
class CachedStore:
    """A store from the cache, and the JSON values that were saved with it."""

    store: GraphStore
    details: dict[str, Any]


def cache_folder() -> Path:
    """Folder of the cache, which may not exist yet: ``$GRAPHCAPS_CACHE``, or the user's cache folder.

    Raises:
        GraphcapsError: If it is in a home folder that is unknown.
    """
    folder = os.environ.get("GRAPHCAPS_CACHE")
    return expand_home(folder, "cache_folder", "GRAPHCAPS_CACHE") if folder else user_folder("cache")


def cache_contents(folder: Path | None = None) -> CacheContents:
    """Number and total size of the cache files."""
    folder = folder or cache_folder()
    sizes = []
    for path in _cache_files(folder):
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    return CacheContents(folder, len(sizes), sum(sizes))


def clear_cache(folder: Path | None = None) -> CacheContents:
    """Deletes the cache files of all versions, and no other files.

    Returns:
        CacheContents: The contents before the deletion.
    """
    before = cache_contents(folder)
    for path in _cache_files(before.folder):
        path.unlink(missing_ok=True)
    return before


def load_cached(digest: str, folder: Path | None = None) -> GraphStore | None:
    """The cached store of the source with checksum ``digest``, or ``None`` if there is no valid cache file."""
    cached = load_cached_store(digest, folder)
    return None if cached is None else cached.store


def load_cached_store(digest: str, folder: Path | None = None) -> CachedStore | None:
    """As :func:`load_cached`, with the details that :func:`save_cached` was given."""
    try:
        path = _cache_path(digest, folder or cache_folder())
        file = read_checked(path, _FORMAT_NAME, FORMAT)
        if file.content["version"] != FORMAT or file.content["source"] != digest:
            return None
        return CachedStore(_unpack(file.tensors, file.content), dict(file.content["details"]))
    except Exception:  # whatever is wrong with the cache file, the source can be parsed again
        return None


def save_cached(
    store: GraphStore, digest: str, folder: Path | None = None, *, details: dict[str, Any] | None = None
) -> Path | None:
    """Caches a store under the checksum ``digest`` of its source.

    Args:
        store (GraphStore): The graphs.
        digest (str): Checksum.
        folder (Path, optional): Folder of the cache. (default: :func:`cache_folder`)
        details (dict, optional): JSON values that are saved with the store. (default: none)

    Returns:
        Path, optional: The cache file; ``None`` if the folder cannot be written.
    """
    tensors, content = _pack(store)
    content |= {"source": digest, "details": details or {}}
    try:
        path = _cache_path(digest, folder or cache_folder())
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, encode_checked(_FORMAT_NAME, FORMAT, content, tensors))
    except (GraphcapsError, OSError, ValueError):  # ValueError: a file name that is not valid Unicode
        return None
    return path


def load_structure(digest: str, sizes: Tensor, folder: Path | None = None) -> Structure | None:
    """The cached structure with checksum ``digest`` of graphs with these numbers of nodes ``[G]``, or ``None``."""
    try:
        path = (folder or cache_folder()) / f"{digest}{_STRUCTURE_SUFFIX}"
        file = read_checked(path, _STRUCTURE_NAME, _STRUCTURE_FORMAT)
        if file.content["key"] != digest:
            return None
        levels: list[dict[str, Tensor]] = [{} for _ in range(file.content["levels"])]
        for name, tensor in file.tensors.items():
            number, _, array = name.partition(".")
            if array:
                wide = tensor if tensor.is_floating_point() else tensor.long()
                levels[int(number)][array] = wide
        stored = tuple(StoredLevel.from_arrays(sizes, arrays) for arrays in levels)
        return Structure(stored, file.tensors.get("columns"))
    except Exception:  # whatever is wrong with the cache file, the structure can be computed again
        return None


def save_structure(structure: Structure, digest: str, folder: Path | None = None) -> Path | None:
    """Caches a structure; arguments and result as in :func:`save_cached`."""
    tensors = {} if structure.columns is None else {"columns": structure.columns}
    for number, level in enumerate(structure.levels):
        tensors |= {f"{number}.{name}": _narrow(tensor) for name, tensor in level.arrays().items()}
    content = {"key": digest, "levels": len(structure.levels)}
    try:
        path = (folder or cache_folder()) / f"{digest}{_STRUCTURE_SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, encode_checked(_STRUCTURE_NAME, _STRUCTURE_FORMAT, content, tensors))
    except (GraphcapsError, OSError, ValueError):
        return None
    return path


def _cache_path(digest: str, folder: Path) -> Path:
    return folder / f"{digest}.v{FORMAT}{_SUFFIX}"


def _cache_files(folder: Path) -> list[Path]:
    """Cache files of all versions, and temporary files of writers that were killed."""
    paths = folder.iterdir() if folder.is_dir() else ()
    suffixes = (_SUFFIX, _STRUCTURE_SUFFIX)
    return [path for path in paths if path.name.endswith(suffixes) or _TEMPORARY.fullmatch(path.name)]


def _pack(store: GraphStore) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, integers in the smallest dtype that holds them and offsets as counts; and the remaining fields."""
    arrays = {"sizes": store.sizes, "degree": store.degree}
    arrays |= {name: getattr(store, name) for name in _COLUMNS if getattr(store, name) is not None}
    arrays |= {f"truth.{name}": tensor for name, tensor in store.truth.items()}
    arrays |= {} if store.smiles is None else _pack_texts(store.smiles)
    content = {
        "name": store.name,
        "class_names": list(store.class_names),
        "label_names": {str(code): text for code, text in store.label_names.items()},
        "featurizer": store.featurizer,
        "fragments": store.fragments,
        "report": store.report.as_dict(),
        "dtypes": {name: str(tensor.dtype) for name, tensor in arrays.items()},
    }
    return {name: _narrow(tensor.cpu()) for name, tensor in arrays.items()}, content


def _unpack(arrays: dict[str, Tensor], content: dict[str, Any]) -> GraphStore:
    wide = {name: tensor.to(_DTYPES[content["dtypes"][name]]) for name, tensor in arrays.items()}
    columns: dict[str, Any] = {name: wide[name] for name in _COLUMNS if name in wide}
    truth = {name.partition(".")[2]: tensor for name, tensor in wide.items() if name.startswith("truth.")}
    return GraphStore(
        name=content["name"],
        node_ptr=offsets(wide["sizes"]),
        edge_ptr=offsets(wide["degree"]),
        class_names=tuple(content["class_names"]),
        label_names={int(code): text for code, text in content["label_names"].items()},
        truth=truth,
        featurizer=content["featurizer"],
        fragments=content["fragments"],
        report=EdgeReport(**content["report"]),
        smiles=_unpack_texts(wide["smiles"], wide["smiles.bytes"]) if "smiles" in wide else None,
        **columns,
    )


def _pack_texts(texts: Sequence[str]) -> dict[str, Tensor]:
    """Texts as bytes of UTF-8 in one array, and the number of bytes of each: a header of JSON would be too long."""
    encoded = [text.encode() for text in texts]
    content = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    return {
        "smiles": torch.tensor([len(each) for each in encoded], dtype=torch.int64),
        "smiles.bytes": torch.from_numpy(content.copy()),
    }


def _unpack_texts(lengths: Tensor, content: Tensor) -> tuple[str, ...]:
    data, ends = content.numpy().tobytes(), lengths.cumsum(0).tolist()
    return tuple(data[start:end].decode() for start, end in zip([0, *ends], ends, strict=False))


def _narrow(tensor: Tensor) -> Tensor:
    """The same integers in the smallest dtype that holds them; other tensors unchanged."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool or not tensor.numel():
        return tensor
    smallest, largest = int(tensor.min()), int(tensor.max())
    for dtype in _INTEGERS:
        if torch.iinfo(dtype).min <= smallest and largest <= torch.iinfo(dtype).max:
            return tensor.to(dtype)
    return tensor
