"""Seeded fuzzing of every reader: small valid files, damaged at random, must be read or refused in one sentence.

``python -m tests.fuzz_readers --inputs 5000 --seed 1`` prints a table of outcomes by format, and every failure with the
number of its input; ``--only NUMBER`` repeats one input. Input ``n`` of a seed is the same however many are run.

A *failure* is an exception that is not a :class:`graphcaps.errors.GraphcapsError`, a message that has more than
``MAX_MESSAGE`` characters or a line break, a warning, or a reader that takes more than ``MAX_SECONDS`` of CPU
time.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.readers.tu import read_tu
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.data.splits.folds import split_from_names
from graphcaps.data.splits.groups import read_groups, read_split_names
from graphcaps.data.store import GraphStore
from graphcaps.errors import GraphcapsError, UsageError
from graphcaps.estimator import HGCNClassifier
from graphcaps.evaluation.ledger import Ledger
from graphcaps.evaluation.record import RecordKey
from graphcaps.evaluation.record_archive import write_archive
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.model_file import load
from graphcaps.presets import load_preset
from graphcaps.serve.limits import Limits
from graphcaps.serve.worker import WorkerRequest, handle_batch
from graphcaps.training.checkpoint import Checkpoint, load_checkpoint, write_checkpoint
from graphcaps.training.replica_trainer import EpochEnd
from tests.evaluation.records import measured_record, record
from tests.serve.models import molecule_model, node_link
from tests.small_models import labelled, planted, small_model

MAX_SECONDS = 10.0
"""Longest CPU time of this process that reading one input may take, however busy the machine is."""
MAX_MESSAGE = 360
"""Most characters of a message, without the folder of the file: a value of 200, and what was expected."""

_VALUES = (
    *(
        "1e308",
        "-1",
        "9223372036854775808",
        "nan",
        "inf",
        "0",
        "1e-400",
        "-0.0",
        "0x10",
        "1_000",
        "",
        " ",
        '"',
        "'",
    ),
    *(
        "\x00",
        "\x1b[2J",
        "\x7f",
        "\u202e",
        "é",
        "\ud800",
        "x" * 5000,
        "9" * 5000,
        "[" * 300,
        "{" * 300,
        "(" * 300,
    ),
    *(
        "[[1]]",
        "{}",
        "null",
        "true",
        "1,2,3",
        "=1+1",
        "../../x",
        "<a>",
        "&lt;",
        "%s",
        "C1CC",
        "[UH128]",
        "\r",
        "\n\n",
    ),
)
_JSON_VALUES: tuple[Any, ...] = (
    *(
        1e308,
        -1,
        2**63,
        10**40,
        float("nan"),
        float("inf"),
        0,
        1.5,
        "",
        "x" * 5000,
        "\x1b[2J",
        "\ud800",
        None,
        True,
    ),
    *([], {}, [[1]], [None], {"a": []}, [[[[[[]]]]]], "1e400", [-1, 2**70], {"": None}),
)
_JSON_FILES = (".json", ".jsonl")


# ---------------------------------------------------------------------- damage
def mutate(content: bytes, draw: random.Random) -> bytes:
    """Damages bytes in one to three places: flipped, cut, repeated, moved or inserted."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        content = draw.choice(_MUTATIONS)(content, draw)
    return content


def _flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 4, 16)) if content else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _cut(content: bytes, draw: random.Random) -> bytes:
    start, end = _span(content, draw)
    return content[:start] if draw.random() < 0.3 else content[:start] + content[end:]


def _repeat(content: bytes, draw: random.Random) -> bytes:
    start, end = _span(content, draw)
    return content[:end] + content[start:end] * draw.choice((1, 1, 3, 50)) + content[end:]


def _insert(content: bytes, draw: random.Random) -> bytes:
    start = draw.randint(0, len(content))
    return content[:start] + _value(draw) + content[start:]


def _replace_field(content: bytes, draw: random.Random) -> bytes:
    """Replaces a word, a number or the content of quotes."""
    fields = [*re.finditer(rb"[^\s,;:\"'<>{}\[\]=/]+", content)]
    if not fields:
        return _insert(content, draw)
    field = draw.choice(fields)
    return content[: field.start()] + _value(draw) + content[field.end() :]


