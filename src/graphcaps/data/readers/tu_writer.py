"""Writes a store in the format of the TU Dortmund collection, as a folder or a zip.

:func:`graphcaps.data.read_tu` reads back the same nodes, edges, classes, labels and attributes; float64 attributes in
the range of float32 come back as float32, as for any TU data set. The format has no names of label and attribute
columns, so a model matches the attributes by position. ``NAME_A.txt`` lists every edge of the store once in
each direction. The ``report`` of the data set that is read back describes these rows, not those of the original source.

A graph without nodes has a class, but its number is missing in ``NAME_graph_indicator.txt``. Without classes the last
graph must have nodes, because nothing would show that it exists.

Five kinds of files are additions of graphcaps. They are written only if needed, and other readers ignore them:

* ``NAME_class_names.txt``: a class number, a comma and its name per line. Written if the names of the classes are not
  their numbers, or if a class has no graph.
* ``NAME_label_names.txt``: the code of a text label, a comma and the text as a JSON string per line. Written if the
  store has ``label_names``. As a JSON string any text fits into one line.
* ``NAME_edge_weights.txt``: a number per row of ``NAME_A.txt``.
* ``NAME_truth_KEY.txt``: an integer per node, ground truth that no model sees.
* ``NAME_featurizer.txt``: the name of the featurizer of molecules read from SMILES, which gives the labels a meaning.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from graphcaps import __version__
from graphcaps._io.atomic_write import write_atomically, write_folder_atomically
from graphcaps._io.user_folders import expand_home
from graphcaps.data.readers.tu_archive import TRUTH_PREFIX, TU_TABLES
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["write_tu"]

_OWNER = "write_tu"
_README = "README.txt"
_BLOCK_ROWS = 1 << 16  # rows that are converted to text at once
_TRUTH_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TU_FILE = re.compile(rf".+_({'|'.join(TU_TABLES)}|{TRUTH_PREFIX}.+)\.txt")
_DATE = (
    1980,
    1,
    1,
    0,
    0,
    0,
)  # the earliest date of a zip; fixed, so that the same store gives the same bytes

Rows = Callable[[], Iterator[bytes]]  # yields the rows of a file as text, many at a time


def write_tu(
    store: GraphStore, target: str | Path, *, name: str | None = None, overwrite: bool = False
) -> None:
    """Writes a store as a TU folder, or as a TU zip if ``target`` ends in ``.zip``.

    The target is written atomically. The same store and name give the same bytes.

    Args:
        store (GraphStore): Graphs with at least one edge; the format cannot represent a data set without edges, nor a
            last graph without nodes where the graphs have no classes.
        target (str or Path): Folder or zip; its parent folder must exist.
        name (str, optional): NAME of the files. (default: that of the target, without ``.zip``)
        overwrite (bool): Whether an existing zip is replaced, or a folder that contains only a TU data set.
            (default: ``False``)

    Raises:
        ArgumentError: If the target exists, or the format cannot represent the store.
        DataError: If the target cannot be written.
    """
    target = expand_home(target, _OWNER, "target")
    is_zip = target.name.lower().endswith(".zip")
    stem = target.name[:-4] if is_zip else (target.name or target.resolve().name)
    name = _checked_name(stem if name is None else name)
    files = _files(store.to("cpu"), name)
    if not is_zip:
        write_folder_atomically(
            target,
            files,
            overwrite=overwrite,
            replaceable=_is_tu_file,
            content="a TU data set",
            owner=_OWNER,
        )
        return
    if target.exists() and not overwrite:
        raise ArgumentError(_OWNER, "target", "not exist yet", f"'{target}'", "Replace it with --overwrite.")
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


def _is_tu_file(file: str) -> bool:
    return file == _README or _TU_FILE.fullmatch(file) is not None


# ---------------------------------------------------------------------- content of the files
def _files(store: GraphStore, name: str) -> dict[str, Rows]:
    """The files of a data set by name. Everything is checked here, before any file is written."""
    if not store.num_edges:
        found = f"no edge in {len(store)} graphs"
        raise ArgumentError(_OWNER, "store", "have at least one edge to be a TU data set", found)
    if store.y is None and not int(store.sizes[-1]):
        expected = "end with a graph that has nodes if the graphs have no classes"
        raise ArgumentError(_OWNER, "store", expected, f"graph {len(store)} without nodes")
    values, names = _classes(store)
    tables: dict[str, Rows | None] = {
        "A": _edges(store),
        "graph_indicator": _integers(store.node_graph + 1),
        "graph_labels": None if store.y is None else _integers(torch.tensor(values)[store.y]),
        "class_names": None if names is None else _text(names),
        "label_names": _text(_label_names_text(store.label_names)) if store.label_names else None,
        "node_labels": _labels(store.node_labels, "node_labels"),
        "node_attributes": _numbers(store.node_attributes, "node_attributes"),
        "edge_labels": _labels(store.edge_labels, "edge_labels"),
        "edge_attributes": _numbers(store.edge_attributes, "edge_attributes"),
        "edge_weights": _numbers(store.edge_weight, "edge_weight"),
        "featurizer": None if store.featurizer is None else _text(f"{store.featurizer}\n"),
    }
    for key, truth in sorted(store.truth.items()):
        # NAME_truth_A.txt would be read as the edges of a second data set.
        if not _TRUTH_KEY.fullmatch(key) or key == "A" or key.endswith("_A"):
            expected = "have keys of letters, digits, _ and - that do not end in '_A'"
            raise ArgumentError(_OWNER, "truth", expected, repr(key))
        tables[f"{TRUTH_PREFIX}{key}"] = _labels(truth, f"truth['{key}']")
    files = {f"{name}_{table}.txt": rows for table, rows in tables.items() if rows is not None}
    files[_README] = _text(_describe(store, name, list(files)))
    return files


def _classes(store: GraphStore) -> tuple[list[int], str | None]:
    """The number of each class in the file, and the content of the file of class names if one is needed."""
    count = store.num_classes
    used: list[int] = [] if store.y is None else torch.unique(store.y).tolist()
    largest = count - 1 if count else max(used, default=0)
    if used and not 0 <= used[0] <= used[-1] <= largest:
        expected = f"have classes from 0 to {largest}, one per class name"
        raise ArgumentError(_OWNER, "y", expected, used[0] if used[0] < 0 else used[-1])
    if not count:
        return list(range(largest + 1)), None
    numbers = [int(text) for text in store.class_names if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text)]
    are_numbers = [str(number) for number in numbers] == list(store.class_names) and len(
        set(numbers)
    ) == count
    values = numbers if are_numbers else list(range(count))
    # The reader numbers the distinct values in ascending order. If that gives the same classes, no file is needed.
    if are_numbers and numbers == sorted(numbers) and len(used) == count:
        return values, None
    return values, _class_names_text(values, store.class_names)


def _class_names_text(values: Sequence[int], names: Sequence[str]) -> str:
    """Content of ``NAME_class_names.txt``.

    Raises:
        ArgumentError: If a name is empty, has several lines, begins or ends with a blank, or is repeated.
    """
    for name in names:
        if not name or name != name.strip() or "\n" in name or not _is_valid_unicode(name):
            expected = "be names of one line without blanks at the ends"
            raise ArgumentError(_OWNER, "class_names", expected, repr(name))
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ArgumentError(_OWNER, "class_names", "be distinct", f"{repeated[0]!r} twice")
    return "".join(f"{value}, {name}\n" for value, name in zip(values, names, strict=True))


def _label_names_text(names: Mapping[int, str]) -> str:
    """Content of ``NAME_label_names.txt``, in the order of the codes."""
    return "".join(
        f"{code}, {json.dumps(text, ensure_ascii=not _is_valid_unicode(text))}\n"
        for code, text in sorted(names.items())
    )


def _describe(store: GraphStore, name: str, files: list[str]) -> str:
    lines = [
        f"{name}: {len(store)} graphs, {store.num_nodes} nodes, {store.num_edges} undirected edges.",
        "Format of the TU Dortmund collection: nodes and graphs are numbered from 1.",
        f"Written by graphcaps {__version__} from the data set {' '.join(store.name.split())}.",
        "",
        *files,
    ]
    return "\n".join(lines) + "\n"


def _checked_name(name: str) -> str:
    invalid = not name.strip() or name.startswith((".", " ")) or set(name) & set("/\\\0\n\r")
    if invalid or not _is_valid_unicode(name):
        raise ArgumentError(_OWNER, "name", "be a valid file name that does not start with a dot", repr(name))
    return name


def _is_valid_unicode(text: str) -> bool:
    """Whether a text has no unpaired surrogates, which UTF-8 cannot encode."""
    return not any(0xD800 <= ord(letter) < 0xE000 for letter in text)


# ---------------------------------------------------------------------- rows as text
def _text(text: str) -> Rows:
    return lambda: iter([text.encode("utf-8")])


def _labels(values: Tensor | None, what: str) -> Rows | None:
    if values is None or not values.numel():
        return None
    if values.is_floating_point() or values.is_complex():
        raise ArgumentError(_OWNER, what, "hold integers", values.dtype)
    return _integers(values)


def _edges(store: GraphStore) -> Rows:
    """Rows of two node ids from 1, in the order of the store. The edge list is never in memory as a whole."""

    def rows() -> Iterator[bytes]:
        for start in range(0, store.neighbours.numel(), _BLOCK_ROWS):
            local = store.neighbours[start : start + _BLOCK_ROWS]
            entry = torch.arange(start, start + local.numel())
            source = torch.searchsorted(store.edge_ptr, entry, right=True) - 1
            first = store.node_ptr[store.node_graph[source]]
            yield _lines(torch.stack([source, first + local], 1) + 1)

    return rows


def _integers(values: Tensor) -> Rows:
    table = values.reshape(values.size(0), -1)
    return lambda: (_lines(table[start : start + _BLOCK_ROWS]) for start in range(0, len(table), _BLOCK_ROWS))


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
        for start in range(0, len(array), _BLOCK_ROWS):
            block = array[start : start + _BLOCK_ROWS]
            text = block.astype(str)  # the shortest decimal that identifies the number
            # The reader parses float64 and rounds to float32. For such a decimal this can give a neighbouring float32,
            # and the decimal of the largest float32 is above the range. These numbers are written with all digits.
            read = text.astype(np.float64)
            inexact = (read.clip(-limit, limit) != read) | (
                read.clip(-limit, limit).astype(block.dtype) != block
            )
            for row, column in np.argwhere(inexact):
                text[row, column] = repr(float(block[row, column]))
            yield "".join(", ".join(row) + "\n" for row in text.tolist()).encode("ascii")

    return rows
