"""A parsed data set as one file, so that the second reading takes a moment.

A cache file is a safetensors file: a JSON header and flat arrays, no code. It is named after the content of
its source and carries a checksum of itself, so a changed source finds no file and a damaged, cut, foreign
or newer file is never used: the source is read again and the file replaced. Its place is
``$GRAPHCAPS_CACHE``, or the user's cache folder; it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as decode
from safetensors.torch import save as encode
from torch import Tensor

from graphcaps._io.atomic_write import expand_home, home_folder
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.ops.edges import EdgeReport

__all__ = ["CacheContents", "cache_contents", "cache_folder", "clear_cache", "load_cached", "save_cached"]

# Raise this whenever the same source would give other arrays, or the layout changes.
FORMAT = 2

_SUFFIX = ".store.safetensors"
_BLANK = "0" * 64
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
    """What lies in the cache: ``folder``, number of ``files`` and their ``bytes``."""

    folder: Path
    files: int
    bytes: int


def cache_folder() -> Path:
    """Where cached data sets lie, whether or not the folder exists yet.

    Raises:
        ArgumentError: If it lies in a home folder that nobody knows.
    """
    named = os.environ.get("GRAPHCAPS_CACHE")
    if named:
        return expand_home(named, "cache_folder", "GRAPHCAPS_CACHE")
    if sys.platform == "darwin":
        return home_folder("cache_folder") / "Library" / "Caches" / "graphcaps"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (
            (Path(base) if base else home_folder("cache_folder") / "AppData" / "Local")
            / "graphcaps"
            / "cache"
        )
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else home_folder("cache_folder") / ".cache") / "graphcaps"


def cache_contents(folder: Path | None = None) -> CacheContents:
    """How many data sets are cached, and their size."""
    folder = folder or cache_folder()
    sizes = []
    for path in _files(folder):
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    return CacheContents(folder, len(sizes), sum(sizes))


def clear_cache(folder: Path | None = None) -> CacheContents:
    """Deletes every cached data set, of any version, and leaves other files alone; says what was deleted."""
    before = cache_contents(folder)
    for path in _files(before.folder):
        path.unlink(missing_ok=True)
    return before


def load_cached(digest: str, folder: Path | None = None) -> GraphStore | None:
    """The store that was parsed from a source of that ``digest``, or ``None`` where none can be trusted."""
    try:
        path = _place(digest, folder or cache_folder())
        if not path.is_file():  # a pipe would be waited on for ever
            return None
        data = path.read_bytes()
        header = _checked_header(data)
        if header["format"] != FORMAT or header["source"] != digest:
            return None
        return _unpack(decode(data), header)
    # Whatever is wrong with the file, the source is still there: it is read again.
    except Exception:
        return None


def save_cached(store: GraphStore, digest: str, folder: Path | None = None) -> Path | None:
    """Keeps a store for sources of that ``digest``; ``None`` where there is no folder that can be written."""
    try:
        path = _place(digest, folder or cache_folder())
    except ArgumentError:
        return None
    tensors, header = _pack(store)
    header |= {"format": FORMAT, "source": digest}
    data = encode(tensors, {"graphcaps": json.dumps(header), "sha256": _BLANK})
    data = data.replace(_BLANK.encode(), _checksum(data, _BLANK).encode(), 1)
    partial: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{secrets.token_hex(8)}{_SUFFIX}.part")
        with partial.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)
    except OSError:
        if partial is not None:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        return None
    return path


# ---------------------------------------------------------------------- the file
def _place(digest: str, folder: Path) -> Path:
    return folder / f"{digest}.v{FORMAT}{_SUFFIX}"


def _files(folder: Path) -> list[Path]:
    """Finished files and what an interrupted writer left."""
    return [*folder.glob(f"*{_SUFFIX}"), *folder.glob(f".*{_SUFFIX}.part")] if folder.is_dir() else []


def _checksum(data: bytes, written: str) -> str:
    """Checksum of the whole file, its own place in the header left blank."""
    end = 8 + int.from_bytes(data[:8], "little")
    digest = hashlib.sha256(data[:end].replace(written.encode(), _BLANK.encode(), 1))
    digest.update(memoryview(data)[end:])
    return digest.hexdigest()


def _checked_header(data: bytes) -> dict[str, Any]:
    """The header of a file whose checksum is right."""
    end = 8 + int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8:end])["__metadata__"]
    written = str(metadata["sha256"])
    if len(written) != len(_BLANK) or _checksum(data, written) != written:
        raise ValueError("the file is damaged")
    header: dict[str, Any] = json.loads(metadata["graphcaps"])
    return header


# ---------------------------------------------------------------------- the store
def _pack(store: GraphStore) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Arrays in the smallest integer type that holds them, offsets as counts, and all else as a header."""
    arrays = {"sizes": store.sizes, "degree": store.degree}
    arrays |= {name: getattr(store, name) for name in _COLUMNS if getattr(store, name) is not None}
    arrays |= {f"truth.{name}": tensor for name, tensor in store.truth.items()}
    header = {
        "name": store.name,
        "class_names": list(store.class_names),
        "report": store.report.as_dict(),
        "dtypes": {name: str(tensor.dtype) for name, tensor in arrays.items()},
    }
    return {name: _narrow(tensor.cpu()).contiguous() for name, tensor in arrays.items()}, header


def _unpack(arrays: dict[str, Tensor], header: dict[str, Any]) -> GraphStore:
    wide = {name: tensor.to(_DTYPES[header["dtypes"][name]]) for name, tensor in arrays.items()}
    columns = {name: wide[name] for name in _COLUMNS if name in wide}
    truth = {name.partition(".")[2]: tensor for name, tensor in wide.items() if name.startswith("truth.")}
    return GraphStore(
        name=header["name"],
        node_ptr=_offsets(wide["sizes"]),
        edge_ptr=_offsets(wide["degree"]),
        class_names=tuple(header["class_names"]),
        truth=truth,
        report=EdgeReport(**header["report"]),
        **columns,
    )


def _narrow(tensor: Tensor) -> Tensor:
    """The same integers in the smallest type that holds them; other tensors as they are."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool or not tensor.numel():
        return tensor
    least, most = int(tensor.min()), int(tensor.max())
    for dtype in _INTEGERS:
        if torch.iinfo(dtype).min <= least and most <= torch.iinfo(dtype).max:
            return tensor.to(dtype)
    return tensor


def _offsets(counts: Tensor) -> Tensor:
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))
