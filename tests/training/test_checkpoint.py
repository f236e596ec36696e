"""Checkpoints: an exact round trip, refusal of damaged files and of other runs' checkpoints."""

import json
import math
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps._io.provenance import library_versions
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.errors import DataError
from graphcaps.nn import HGCN
from graphcaps.training.checkpoint import FORMAT, Checkpoint, load_checkpoint, write_checkpoint
from graphcaps.training.fingerprint import data_digest, describe_differences, run_fingerprint
from graphcaps.training.loop import TrainingLoop
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica, stack_replicas
from graphcaps.training.trainer import Trainer
from tests.graphs import Graphs, random_graphs

CONFIG = RunConfig(training=TrainConfig(epochs=5, batch_size=4, halve_every=2))
INDICES = torch.arange(12)
REPLICAS = [
    Replica(INDICES[:8], INDICES[8:10], INDICES[10:]),
    Replica(INDICES[3:], INDICES[:2], INDICES[2:3], fold=1),
]


def graphs() -> Graphs:
    return random_graphs([5, 9, 4, 3, 8, 2, 6, 7, 5, 4, 3, 6])


def trainer() -> Trainer:
    """Two replicas with dropout, float32."""

    def make(lead: tuple[int, ...]) -> HGCN:
        return HGCN(5, 2, capsule_dim=8, num_capsules=(3,), num_factors=2, dropout=0.3, lead=lead)

    data = graphs()
    return Trainer(stack_replicas(make, REPLICAS), data.as_store(), data.x.float(), REPLICAS, CONFIG.training)