def _swap_lines(content: bytes, draw: random.Random) -> bytes:
    return _swap(content, b"\n", draw)


def _swap_fields(content: bytes, draw: random.Random) -> bytes:
    return _swap(content, draw.choice((b",", b" ", b'"', b"\t")), draw)


def _swap(content: bytes, separator: bytes, draw: random.Random) -> bytes:
    parts = content.split(separator)
    one, two = draw.randrange(len(parts)), draw.randrange(len(parts))
    parts[one], parts[two] = parts[two], parts[one]
    return separator.join(parts)


def _span(content: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randint(0, len(content))
    return start, min(len(content), start + draw.choice((1, 2, 8, 64, 1000)))


def _value(draw: random.Random) -> bytes:
    return draw.choice(_VALUES).encode("utf-8", "surrogatepass")


_MUTATIONS = (_flip, _cut, _repeat, _insert, _replace_field, _replace_field, _swap_lines, _swap_fields)


def mutate_json(values: Any, draw: random.Random) -> Any:
    """Replaces, removes, repeats or moves one to three entries of a JSON value."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        places = [*_places(values)]
        if not places:
            return draw.choice(_JSON_VALUES)
        # By depth first: a long list of numbers must not hide the entries around it.
        depth = draw.choice(sorted({depth for depth, _, _ in places}))
        _, owner, key = draw.choice([place for place in places if place[0] == depth])
        action = draw.random()
        if action < 0.15:
            del owner[key]
        elif action < 0.25 and isinstance(owner, dict):
            owner[draw.choice(("", "x", "\x1b", "nodes", "x" * 5000))] = owner.pop(key)
        elif action < 0.35 and isinstance(owner, list):
            owner.extend([owner[key]] * draw.choice((1, 100)))
        elif action < 0.45:
            _, other, name = draw.choice(places)
            owner[key] = json.loads(json.dumps(other[name]))
        else:
            owner[key] = json.loads(json.dumps(draw.choice(_JSON_VALUES)))
    return values


def _places(values: Any, depth: int = 0) -> Iterator[tuple[int, Any, Any]]:
    """Every entry below a JSON value: its depth, and the list or object and the key that hold it."""
    keys = (
        list(values) if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ()
    )
    for key in keys:
        yield depth, values, key
        yield from _places(values[key], depth + 1)


# ---------------------------------------------------------------------- formats
Files = dict[str, bytes]


@dataclass(frozen=True)
class Format:
    """A kind of input.

    Args:
        files (callable): Valid content by file name.
        read (callable): Reads the folder that holds the files.
        damage (callable, optional): Damages the content with knowledge of the format; used for half of the inputs.
    """

    files: Callable[[], Files]
    read: Callable[[Path], object]
    damage: Callable[[Files, random.Random], Files] | None = None


def damaged_files(format: Format, draw: random.Random) -> Files:
    """The files of a format with one of them damaged."""
    files = dict(format.files())
    if format.damage is not None and draw.random() < 0.5:
        return format.damage(files, draw)
    name = draw.choice(sorted(files))
    if name.endswith(_JSON_FILES) and draw.random() < 0.6:
        lines = files[name].splitlines() if name.endswith(".jsonl") else [files[name]]
        line = draw.randrange(len(lines))
        lines[line] = json.dumps(mutate_json(json.loads(lines[line]), draw)).encode()
        return files | {name: b"\n".join(lines)}
    return files | {name: mutate(files[name], draw)}


def _damage_members(files: Files, draw: random.Random) -> Files:
    """Damages a member of a zip, so that the zip itself stays valid."""
    ((name, content),) = files.items()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    members = damaged_files(Format(lambda: members, lambda _: None), draw)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in members.items():
            archive.writestr(member, text)
    return {name: packed.getvalue()}


def _damage_parquet(files: Files, draw: random.Random) -> Files:
    """Damages entries and the types of columns of a Parquet table."""
    import pyarrow
    from pyarrow import parquet

    ((name, content),) = files.items()
    rows = mutate_json(parquet.read_table(io.BytesIO(content)).to_pydict(), draw)
    columns = {str(key): value for key, value in rows.items() if isinstance(value, list)} if rows else {}
    arrays = {}
    for key, values in columns.items():
        try:
            arrays[key.encode("utf-8", "replace").decode()] = pyarrow.array(values)
        except (pyarrow.ArrowException, UnicodeError, OverflowError):
            arrays[key] = pyarrow.array([repr(value)[:200] for value in values])
    length = min((len(array) for array in arrays.values()), default=0)
    packed = io.BytesIO()
    parquet.write_table(pyarrow.table({key: array[:length] for key, array in arrays.items()}), packed)
    return {name: packed.getvalue()}


def _reseal(files: Files, draw: random.Random) -> Files:
    """Damages the JSON header or the tensors of a checked safetensors file and gives it a valid checksum."""
    ((name, content),) = files.items()
    kind = json.loads(
        json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]["graphcaps"]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        read = read_checked(path, kind["format"], kind["version"])
    header = {key: value for key, value in read.content.items() if key not in ("format", "version", "sha256")}
    tensors = dict(read.tensors)
    if draw.random() < 0.7:
        header = mutate_json(header, draw)
    else:
        tensors = _damage_tensors(tensors, draw)
    try:
        return {name: encode_checked(kind["format"], kind["version"], header, tensors)}
    except (ValueError, TypeError):  # JSON of graphcaps has no NaN
        header = json.loads(json.dumps(header), parse_constant=lambda _: 1e308)
        return {name: encode_checked(kind["format"], kind["version"], header, tensors)}


def _damage_tensors(tensors: dict[str, torch.Tensor], draw: random.Random) -> dict[str, torch.Tensor]:
    name = draw.choice(sorted(tensors))
    value = tensors.pop(name)
    action = draw.randrange(6)
    if action == 0:
        tensors[draw.choice(("", "x", f"{name}.x", "x" * 5000))] = value
    elif action == 1:
        tensors[name] = value.to(draw.choice((torch.float16, torch.int64, torch.bool, torch.float64)))
    elif action == 2:
        tensors[name] = value[..., :0] if value.ndim else value[None]
    elif action == 3:
        tensors[name] = torch.stack([value, value])
    elif action == 4:
        number = draw.choice((float("nan"), float("inf"), 1e30, -(2.0**62)))
        tensors[name] = (
            torch.full_like(value, number) if value.is_floating_point() else torch.full_like(value, -1)
        )
    return tensors


def _text(**files: str) -> Callable[[], Files]:
    return lambda: {name.replace("__", "."): content.encode() for name, content in files.items()}


@functools.cache
def _written(write: Callable[[Path], None]) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


@functools.cache
def _few_graphs() -> GraphStore:
    return replace(labelled()[[0, 1, 2, 15, 16]], name="X")


def _tu_folder(folder: Path) -> None:
    write_tu(_few_graphs(), folder / "X")
    for path in (folder / "X").iterdir():
        path.rename(folder / path.name)
    (folder / "X").rmdir()


def _tu_zip(folder: Path) -> None:
    write_tu(_few_graphs(), folder / "X.zip")


def _parquet(folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = {
        "smiles": ["CCO", "c1ccccc1", "CC(=O)O", "N"],
        "label": ["a", "b", "a", "b"],
        "weight": [1.0, 2.5, 3.0, 0.5],
    }
    parquet.write_table(pyarrow.table(rows), folder / "m.parquet")


def _model(folder: Path) -> None:
    """With everything that a file can hold: calibration, profile, hashes of the graphs, entry of the classifier."""
    store = labelled()
    y = [store.class_names[int(label)] for label in store.y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = HGCNClassifier(
            epochs=2, capsule_dim=4, num_capsules=(3,), num_factors=2, validation=0.3, random_state=0
        ).fit(store, y)
    for row in classifier.history_:
        row["seconds"] = 0.5  # the same bytes in every run
    classifier.model_ = replace(classifier.model_, training=classifier.model_.training | {"seconds": 0.5})
    classifier.save(folder / "m.safetensors")


_FINGERPRINT = {"model": "hgcn", "seeds": [0], "epochs": 3}


def _checkpoint(folder: Path) -> None:
    names = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_accuracy")
    metrics = {name: [0.5] for name in names}
    history = tuple(EpochEnd(epoch, 3, 0.1, **metrics, loss_terms={"margin": [0.5]}) for epoch in (1, 2))
    state = {"epoch": torch.tensor(2), "model.weight": torch.ones(1, 3, 2)}
    write_checkpoint(
        folder / "run.checkpoint", Checkpoint(state, history, {"best": torch.ones(1)}), _FINGERPRINT
    )


def _record(folder: Path) -> None:
    (folder / "x.record.json").write_text(measured_record().to_json())


def _archive(folder: Path) -> None:
    write_archive(
        folder / "records.zip",
        [record(0), record(1), replace(measured_record(2), key=RecordKey("PTC", "hgcn", "held-out", 2))],
    )


def _ledger(folder: Path) -> None:
    (folder / "ledger.json").write_text(Ledger((record(0), record(1))).to_json())


def _read_model(folder: Path) -> object:
    fitted = load(folder / "m.safetensors")
    store = _few_graphs()
    return fitted.info(), fitted.predict(store), fitted.out_of_distribution(store), fitted.used_in(store)


def _read_results(folder: Path) -> object:
    results = ResultsStore(folder)
    return results.records(), [ledger.summary() for ledger in results.ledgers()]


def _read_ledger(folder: Path) -> object:
    return Ledger.from_json((folder / "ledger.json").read_bytes()).summary()


def _read_checkpoint(folder: Path) -> object:
    return load_checkpoint(folder / "run.checkpoint", _FINGERPRINT).epoch


def _open(name: str, **options: Any) -> Callable[[Path], object]:
    return lambda folder: open_dataset(folder / name, cache=False, download=False, **options)


_NODE_LINK = {
    "directed": False,
    "graph": {"y": "yes", "set": "train"},
    "nodes": [
        {"id": "a", "label": "red", "age": 3.5},
        {"id": "b", "label": "blue", "age": 4},
        {"id": 2, "label": "red"},
    ],
    "links": [
        {"source": "a", "target": "b", "weight": 2.0, "label": "x"},
        {"source": "b", "target": 2, "weight": 1},
    ],
}
_GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="label" attr.type="string"/>
<key id="d1" for="edge" attr.name="weight" attr.type="double"><default>1.0</default></key>
<key id="d2" for="graph" attr.name="y" attr.type="int"/>
<graph id="g" edgedefault="undirected"><data key="d2">1</data>
<node id="a"><data key="d0">red</data></node>
<node id="b"><data key="d0">blue</data></node>
<edge source="a" target="b"><data key="d1">2.5</data></edge>
</graph>
<graph id="h" edgedefault="directed"><data key="d2">0</data>
<node id="a"/><node id="c"/><edge source="a" target="c"/></graph>
</graphml>
"""
_GEXF = """<?xml version="1.0" encoding="UTF-8"?>
<gexf xmlns="http://gexf.net/1.3" version="1.3">
<graph defaultedgetype="undirected" mode="static">
<attributes class="node" mode="static">
<attribute id="0" title="age" type="double"><default>1</default></attribute></attributes>
<nodes><node id="a" label="red"><attvalues><attvalue for="0" value="3.5"/></attvalues></node>
<node id="b" label="blue"/><node id="c" label="red"/></nodes>
<edges><edge id="0" source="a" target="b" weight="2.0"/><edge id="1" source="b" target="c"/></edges>
</graph>
</gexf>
"""
_EDGES = "graph,source,target,weight,label,length\n" + "".join(
    f"{graph},{a},{a + 1},{a}.5,{'xy'[a % 2]},{a}\n" for graph in ("g1", "g2", "g3") for a in range(3)
)
_NODES = "graph,node,label,age\n" + "".join(
    f"{graph},{a},{'xy'[a % 2]},{a}.25\n" for graph in ("g1", "g2", "g3") for a in range(4)
)
_PRESET = """dataset = "MUTAG"
by_data = ["batch_size"]

[model]
name = "hgcn"
num_capsules = [8, 4]
capsule_dim = 16

[features]
degree_onehot = 10
propagation = 2

[training]
epochs = 20
learning_rate = 0.001
"""
_SMILES = """id,smiles,label,set
1,CCO,yes,train
2,c1ccccc1,no,train
3,CC(=O)[O-].[Na+],yes,test
4,N#N,no,validation
"""

_FORM_TYPE = "multipart/form-data; boundary=x"
_FORM = (
    '--x\r\nContent-Disposition: form-data; name="file"; filename="m.csv"\r\n\r\n'
    f"{_SMILES}\r\n--x\r\n"
    'Content-Disposition: form-data; name="file"; filename="n.json"\r\nContent-Type: application/json\r\n\r\n'
    f"{json.dumps(_NODE_LINK)}\r\n--x--\r\n"
)


def _request(content_type: str, model: Callable[[], FittedModel] = molecule_model) -> Callable[[Path], None]:
    """Answers a request whose body is the file, as a worker does. A response without a class is a refusal."""

    def read(folder: Path) -> None:
        (path,) = folder.iterdir()
        request = WorkerRequest("predict", content_type, {}, path.read_bytes())
        response, same = handle_batch(model(), Limits(), [request, request])
        content = json.loads(response.content)
        assert (same.status, list(json.loads(same.content))) == (response.status, list(content))
        if response.status != 200:
            assert response.status in (413, 415, 422), content
            assert list(content) == ["error"]
            raise UsageError(content["error"])

    return read


FORMATS: dict[str, Format] = {
    "TU folder": Format(lambda: _written(_tu_folder), lambda folder: read_tu(folder)),
    "TU zip": Format(lambda: _written(_tu_zip), lambda folder: read_tu(folder / "X.zip"), _damage_members),
    "SMILES, CSV": Format(_text(m__csv=_SMILES), _open("m.csv", label="label", split="set", id="id")),
    "SMILES, TSV": Format(
        _text(m__tsv=_SMILES.replace(",", "\t")),
        _open("m.tsv", label="label", bad="skip", duplicates="first"),
    ),
    "SMILES, Parquet": Format(lambda: _written(_parquet), _open("m.parquet", label="label"), _damage_parquet),
    "node-link JSON": Format(_text(n__json=json.dumps(_NODE_LINK)), _open("n.json")),
    "list of JSON graphs": Format(
        _text(n__json=json.dumps({"graphs": [_NODE_LINK] * 2})), _open("n.json", split="set")
    ),
    "GraphML": Format(_text(n__graphml=_GRAPHML), _open("n.graphml")),
    "GEXF": Format(_text(n__gexf=_GEXF), _open("n.gexf", node_label="name")),
    "edge list": Format(_text(edges__csv=_EDGES), _open("edges.csv")),
    "edge list, folder": Format(
        _text(edges__csv=_EDGES, nodes__csv=_NODES, graphs__csv="graph,label\ng1,1\ng2,0\ng3,1\n"), _open("")
    ),
    "folder of networks": Format(
        _text(
            a__json=json.dumps(_NODE_LINK),
            b__graphml=_GRAPHML.split('<graph id="h"')[0] + "</graphml>",
            labels__csv="file,label\na.json,1\nb.graphml,0\n",
        ),
        _open(""),
    ),
    "preset": Format(_text(p__toml=_PRESET), lambda folder: load_preset(folder / "p.toml")),
    "model file": Format(lambda: _written(_model), _read_model, _reseal),
    "classifier file": Format(
        lambda: _written(_model), lambda folder: HGCNClassifier.load(folder / "m.safetensors"), _reseal
    ),
    "results record": Format(lambda: _written(_record), _read_results),
    "results archive": Format(lambda: _written(_archive), _read_results, _damage_members),
    "ledger": Format(lambda: _written(_ledger), _read_ledger),
    "checkpoint": Format(lambda: _written(_checkpoint), _read_checkpoint, _reseal),
    "request, JSON": Format(
        _text(b__json=json.dumps({"smiles": ["CCO", "c1ccccc1", "N#N"]})), _request("application/json")
    ),
    "request, graphs": Format(
        lambda: {"b.json": json.dumps({"graphs": [node_link(planted(), 0)] * 2}).encode()},
        _request("application/json", small_model),
    ),
    "request, table": Format(_text(b__csv=_SMILES), _request("text/csv")),
    "request, form": Format(_text(b__form=_FORM), _request(_FORM_TYPE)),
    "groups": Format(
        _text(g__csv="graph,id,group\n1,a,0\n2,b,0\n3,c,1\n4,d,2\n"),
        lambda folder: read_groups(folder / "g.csv", 4),
    ),
    "split": Format(
        _text(s__csv="graph,split\n1,train\n2,train\n3,validation\n4,test\n"),
        lambda folder: split_from_names(read_split_names(folder / "s.csv", 4)),
    ),
}
"""Every format that graphcaps reads, by its name in the table of outcomes."""


# ---------------------------------------------------------------------- outcomes
class Hang(BaseException):
    """A reader took more than ``MAX_SECONDS``. Not an ``Exception``, so that no reader can catch it."""


@dataclass(frozen=True)
class Outcome:
    """What came of one input: ``kind`` is "read", "refused" or "failed"; ``problem`` describes a failure."""

    number: int
    format: str
    kind: str
    problem: str = ""


def run_input(number: int, seed: int, folder: Path) -> Outcome:
    """Writes input ``number`` of a seed into an empty folder and reads it."""
    draw = random.Random(f"{seed}/{number}")
    name = list(FORMATS)[number % len(FORMATS)]
    format = FORMATS[name]
    for file, content in damaged_files(format, draw).items():
        (folder / file).write_bytes(content)
    kind, problem = "read", ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with _time_limit():
                format.read(folder)
        except GraphcapsError as error:
            kind, problem = "refused", _message_problem(str(error), folder)
        except Hang:
            problem = f"took more than {MAX_SECONDS:g} s of CPU time"
        except Exception:
            problem = f"foreign exception: {traceback.format_exc()}"
    if not problem and caught:
        problem = f"warning: {caught[0].filename}: {caught[0].message}"
    return Outcome(number, name, "failed" if problem else kind, problem)


def run_inputs(count: int, seed: int) -> list[Outcome]:
    """Runs the first ``count`` inputs of a seed."""
    return [run_one(number, seed) for number in range(count)]


def run_one(number: int, seed: int) -> Outcome:
    """Runs one input in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz"))
    try:
        return run_input(number, seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _message_problem(message: str, folder: Path) -> str:
    short = message.replace(f"{folder}/", "").replace(str(folder), "")
    if len(short) > MAX_MESSAGE:
        return f"message of {len(short)} characters: {short[:200]!r} … {short[-100:]!r}"
    return f"message of several lines: {short!r}" if len(short.splitlines()) != 1 else ""


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcome_table(outcomes: list[Outcome]) -> str:
    """Outcomes by format, as a Markdown table."""
    counts = Counter((outcome.format, outcome.kind) for outcome in outcomes)
    kinds = ("read", "refused", "failed")
    rows = [(name, *(counts[name, kind] for kind in kinds)) for name in FORMATS]
    rows.append(("all", *(sum(row[column] for row in rows) for column in (1, 2, 3))))
    lines = ["| format | read | refused | failed |", "|---|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def _main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Reads seeded damaged files with every reader.")
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="number of the one input to run")
    options = parser.parse_args(arguments)
    if options.only is not None:
        outcomes = [run_one(options.only, options.seed)]
    else:
        outcomes = run_inputs(options.inputs, options.seed)
    failed = [outcome for outcome in outcomes if outcome.kind == "failed"]
    for outcome in failed:
        sys.stdout.write(f"input {outcome.number}, {outcome.format}: {outcome.problem}\n")
    sys.stdout.write(f"{outcome_table(outcomes)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
