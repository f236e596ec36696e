"""Small files whose content takes far more memory than their size, one per reader.

``python -m tests.memory_bombs NAME PATH`` reads one and prints the error and the memory that reading took, in bytes.
"""

from __future__ import annotations

import json
import resource
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

_ADDRESS_SPACE = 12 << 30  # torch alone reserves a few GiB


def write_bomb(name: str, folder: Path, size: int) -> Path:
    """Writes a bomb whose content has about ``size`` bytes, far more in memory."""
    path = folder / f"{name}{_SUFFIXES.get(name, '.json')}"
    _WRITERS[name](path, size)
    return path


def read_bomb(name: str, path: Path) -> object:
    """Reads it as the command line does."""
    if name in ("archive", "record"):
        from graphcaps.evaluation.results_store import ResultsStore

        return ResultsStore(path.parent).records()
    if name == "model":
        from graphcaps.inference.model_file import load

        return load(path)
    if name == "preset":
        from graphcaps.presets import load_preset

        return load_preset(path)
    if name.startswith("zip"):
        from graphcaps.data.readers.tu import read_tu

        return read_tu(path)
    from graphcaps.data.readers.user_files import read_user_file

    return read_user_file(path)


def _zip(member: str, row: bytes) -> Callable[[Path, int], None]:
    def write(path: Path, size: int) -> None:
        tables = {"A": b"1,2\n", "graph_indicator": b"1\n1\n", "graph_labels": b"1\n"}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for table, content in (tables | {member: b""}).items():
                with archive.open(f"X_{table}.txt", "w", force_zip64=True) as file:
                    file.write(content)
                    for _ in range(0 if content else size // (len(row) * 1000)):
                        file.write(row * 1000)

    return write


def _repeated(start: str, row: str, end: str = "") -> Callable[[Path, int], None]:
    return lambda path, size: path.write_text(start + row * (size // len(row)) + end)


def _nodes(path: Path, size: int) -> None:
    path.write_text(json.dumps({"links": [], "nodes": [{"id": node} for node in range(size // 16)]}))


def _parquet(path: Path, size: int) -> None:
    import pyarrow
    from pyarrow import parquet

    entry = "C" * 10_000
    indices = pyarrow.array([0] * (size // len(entry)), pyarrow.int32())
    column = pyarrow.DictionaryArray.from_arrays(indices, [entry])
    parquet.write_table(pyarrow.table({"smiles": column}), path)


def _parquet_rows(path: Path, size: int) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"smiles": ["C"] * (size // 8), "y": [1] * (size // 8)}), path)


def _archive(path: Path, size: int) -> None:
    from graphcaps.evaluation.record_archive import write_archive
    from tests.evaluation.records import record

    path = path.with_name("records.zip")
    write_archive(path, [record()])
    with zipfile.ZipFile(path) as archive:
        values = json.loads(archive.read("records.jsonl").splitlines()[0])
    values["curves"] |= {"folds": 16, "epochs": size // 64}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("records.jsonl", json.dumps(values))


def _record(path: Path, size: int) -> None:
    import base64
    import zlib

    from tests.evaluation.records import record

    values = record().as_dict()
    packed = base64.b64encode(zlib.compress(bytes(size // 4 * 4))).decode()
    for name, value in values["curves"].items():
        if isinstance(value, str):
            values["curves"][name] = packed
        elif isinstance(value, list):
            values["curves"][name] = [1]
    values["curves"] |= {"folds": 1, "epochs": size // 4}
    path.with_name("x.record.json").write_text(json.dumps(values))


def _model(path: Path, size: int) -> None:
    metadata = json.dumps({"graphcaps": "[" + "[]," * (size // 3) + "[]]"})
    header = f'{{"__metadata__":{metadata}}}'.replace('": "', '":"').encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)


_SUFFIXES = {
    **dict.fromkeys(("zip-edges", "zip-nodes", "zip-labels", "zip-names"), ".zip"),
    **dict.fromkeys(("csv", "csv-entries", "atoms"), ".csv"),
    **dict.fromkeys(("parquet", "parquet-rows"), ".parquet"),
    "graphml": ".graphml",
    "gexf": ".gexf",
    "model": ".safetensors",
    "preset": ".toml",
}
_WRITERS: dict[str, Callable[[Path, int], None]] = {
    "zip-edges": _zip("A", b"1,2\n"),
    "zip-nodes": _zip("graph_indicator", b"1\n"),
    "zip-labels": _zip("node_labels", b"1 " * 99 + b"1\n"),
    "zip-names": _zip("class_names", b"1,a\n"),
    "csv": _repeated("smiles,y\n", "CC,1\n"),
    "csv-entries": _repeated("smiles\n", "a,b" * 1000 + "\n"),
    "atoms": _repeated("smiles\n", "C" * 4999 + "\n"),
    "parquet": _parquet,
    "parquet-rows": _parquet_rows,
    "json-lists": _repeated("[", "[],", "[]]"),
    "json-objects": _repeated("[", "{},", "{}]"),
    "json-nodes": _nodes,
    "graphml": _repeated(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">',
        "<node/>",
        "</graph></graphml>",
    ),
    "gexf": _repeated(
        '<gexf xmlns="http://gexf.net/1.3"><graph><nodes>', "<node/>", "</nodes></graph></gexf>"
    ),
    "archive": _archive,
    "record": _record,
    "model": _model,
    "preset": _repeated("", "# a comment\n"),
}
BOMBS = tuple(_WRITERS)
"""Names of all bombs."""


def _main(name: str, path: str) -> None:
    from graphcaps.errors import GraphcapsError

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    try:
        read_bomb(name, Path(path))
        message = ""
    except GraphcapsError as error:
        message = str(error)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"error": message, "bytes": 1024 * (after - before)}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
