"""A checkpoint is whole, belongs to one run, and gives back exactly what was put in."""

import json
import math
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from graphcaps._io.checked_safetensors import encode_checked
from graphcaps._io.provenance import library_versions
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.errors import DataError
from graphcaps.nn import HGCN
from graphcaps.training.checkpoint import load_checkpoint, save_checkpoint, take_checkpoint, write_checkpoint
from graphcaps.training.fingerprint import data_digest, describe_differences, run_fingerprint
from graphcaps.training.replicas import Replica, stack_replicas
from graphcaps.training.trainer import EpochEnd, Trainer
from tests.graphs import Graphs, random_graphs

CONFIG = RunConfig(training=TrainConfig(epochs=5, batch_size=4, halve_every=2))
EVERY = torch.arange(12)
REPLICAS = [Replica(EVERY[:8], EVERY[8:10], EVERY[10:]), Replica(EVERY[3:], EVERY[:2], EVERY[2:3], fold=1)]


def graphs() -> Graphs:
    return random_graphs([5, 9, 4, 3, 8, 2, 6, 7, 5, 4, 3, 6])


def trainer() -> Trainer:
    """Two replicas with dropout, float32."""

    def make(lead: tuple[int, ...]) -> HGCN:
        return HGCN(5, 2, capsule_dim=8, num_capsules=(3,), num_factors=2, dropout=0.3, lead=lead)

    drawn = graphs()
    return Trainer(
        stack_replicas(make, REPLICAS), drawn.as_store(), drawn.x.float(), REPLICAS, CONFIG.training
    )


