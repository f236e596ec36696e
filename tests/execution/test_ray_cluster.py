"""A real cluster of three nodes on this machine: nodes that end and come, a killed driver, Ctrl-C, other versions."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import graphcaps
from graphcaps.errors import UsageError
from graphcaps.evaluation import CrossValidation, ResultsStore, SeedRecord
from graphcaps.evaluation.joint_training import JointProgress, train_together
from graphcaps.execution import RayExecutor
from tests.cli.test_evaluate import PRESET, write_tu
from tests.cli.training import invoke

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux"),
    pytest.mark.filterwarnings("ignore"),  # of Ray
]
ROOT = Path(__file__).resolve().parents[2]
STORE_BYTES = 80 * 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, and two nodes with one core each."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'graphcaps[cluster]'")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("PYTHONPATH", str(Path(graphcaps.__file__).parents[1]))
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a TU data set and a preset."""
    root = tmp_path_factory.mktemp("inputs")
    write_tu(root, "OWN", [1, 2] * 20)
    (root / "small.toml").write_text(PRESET)
    return root


def arguments(inputs: Path, out: Path, *more: object) -> list[str]:
    listed = [
        *("evaluate", "OWN", "--root", inputs, "--preset", inputs / "small.toml", "--folds", 4, "--seeds", 3),
        *("--epochs", 80, "--group", 2, "--device", "cpu", "--no-baseline", "--out", out, *more),
    ]
    return [str(each) for each in listed]


@pytest.fixture(scope="module")
def expected(inputs: Path) -> tuple[SeedRecord, ...]:
    """The records of the same cells in this process."""
    result = invoke(*arguments(inputs, inputs / "local"))
    assert result.exit_code == 0, result.output
    return ResultsStore(inputs / "local").records()


def check(out: Path, expected: tuple[SeedRecord, ...]) -> None:
    """All records are there once, with the same bits, and nothing else is left in the folder."""
    records = ResultsStore(out).records()
    assert [record.key for record in records] == [record.key for record in expected]
    for one, other in zip(records, expected, strict=True):
        assert one.curves == other.curves, one.key
        assert one.metrics == other.metrics, one.key
        assert one.settings == other.settings
    names = {path.name for path in out.iterdir() if not path.name.endswith(".summary.json")}
    assert names == {ResultsStore(out).path(record.key).name for record in records}


def worker_processes(node: Any) -> list[int]:
    """Process ids of a node's workers, without those of its other services."""
    raylet = Path(f"/proc/{node.all_processes['raylet'][0].process.pid}")
    found = []
    for task in (raylet / "task").iterdir():
        for pid in (task / "children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                    found.append(int(pid))
    return found


def send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Disturbance:
    """Ends a node with all its processes while it holds a cell, as a power failure does, and adds another one.

    The workers of the node are stopped first, and the node ends when the other one has finished one more cell: by then
    Ray has given the stopped workers a cell, which they cannot finish, however fast or slow the machine is.
    """

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._node = sorted(cluster.worker_nodes, key=id)[0]
        self._stopped: list[int] = []
        self._next_step, self._finished = self._stop_workers, 1

    def __call__(self, progress: JointProgress) -> None:
        if progress.cluster.finished >= self._finished:
            self._next_step()

    def _stop_workers(self) -> None:
        self._stopped = worker_processes(self._node)
        if self._stopped:
            send(signal.SIGSTOP, self._stopped)
            self._next_step, self._finished = self._end_node, 2

    def _end_node(self) -> None:
        self._cluster.remove_node(self._node, allow_graceful=False)
        send(signal.SIGKILL, self._stopped)
        self._next_step, self._finished = self._add_node, 3

    def _add_node(self) -> None:
        self._cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        self._finished = sys.maxsize


def test_a_node_ends_and_one_comes_while_cells_run(
    cluster: Any, inputs: Path, expected: tuple[SeedRecord, ...], tmp_path: Path
) -> None:
    store = graphcaps.load_dataset("OWN", root=inputs)
    notes: list[str] = []
    config = expected[0].config
    with RayExecutor(cluster.address, notes.append) as executor:
        before = {node.id for node in executor.cluster.nodes()}
        assert len(before) == 3
        validation = CrossValidation(
            store,
            config,
            folds=4,
            seeds=3,
            group=2,
            results=ResultsStore(tmp_path / "out"),
            executor=executor,
        )
        train_together([validation], executor, on_progress=Disturbance(cluster))
        assert {node.id for node in executor.cluster.nodes()} - before, "no node came"
    assert any(note.endswith("it is run again.") for note in notes), notes
    check(tmp_path / "out", expected)


def test_a_killed_driver_is_resumed_and_ctrl_c_cancels(
    cluster: Any, inputs: Path, expected: tuple[SeedRecord, ...], tmp_path: Path
) -> None:
    out, messages = tmp_path / "out", tmp_path / "messages"
    greeting = f"Ray cluster at {cluster.address}: 3 nodes, 2 cores."

    def start() -> subprocess.Popen[bytes]:
        command = arguments(inputs, out, "--checkpoint-every", 1, "--resume", "--ray", cluster.address)
        # Another working directory than that of the workers, and a relative folder of results.
        command[command.index(str(out))] = "out"
        with messages.open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "graphcaps", *command],
                cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip

    def wait_for(pattern: str, process: subprocess.Popen[bytes]) -> None:
        """Waits until the process has reached the cluster and then a file was written."""
        end, before = time.monotonic() + 300, None
        while before is None or times(pattern).items() <= before.items():
            if before is None and greeting in messages.read_text():
                before = times(pattern)
            assert process.poll() is None, messages.read_text()
            assert time.monotonic() < end, f"no {pattern} within five minutes"
            time.sleep(0.02)

    def times(pattern: str) -> dict[Path, int]:
        found = {}
        for path in out.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                found[path] = path.stat().st_mtime_ns
        return found

    killed = start()
    wait_for("*.record.json", killed)
    killed.kill()
    killed.wait()
    before = {path: path.read_bytes() for path in out.glob("*.record.json")}
    assert 0 < len(before) < 3
    interrupted = start()
    wait_for("unfinished/*.checkpoint", interrupted)
    interrupted.send_signal(signal.SIGINT)
    assert interrupted.wait() == 130, messages.read_text()
    assert "Stopped. Continue with the same command and --resume." in messages.read_text()
    assert start().wait() == 0, messages.read_text()
    assert greeting in messages.read_text()
    assert {path: path.read_bytes() for path in before} == before
    check(out, expected)


def test_a_node_with_another_graphcaps_is_named(cluster: Any, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "graphcaps").mkdir()
    (tmp_path / "graphcaps" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(
        UsageError, match=r"^The node .+ has graphcaps 0\.0\.1 \(here .+\); results would depend"
    ):
        RayExecutor(cluster.address)
    import ray

    assert not ray.is_initialized()
