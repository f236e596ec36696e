"""Writes a store as a data set in the layout of the TU Dortmund collection, as a folder or a zip.

:func:`graphcaps.data.read_tu` reads back what was written: the same nodes, edges, classes, labels and
attributes (float64 attributes within float32's range come back as float32, which is the reader's rule). The
rows of ``NAME_A.txt`` are the store's own edges, each once in each direction, so the ``report`` of the set
read back describes these rows and not the first source.

Three kinds of files are not known to the collection, and are written only where they are needed:

* ``NAME_class_names.txt``, where classes have names that are not their numbers, or a class has no graph;
* ``NAME_edge_weights.txt``, a number per row of ``NAME_A.txt``;
* ``NAME_truth_KEY.txt``, a whole number per node: what is known and never shown to a model.

Other readers pass over them and find numbered classes.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from graphcaps import __version__
from graphcaps._io.atomic_write import expand_home, write_atomically, write_folder_atomically
from graphcaps.data.readers.tu_archive import TRUTH_PREFIX, TU_TABLES
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError

__all__ = ["read_class_names", "write_class_names", "write_tu"]


_EXPECTED = "a class, a comma and its name"


def read_class_names(pieces: Iterable[bytes], where: str) -> dict[int, str]:
    """Names by the number that stands for the class, in the order of the file.

    Raises:
        DataError: At an empty file, a line that is none of these, or a number or name that comes again.
    """
    try:
        text = b"".join(pieces).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(where, "text in UTF-8", "other bytes") from error
    names: dict[int, str] = {}
    seen: set[str] = set()
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), start=1):
        value, comma, name = line.partition(",")
        try:
            label = int(value)
        except ValueError:
            label = None
        if label is None or not comma or not name.strip():
            raise DataError(where, _EXPECTED, repr(line.rstrip("\r")), line=number)
        if label in names:
            raise DataError(where, "every class once", f"class {label} again", line=number)
        name = name.strip()
        if name in seen:
            raise DataError(where, "every name once", f"{name!r} again", line=number)
        seen.add(name)
        names[label] = name
    return names


def write_class_names(values: Sequence[int], names: Sequence[str], owner: str) -> str:
    """The text that :func:`read_class_names` reads back.

    Raises:
        ArgumentError: If a name does not fit on a line, is empty, has blanks at its ends, or comes again.
    """
    for name in names:
        if not name or name != name.strip() or "\n" in name or not _encodes(name):
            expected = "be class names of one line, without blanks at their ends"
            raise ArgumentError(owner, "class_names", expected, repr(name))
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ArgumentError(owner, "class_names", "be different names", f"{twice[0]!r} twice")
    return "".join(f"{value}, {name}\n" for value, name in zip(values, names, strict=True))


def _encodes(name: str) -> bool:
    """Half of a surrogate pair is no text."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_OWNER = "write_tu"
_README = "README.txt"
_ROWS = 1 << 16  # rows turned into text together
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_OURS = re.compile(rf".+_({'|'.join(TU_TABLES)}|{TRUTH_PREFIX}.+)\.txt")
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest of a zip: the same store gives the same bytes

# What writes the rows of a file, called when the file is open.
Rows = Callable[[], Iterator[bytes]]


def write_tu(
    store: GraphStore, target: str | Path, *, name: str | None = None, overwrite: bool = False
) -> None:
    """Writes a store as a TU folder, or as a TU zip where ``target`` ends in ``.zip``.

    The target appears whole or not at all. The same store and name give the same bytes.

    Args:
        store (GraphStore): At least one graph and one edge (the layout has no data set without edges).
        target (str or Path): Folder or zip; the folder that it lies in must exist.
        name (str, optional): NAME of the files. (default: that of the target, without ``.zip``)
        overwrite (bool): Whether an existing zip is replaced, or a folder in which there is nothing but a
            TU data set. (default: ``False``)

    Raises:
        ArgumentError: If the target exists, or the layout cannot hold the store.
        DataError: If the file system refuses.
    """
    target = expand_home(target, _OWNER, "target")
    is_zip = target.name.lower().endswith(".zip")
    stem = target.name[:-4] if is_zip else (target.name or target.resolve().name)
    name = _checked_name(stem if name is None else name)
    files = _files(store.to("cpu"), name)
    if not is_zip:
        write_folder_atomically(target, files, overwrite=overwrite, ours=_is_ours, owner=_OWNER)
        return
    if target.exists() and not overwrite:
        raise ArgumentError(_OWNER, "target", "be new", f"'{target}', which exists", "Use --overwrite.")
    write_atomically(target, lambda file: _write_zip(file, name, files))


