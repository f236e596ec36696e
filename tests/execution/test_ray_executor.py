"""The executor of Ray with a Ray of this process: records, failures, resources; no cluster is started."""

from __future__ import annotations

import errno
import itertools
import os
import re
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphcaps.comparison.runner import compare
from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.errors import ArgumentError, DataError, UsageError
from graphcaps.evaluation import Ledger, ResultsStore, cross_validate, replica_groups
from graphcaps.execution import RayExecutor, ray_executor
from graphcaps.execution.node_versions import describe_difference, node_report
from graphcaps.execution.ray_cluster import RayCluster
from graphcaps.execution.ray_executor import Resources, choose_group, state_resources
from graphcaps.execution.tensor_packing import pack, unpack
from graphcaps.training import checkpoint_writer
from graphcaps.training.memory import OutOfMemoryError
from tests.execution.fake_ray import FakeCluster, FakeRay
from tests.graphs import random_graphs

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,), "dropout": 0.2},
    features=FeatureConfig(degree_onehot=4, propagation=1),
    training=TrainConfig(epochs=3, batch_size=8, learning_rate=0.01),
)
STORE = random_graphs([3, 4, 5, 6, 7, 8] * 5, classes=2, seed=3).as_store()
MB = 2**20


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An executor whose Ray is the given one, and the sentences that it says."""

    def connect(ray: FakeRay, **versions: str) -> tuple[RayExecutor, list[str]]:
        monkeypatch.setattr(ray_executor, "RayCluster", lambda address: FakeCluster(ray, **versions))
        notes: list[str] = []
        return RayExecutor("auto", notes.append), notes

    return connect


def _run(executor: RayExecutor | None = None, **options: Any) -> Ledger:
    return cross_validate(
        STORE, CONFIG, **{"folds": 4, "seeds": 2, "group": 2, "executor": executor} | options
    )


def _equal(one: Ledger, other: Ledger) -> bool:
    pairs = zip(one.records, other.records, strict=True)
    return all(a.key == b.key and a.curves == b.curves and a.predictions == b.predictions for a, b in pairs)


@pytest.fixture(scope="module")
def local() -> Ledger:
    return _run(predictions=True)


def test_records_equal_those_of_this_process_whatever_order_they_arrive_in(connect, local: Ledger) -> None:
    ray = FakeRay()
    executor, notes = connect(ray)
    ledger = _run(executor, predictions=True)
    assert _equal(ledger, local)
    assert [each["name"] for each in ray.submitted] == [
        f"test hgcn held-out seed{seed}-folds{folds}" for seed in (0, 1) for folds in ("0to1", "2to3")
    ]
    assert notes == []
    assert ledger.records[0].hardware == local.records[0].hardware


def test_data_are_put_once_for_all_cells_and_shared_tensors_once_for_all_models(connect, monkeypatch) -> None:
    monkeypatch.setattr("graphcaps.execution.tensor_packing.SHARED_BYTES", 64)
    ray = FakeRay()
    executor, _ = connect(ray)
    _run(executor)
    arrays = [value for value in ray.stored if isinstance(value, np.ndarray)]
    assert len([value for value in ray.stored if isinstance(value, bytes)]) == 1
    assert len({array.ctypes.data for array in arrays}) == len(arrays) > 3
    before = len(ray.stored)
    cross_validate(STORE, RunConfig(model="majority"), folds=4, executor=executor)
    again = [value for value in ray.stored[before:] if isinstance(value, np.ndarray)]
    assert not {array.ctypes.data for array in arrays} & {array.ctypes.data for array in again}


@pytest.mark.parametrize("failure", ["WorkerCrashedError", "NodeDiedError"])
def test_a_cell_whose_node_ends_runs_again_from_its_checkpoint(
    connect, local: Ledger, tmp_path: Path, monkeypatch, failure: str
) -> None:
    executor, notes = connect(FakeRay({"seed0-folds0to1": [failure]}))
    resumed = []
    train_group = replica_groups.train_group

    def spy(group: Any, *arguments: Any, **options: Any) -> Any:
        resumed.append((group.name, options["resume"], options["checkpoint"]))
        return train_group(group, *arguments, **options)

    monkeypatch.setattr("graphcaps.evaluation.training_cells.train_group", spy)
    assert _equal(_run(executor, results=tmp_path, predictions=True), local)
    assert notes == [
        f"test hgcn held-out seed0-folds0to1: the node or the process ended ({failure}); it is run again."
    ]
    assert [name for name, resume, _ in resumed if resume] == ["seed0-folds0to1"]
    assert len(resumed) == 4
    assert all(path.is_absolute() and path.parent == tmp_path / "unfinished" for *_, path in resumed)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ResultsStore(tmp_path).path(record.key).name for record in local.records
    )


def test_a_node_that_does_not_share_the_folder_writes_no_checkpoint(
    connect, tmp_path: Path, monkeypatch
) -> None:
    executor, _ = connect(FakeRay())
    written = []
    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", lambda *given: written.append(given))
    _run(executor, results=tmp_path / "shared", checkpoint_every=1)
    assert written
    written.clear()
    monkeypatch.setattr(Path, "is_file", lambda path: path.suffix != ".part" and os.path.isfile(path))
    _run(executor, results=tmp_path / "separate", checkpoint_every=1)
    assert written == []


def test_a_cell_out_of_memory_is_halved_and_the_user_is_told(connect, local: Ledger) -> None:
    ray = FakeRay({"seed0-folds0to1": ["OutOfMemoryError"]})
    executor, notes = connect(ray)
    ledger = _run(executor, predictions=True)
    assert [record.key for record in ledger.records] == [record.key for record in local.records]
    for one, other in zip(ledger.records, local.records, strict=True):
        np.testing.assert_allclose(one.curves.train_loss, other.curves.train_loss, atol=3)
        assert one.predictions is not None
        assert np.array_equal(one.predictions.graph, other.predictions.graph)
    assert notes == [
        "test hgcn held-out seed0-folds0to1: out of memory (Ray ended a process of a node that had little memory "
        "left). Its two halves are trained one by one."
    ]
    halves = {each["name"]: each["memory"] for each in ray.submitted}
    assert halves["test hgcn held-out seed0-fold0"] < halves["test hgcn held-out seed0-folds0to1"]


def test_memory_errors_of_the_training_are_halved_too_and_a_single_fold_is_refused(
    connect, monkeypatch
) -> None:
    executor, notes = connect(FakeRay())

    def fail(group: Any, *arguments: Any, **options: Any) -> Any:
        raise MemoryError(f"{len(group.replicas)}")

    monkeypatch.setattr("graphcaps.evaluation.training_cells.train_group", fail)
    with pytest.raises(OutOfMemoryError, match=r"seed1-fold3: out of memory\. 1"):
        _run(executor)
    assert notes == [
        "test hgcn held-out seed1-folds2to3: out of memory (2). Its two halves are trained one by one."
    ]


def test_a_cell_that_crashes_again_and_again_is_halved_and_then_refused(connect) -> None:
    executor, notes = connect(FakeRay({"fold0": ["WorkerCrashedError"] * 9}))
    with pytest.raises(
        OutOfMemoryError, match=r"fold0: out of memory\. .* ended 3 times \(WorkerCrashedError\)"
    ):
        _run(executor, group=1, seeds=1)
    assert len(notes) == 2


def test_a_full_disk_of_a_worker_is_said(connect, tmp_path: Path, monkeypatch) -> None:
    def fail(path: Path, *arguments: Any) -> None:
        raise DataError(path, f"file cannot be written ({os.strerror(errno.ENOSPC)})")

    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", fail)
    executor, _ = connect(FakeRay())
    (note,) = _run(executor, results=tmp_path, seeds=1).records[0].notes[:1]
    assert re.match(r"Node .+: A checkpoint could not be written: .*No space left on device", note)
    executor, _ = connect(FakeRay({"folds0to1": ["OutOfDiskError"]}))
    with pytest.raises(Exception, match=r"the disk of a node is full\. Free some of it, and use --resume\."):
        _run(executor, seeds=1)


def test_a_node_with_other_versions_ends_the_run_in_one_sentence(connect) -> None:
    executor, _ = connect(FakeRay(), torch="1.0")
    expected = r"^The node .+ has torch .+ \(here 1\.0\); results would depend on the node\. Install the same versions"
    with pytest.raises(UsageError, match=expected):
        _run(executor)
    with pytest.raises(UsageError, match=expected):
        compare(STORE, "majority", folds=4, executor=executor)


def test_other_errors_of_a_cell_reach_the_caller(connect, monkeypatch) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise KeyError("a bug")

    executor, _ = connect(FakeRay())
    monkeypatch.setattr("graphcaps.evaluation.training_cells.fit_group", fail)
    with pytest.raises(RuntimeError, match="KeyError: 'a bug'"):
        cross_validate(STORE, RunConfig(model="wl"), folds=4, executor=executor)
    comparison = compare(STORE, "wl,hgcn", folds=4, epochs=1, executor=executor)
    assert [(cell.model, cell.ledger is None) for cell in comparison.cells.values()] == [
        ("wl", True),
        ("hgcn", False),
    ]


def test_ctrl_c_cancels_what_runs_and_finished_records_stay(connect, tmp_path: Path, monkeypatch) -> None:
    ray = FakeRay()
    executor, _ = connect(ray)
    calls = itertools.count()
    wait = ray.wait

    def interrupt(*arguments: Any, **options: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return wait(*arguments, **options)

    ray.wait = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        _run(executor, results=tmp_path)
    assert ray.cancelled == [f"test hgcn held-out seed0-folds{folds}" for folds in ("0to1", "2to3")]
    assert [record.key.seed for record in ResultsStore(tmp_path).records()] == [1]
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".part"]


def test_callbacks_are_refused(connect) -> None:
    from graphcaps.training import Callback

    executor, _ = connect(FakeRay())
    with pytest.raises(
        ArgumentError, match="'callbacks' must be left out where the trainings run in other proc"
    ):
        _run(executor, callbacks=[Callback()])


def test_a_gpu_is_asked_of_the_cluster(connect) -> None:
    executor, _ = connect(FakeRay())
    with pytest.raises(UsageError, match="No CUDA device is available"):
        _run(executor, device="cuda")


# Resources


@pytest.mark.parametrize(
    ("forecast", "device", "gpu_memory", "expected"),
    [
        (0, "cpu", None, Resources(1, 0.0, 0)),
        (100 * MB, "cpu", None, Resources(1, 0.0, 700 * MB)),
        (9000 * MB, "cpu", None, Resources(1, 0.0, 8000 * MB)),  # more than a node has would wait for ever
        (100 * MB, "cuda", 1000 * MB, Resources(1, 0.25, 600 * MB)),
        (500 * MB, "cuda", 1000 * MB, Resources(1, 0.63, 600 * MB)),  # 500 of the usable 800
        (2000 * MB, "cuda", 1000 * MB, Resources(1, 1.0, 600 * MB)),
        (100 * MB, "cuda", None, Resources(1, 1.0, 600 * MB)),
    ],
)
def test_resources_follow_the_forecast(
    forecast: int, device: str, gpu_memory: int | None, expected: Resources
) -> None:
    assert state_resources(forecast, torch.device(device), gpu_memory, 8000 * MB) == expected


@pytest.mark.parametrize(
    ("folds", "seeds", "workers", "fitting", "expected"),
    [
        (10, 1, 2, 10, 5),  # two cells of five folds, as the processes of a local training
        (10, 1, 4, 10, 3),
        (10, 1, 100, 10, 1),
        (10, 2, 2, 20, 10),
        (10, 4, 2, 40, 20),
        (10, 1, 1, 10, 10),
        (10, 1, 1, 4, 4),  # what fits into the memory
        (10, 3, 2, 30, 5),
    ],
)
def test_cells_are_as_large_as_ends_first(
    folds: int, seeds: int, workers: int, fitting: int, expected: int
) -> None:
    assert choose_group(folds, seeds, workers, fitting) == expected


# Data and versions


def test_large_tensors_are_taken_out_of_the_pickle_once_and_shared() -> None:
    large, small = torch.arange(20_000), torch.arange(3)
    put: list[torch.Tensor] = []
    payload, references = pack({"a": large, "b": [large, small]}, lambda each: put.append(each) or len(put))
    assert references == [1]
    assert put[0] is large
    assert len(payload) < 2000
    array = large.numpy().copy()
    array.flags.writeable = False
    value = unpack(payload, [array])
    assert value["a"] is value["b"][0]
    assert value["a"].data_ptr() == array.ctypes.data
    assert torch.equal(value["a"], large)
    assert torch.equal(value["b"][1], small)


def test_the_sentence_about_versions_names_what_differs() -> None:
    here = node_report()(False)["versions"]
    assert {"python", "torch", "graphcaps", "source"} <= set(here)
    assert describe_difference("n1", here, here) == ""
    assert describe_difference("n1", here | {"source": "0"}, here).startswith(
        f"The node n1 has source code of graphcaps 0 (here {here['source']});"
    )
    missing = describe_difference("n1", here | {"graphcaps": "none", "source": "none"}, here)
    assert missing.startswith(f"The node n1 has graphcaps none (here {here['graphcaps']}); results")


@pytest.mark.parametrize(
    "address", ["", "cluster", "host:port", "host:70000", "ray://host:10001", "http://a:1"]
)
def test_text_that_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ArgumentError, match=r"'--ray' must be auto or HOST:PORT, got"):
        RayCluster(address)


def test_an_address_without_ray_is_refused_at_once() -> None:
    expected = (
        r"^No Ray cluster answers at 127\.0\.0\.1:1 \(.+\)\. Start one with: ray start --head --port=6379$"
    )
    with pytest.raises(UsageError, match=expected):
        RayCluster("127.0.0.1:1")


def test_another_program_at_the_address_is_refused_at_once(monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(100)
            connection.sendall(b"HTTP/1.0 400 Bad request")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(
            UsageError, match=rf"^Another program than Ray answers at {address}\. Start one with"
        ):
            RayCluster("auto")
        thread.join()


def test_without_ray_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(
        ImportError, match=r"--ray needs ray: install it with: pip install 'graphcaps\[cluster\]'"
    ):
        RayCluster("auto")