def fingerprint(**changes: object) -> dict[str, object]:
    return run_fingerprint(CONFIG, data_digest(graphs().as_store()), REPLICAS) | changes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint after three epochs."""
    running = trainer()
    history = [running.run_epoch() for _ in range(3)]
    save_checkpoint(tmp_path / "run.checkpoint", running, history, fingerprint())
    return tmp_path / "run.checkpoint"


def refusal(path: Path, wanted: dict[str, object] | None = None) -> str:
    with pytest.raises(DataError) as caught:
        load_checkpoint(path, fingerprint() if wanted is None else wanted)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_a_resumed_training_of_two_replicas_is_the_unbroken_one_bit_for_bit(path: Path) -> None:
    unbroken, resumed = trainer(), trainer()
    events = [*unbroken.run()]
    found = load_checkpoint(path, fingerprint())
    resumed.load_state(found.state)
    later = [*found.history, *resumed.run()]
    for name, value in unbroken.state().items():
        assert torch.equal(resumed.state()[name], value), name
    for one, two in zip(events, later, strict=True):
        assert {**one.__dict__, "seconds": 0} == {**two.__dict__, "seconds": 0}


def test_history_and_extra_tensors_come_back_exactly(tmp_path: Path) -> None:
    running = trainer()
    odd = [0.1 + 0.2, math.nan]
    history = [EpochEnd(1, 5, 1 / 3, odd, [1.0, 0.5], [], [], [0.25, 0.75])]
    running.epoch = 1
    extra = {"best": torch.arange(4, dtype=torch.int64), "half": torch.rand(2, 3)[:, ::2]}
    save_checkpoint(tmp_path / "c", running, history, fingerprint(), extra)
    found = load_checkpoint(tmp_path / "c", fingerprint())
    event = found.history[0]
    assert (event.epoch, event.epochs, event.seconds) == (1, 5, 1 / 3)
    assert event.train_loss[0] == odd[0]
    assert math.isnan(event.train_loss[1])
    assert (event.validation_loss, event.test_accuracy) == ([], [0.25, 0.75])
    assert all(torch.equal(found.extra[name], value) for name, value in extra.items())
    assert (found.epoch, found.notes) == (1, ())


def test_a_training_that_has_not_begun_can_be_saved(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", trainer(), [], fingerprint())
    assert load_checkpoint(tmp_path / "c", fingerprint()).history == ()


def test_a_copy_stays_while_the_training_goes_on(tmp_path: Path) -> None:
    running = trainer()
    history = [running.run_epoch()]
    taken = take_checkpoint(running, history)
    before = {name: value.clone() for name, value in running.state().items()}
    history.append(running.run_epoch())
    write_checkpoint(tmp_path / "c", taken, fingerprint())
    found = load_checkpoint(tmp_path / "c", fingerprint())
    assert (found.epoch, len(found.history)) == (1, 1)
    assert all(torch.equal(found.state[name], value) for name, value in before.items())


def test_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none").startswith("file not found.")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.05, 0.5, 0.999])
def test_the_start_of_a_file_is_refused(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert refusal(path).endswith(". Start again without resuming.")


def test_a_single_changed_bit_is_noticed_wherever_it_is(path: Path) -> None:
    data = path.read_bytes()
    for place in range(8, len(data), len(data) // 97):
        changed = bytearray(data)
        changed[place] ^= 4
        path.write_bytes(changed)
        assert refusal(path).endswith(". Start again without resuming.")


def test_foreign_files_are_refused_and_run_no_code(path: Path) -> None:
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


def test_a_newer_format_is_named(path: Path) -> None:
    path.write_bytes(encode_checked("graphcaps checkpoint", 9, {}, {"w": torch.zeros(2)}))
    assert "found the newer format 9" in refusal(path)


def test_a_sealed_file_without_a_run_is_refused(path: Path) -> None:
    path.write_bytes(encode_checked("graphcaps checkpoint", 1, {}, {"w": torch.zeros(2)}))
    assert "one of another run" in refusal(path)


def test_another_run_is_refused_by_what_differs(path: Path) -> None:
    wanted = fingerprint(seed=[7], **{"training.batch_size": 32})
    assert refusal(path, wanted) == (
        "expected a checkpoint of this run, found one of another run: training.batch_size 4 (here 32), "
        "seed 0 (here 7). Use the values of that run, or start again without resuming."
    )
    assert "another run: other graphs. " in refusal(path, fingerprint(data="0"))
    assert "training.new none (here 3)" in refusal(path, fingerprint(**{"training.new": 3}))


def test_another_device_or_version_is_a_note(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (note,) = load_checkpoint(path, fingerprint(), "cuda").notes
    assert note.startswith("The checkpoint was written with device cpu, and this is cuda: the last bits")
    older = library_versions() | {"torch": "2.6.0"}
    monkeypatch.setattr("graphcaps.training.checkpoint.library_versions", lambda: older)
    (note,) = load_checkpoint(path, fingerprint()).notes
    assert "and this is 2.6.0: the last bits" in note


def test_the_fingerprint_sees_what_weights_follow_from() -> None:
    store = graphs().as_store()
    base = fingerprint()
    longer = CONFIG.with_training(epochs=9)
    assert run_fingerprint(longer, data_digest(store), REPLICAS) == base
    assert json.loads(json.dumps(base)) == base
    moved = [Replica(EVERY[:9], EVERY[9:10], EVERY[10:]), REPLICAS[1]]
    assert describe_differences(base, run_fingerprint(CONFIG, data_digest(store), moved)) == [
        "other training or validation graphs"
    ]
    assert data_digest(store) != data_digest(store[[1, 0, *range(2, 12)]])
    narrow = replace(store, neighbours=store.neighbours.long())
    assert data_digest(narrow) == data_digest(store)
    for name, value in (("y", 1 - store.y), ("class_names", ("0", "b")), ("node_labels", None)):
        changed = replace(store, **{name: torch.zeros(store.num_nodes, 1) if value is None else value})
        assert data_digest(changed) != data_digest(store), name


def test_nothing_else_is_left_in_the_folder(path: Path) -> None:
    assert os.listdir(path.parent) == ["run.checkpoint"]