def _write_zip(file: BinaryIO, name: str, files: dict[str, Rows]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, rows in files.items():
            entry = zipfile.ZipInfo(f"{name}/{member}", _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as stream:
                for piece in rows():
                    stream.write(piece)


def _is_ours(file: str) -> bool:
    return file == _README or _OURS.fullmatch(file) is not None


# ---------------------------------------------------------------------- what the files hold
def _files(store: GraphStore, name: str) -> dict[str, Rows]:
    """The files of a data set by name; everything is checked here, before any is written."""
    if not store.num_edges:
        found = f"no edge in {len(store)} graphs"
        raise ArgumentError(_OWNER, "store", "hold at least one edge, as a TU data set does", found)
    values, names = _classes(store)
    tables: dict[str, Rows | None] = {
        "A": _edges(store),
        "graph_indicator": _integers(store.node_graph + 1),
        "graph_labels": None if store.y is None else _integers(torch.tensor(values)[store.y]),
        "class_names": None if names is None else _text(names),
        "node_labels": _labels(store.node_labels, "node_labels"),
        "node_attributes": _numbers(store.node_attributes, "node_attributes"),
        "edge_labels": _labels(store.edge_labels, "edge_labels"),
        "edge_attributes": _numbers(store.edge_attributes, "edge_attributes"),
        "edge_weights": _numbers(store.edge_weight, "edge_weight"),
    }
    for key, known in sorted(store.truth.items()):
        # NAME_truth_A.txt would be the edges of a second data set.
        if not _KEY.fullmatch(key) or key == "A" or key.endswith("_A"):
            expected = "have keys of letters, digits, _ and - that do not end in '_A'"
            raise ArgumentError(_OWNER, "truth", expected, repr(key))
        tables[f"{TRUTH_PREFIX}{key}"] = _labels(known, f"truth['{key}']")
    files = {f"{name}_{table}.txt": rows for table, rows in tables.items() if rows is not None}
    files[_README] = _text(_describe(store, name, list(files)))
    return files


def _classes(store: GraphStore) -> tuple[list[int], str | None]:
    """The number that stands for each class, and the file of names where one is needed."""
    count = store.num_classes
    used: list[int] = [] if store.y is None else torch.unique(store.y).tolist()
    most = count - 1 if count else max(used, default=0)
    if used and not 0 <= used[0] <= used[-1] <= most:
        expected = f"hold classes from 0 to {most}, one per class name"
        raise ArgumentError(_OWNER, "y", expected, used[0] if used[0] < 0 else used[-1])
    if not count:
        return list(range(most + 1)), None
    numbers = [int(text) for text in store.class_names if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text)]
    plain = [str(number) for number in numbers] == list(store.class_names) and len(set(numbers)) == count
    values = numbers if plain else list(range(count))
    # The reader numbers the values that it sees in ascending order; where that is right, no file is needed.
    if plain and numbers == sorted(numbers) and len(used) == count:
        return values, None
    return values, write_class_names(values, store.class_names, _OWNER)


def _describe(store: GraphStore, name: str, files: list[str]) -> str:
    lines = [
        f"{name}: {len(store)} graphs, {store.num_nodes} nodes, {store.num_edges} undirected edges.",
        "Layout of the TU Dortmund collection: nodes and graphs count from 1.",
        f"Written by graphcaps {__version__} from the data set {' '.join(store.name.split())}.",
        "",
        *files,
    ]
    return "\n".join(lines) + "\n"


def _checked_name(name: str) -> str:
    wrong = not name.strip() or name.startswith((".", " ")) or set(name) & set("/\\\0\n\r")
    if wrong or any(0xD800 <= ord(letter) < 0xE000 for letter in name):
        raise ArgumentError(_OWNER, "name", "be a name for files, with no dot at its start", repr(name))
    return name


# ---------------------------------------------------------------------- rows as text
def _text(text: str) -> Rows:
    return lambda: iter([text.encode("utf-8")])


def _labels(values: Tensor | None, what: str) -> Rows | None:
    if values is None or not values.numel():
        return None
    if values.is_floating_point() or values.is_complex():
        raise ArgumentError(_OWNER, what, "hold whole numbers", values.dtype)
    return _integers(values)


def _edges(store: GraphStore) -> Rows:
    """Rows of two node ids from 1, in the order of the store's entries; no list of all edges is made."""

    def rows() -> Iterator[bytes]:
        for start in range(0, store.neighbours.numel(), _ROWS):
            local = store.neighbours[start : start + _ROWS]
            entry = torch.arange(start, start + local.numel())
            source = torch.searchsorted(store.edge_ptr, entry, right=True) - 1
            first = store.node_ptr[store.node_graph[source]]
            yield _lines(torch.stack([source, first + local], 1) + 1)

    return rows


def _integers(values: Tensor) -> Rows:
    table = values.reshape(values.size(0), -1)
    return lambda: (_lines(table[start : start + _ROWS]) for start in range(0, len(table), _ROWS))


def _lines(block: Tensor) -> bytes:
    line = ", ".join(["%d"] * block.size(1)) + "\n"
    return ((line * len(block)) % tuple(block.reshape(-1).tolist())).encode("ascii")


def _numbers(values: Tensor | None, what: str) -> Rows | None:
    if values is None or not values.numel():
        return None
    table = values.detach().reshape(values.size(0), -1)
    table = table if table.dtype in (torch.float32, torch.float64) else table.double()
    if not bool(torch.isfinite(table).all()):
        row = int((~torch.isfinite(table)).any(1).nonzero()[0, 0])
        raise ArgumentError(_OWNER, what, "hold finite numbers", f"{table[row].tolist()} in row {row}")
    array, limit = table.numpy(), torch.finfo(table.dtype).max

    def rows() -> Iterator[bytes]:
        for start in range(0, len(array), _ROWS):
            block = array[start : start + _ROWS]
            text = block.astype(str)  # the fewest digits that name the number
            # Read as float64 and rounded, as the reader does, such digits can miss a float32 by one, and
            # those of the largest float32 are above it.
            read = text.astype(np.float64)
            missed = (read.clip(-limit, limit) != read) | (
                read.clip(-limit, limit).astype(block.dtype) != block
            )
            for row, column in np.argwhere(missed):
                text[row, column] = repr(float(block[row, column]))
            yield "".join(", ".join(row) + "\n" for row in text.tolist()).encode("ascii")

    return rows