def fingerprint(**changes: object) -> dict[str, object]:
    return run_fingerprint(CONFIG, data_digest(graphs().as_store()), REPLICAS) | changes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint after three epochs."""
    loop = TrainingLoop(trainer())
    for _ in range(3):
        next(loop.run())
    write_checkpoint(tmp_path / "run.checkpoint", loop.checkpoint(), fingerprint())
    return tmp_path / "run.checkpoint"


def refusal(path: Path, expected: dict[str, object] | None = None) -> str:
    with pytest.raises(DataError) as caught:
        load_checkpoint(path, fingerprint() if expected is None else expected)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_resumed_training_of_two_replicas_equals_an_uninterrupted_one(path: Path) -> None:
    uninterrupted, resumed = trainer(), trainer()
    events = [*uninterrupted.run()]
    checkpoint = load_checkpoint(path, fingerprint())
    resumed.load_state(checkpoint.state)
    later = [*checkpoint.history, *resumed.run()]
    for name, value in uninterrupted.state().items():
        assert torch.equal(resumed.state()[name], value), name
    for one, two in zip(events, later, strict=True):
        assert {**one.__dict__, "seconds": 0} == {**two.__dict__, "seconds": 0}


def test_history_and_extra_tensors_are_restored_exactly(tmp_path: Path) -> None:
    losses = [0.1 + 0.2, math.nan]
    history = (EpochEnd(1, 5, 1 / 3, losses, [1.0, 0.5], [], [], [0.25, 0.75]),)
    extra = {"best": torch.arange(4, dtype=torch.int64), "half": torch.rand(2, 3)[:, ::2]}
    state = trainer().state() | {"epoch": torch.tensor(1)}
    write_checkpoint(tmp_path / "c", Checkpoint(state, history, extra), fingerprint())
    checkpoint = load_checkpoint(tmp_path / "c", fingerprint())
    event = checkpoint.history[0]
    assert (event.epoch, event.epochs, event.seconds) == (1, 5, 1 / 3)
    assert event.train_loss[0] == losses[0]
    assert math.isnan(event.train_loss[1])
    assert (event.validation_loss, event.test_accuracy) == ([], [0.25, 0.75])
    assert all(torch.equal(checkpoint.extra[name], value) for name, value in extra.items())
    assert (checkpoint.epoch, checkpoint.notes) == (1, ())


def test_a_training_can_be_saved_before_its_first_epoch(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c", TrainingLoop(trainer()).checkpoint(), fingerprint())
    assert load_checkpoint(tmp_path / "c", fingerprint()).history == ()


def test_a_taken_checkpoint_does_not_change_with_later_epochs(tmp_path: Path) -> None:
    loop = TrainingLoop(trainer())
    next(loop.run())
    loop.trainer.keep([0, 1])
    taken = loop.checkpoint()
    before = {name: value.clone() for name, value in loop.trainer.state().items()}
    assert any(name.startswith("kept.") for name in before)
    next(loop.run())
    loop.trainer.keep([1])
    write_checkpoint(tmp_path / "c", taken, fingerprint())
    checkpoint = load_checkpoint(tmp_path / "c", fingerprint())
    assert (checkpoint.epoch, len(checkpoint.history)) == (1, 1)
    assert all(torch.equal(checkpoint.state[name], value) for name, value in before.items())


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none").startswith("file not found.")


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.05, 0.5, 0.999])
def test_a_truncated_file_is_refused(path: Path, fraction: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * fraction)])
    assert refusal(path).endswith(". Start again without resuming.")


def test_a_single_changed_bit_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for offset in range(8, len(data), len(data) // 97):
        changed = bytearray(data)
        changed[offset] ^= 4
        path.write_bytes(changed)
        assert refusal(path).endswith(". Start again without resuming.")


def test_other_files_are_refused_and_execute_no_code(path: Path) -> None:
    marker = path.with_name("ran")
    call = f"__import__('pathlib').Path({str(marker)!r}).touch()"

    class Bomb:
        def __reduce__(self) -> tuple:
            return eval, (call,)

    for content in (
        pickle.dumps(Bomb()),
        encode_checked("graphcaps model", 1, {}, {"w": torch.zeros(2)}),
        save({"w": torch.zeros(2)}),
        b"PK\x03\x04 a zip",
        b"\x02\x00\x00\x00\x00\x00\x00\x00[]",
        b"\xff" * 64,
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
    ):
        path.write_bytes(content)
        assert refusal(path).startswith("expected a file ")
    assert not marker.exists()


def test_a_newer_format_is_refused(path: Path) -> None:
    path.write_bytes(encode_checked("graphcaps checkpoint", 9, {}, {"w": torch.zeros(2)}))
    assert "found the newer format 9" in refusal(path)


def test_a_checked_file_without_a_run_is_refused(path: Path) -> None:
    path.write_bytes(encode_checked("graphcaps checkpoint", FORMAT, {}, {"w": torch.zeros(2)}))
    assert (
        refusal(path) == "expected an object under 'fingerprint', found None. Start again without resuming."
    )


@pytest.mark.parametrize(
    ("changes", "tensors", "expected"),
    [
        ({"epochs": ...}, {}, "a number under 'epochs', found None"),
        ({"epochs": -1}, {}, "a number under 'epochs', found -1"),
        ({"fingerprint": "x"}, {}, "an object under 'fingerprint', found 'x'"),
        ({"versions": "x"}, {}, "an object under 'versions', found 'x'"),
        ({}, {"x.seconds": torch.zeros(3)}, "begin with state, extra, history, found 'x.seconds'"),
        ({}, {"state.epoch": ...}, "the number of completed epochs under 'state.epoch', found none"),
        (
            {},
            {"state.epoch": torch.zeros(2)},
            "the number of completed epochs under 'state.epoch', found none",
        ),
        ({}, {"history.seconds": ...}, "one number per epoch under 'history.seconds', found none"),
        (
            {},
            {"history.seconds": torch.tensor(1.0)},
            "one number per epoch under 'history.seconds', found none",
        ),
        ({}, {"history.train_loss": ...}, "3 rows under 'history.train_loss', found none"),
        ({}, {"history.train_loss": torch.zeros(2, 2)}, "'history.train_loss', found the shape [2, 2]"),
        ({}, {"history.term.margin": torch.zeros(3)}, "3 rows under 'history.margin', found the shape [3]"),
    ],
)
def test_resealed_checkpoints_are_refused(path: Path, changes, tensors, expected: str) -> None:
    read = read_checked(path, "graphcaps checkpoint", FORMAT)
    head = {
        name: value for name, value in read.content.items() if name not in ("format", "version", "sha256")
    }
    head = {name: value for name, value in (head | changes).items() if value is not ...}
    kept = {name: value for name, value in (read.tensors | tensors).items() if value is not ...}
    path.write_bytes(encode_checked("graphcaps checkpoint", FORMAT, head, kept))
    assert expected in refusal(path)


def test_a_checkpoint_of_another_run_is_refused_with_the_differences(path: Path) -> None:
    other = fingerprint(seed=[7], **{"training.batch_size": 32})
    assert refusal(path, other) == (
        "expected a checkpoint of this run, found one of another run: training.batch_size 4 (here 32), "
        "seed 0 (here 7). Use the values of that run, or start again without resuming."
    )
    assert "another run: other graphs. " in refusal(path, fingerprint(data="0"))
    assert "training.new none (here 3)" in refusal(path, fingerprint(**{"training.new": 3}))


def test_another_device_or_version_gives_a_note(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (note,) = load_checkpoint(path, fingerprint(), "cuda").notes
    assert note.startswith("The checkpoint was written with device cpu, and this is cuda: the last bits")
    older = library_versions() | {"torch": "2.6.0"}
    monkeypatch.setattr("graphcaps.training.checkpoint.library_versions", lambda: older)
    (note,) = load_checkpoint(path, fingerprint()).notes
    assert "and this is 2.6.0: the last bits" in note


def test_the_fingerprint_covers_all_that_determines_the_weights() -> None:
    store = graphs().as_store()
    base = fingerprint()
    longer = CONFIG.with_training(epochs=9)
    assert run_fingerprint(longer, data_digest(store), REPLICAS) == base
    assert json.loads(json.dumps(base)) == base
    moved = [Replica(INDICES[:9], INDICES[9:10], INDICES[10:]), REPLICAS[1]]
    assert describe_differences(base, run_fingerprint(CONFIG, data_digest(store), moved)) == [
        "other training or validation graphs"
    ]
    assert data_digest(store) != data_digest(store[[1, 0, *range(2, 12)]])
    narrow = replace(store, neighbours=store.neighbours.long())
    assert data_digest(narrow) == data_digest(store)
    for name, value in (("y", 1 - store.y), ("class_names", ("0", "b")), ("node_labels", None)):
        changed = replace(store, **{name: torch.zeros(store.num_nodes, 1) if value is None else value})
        assert data_digest(changed) != data_digest(store), name


def test_no_temporary_files_are_left(path: Path) -> None:
    assert os.listdir(path.parent) == ["run.checkpoint"]
