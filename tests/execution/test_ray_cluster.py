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
from graphcaps.evaluation.cross_validation import JointProgress, train_together
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


def end_node(cluster: Any) -> None:
    """Ends a node with all its processes at once, as a power failure does."""
    node = sorted(cluster.worker_nodes, key=id)[0]
    raylet = Path(f"/proc/{node.all_processes['raylet'][0].process.pid}")
    workers = [
        int(pid) for task in (raylet / "task").iterdir() for pid in (task / "children").read_text().split()
    ]
    cluster.remove_node(node, allow_graceful=False)
    for pid in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_node_ends_and_one_comes_while_cells_run(
    cluster: Any, inputs: Path, expected: tuple[SeedRecord, ...], tmp_path: Path
) -> None:
    store = graphcaps.load_dataset("OWN", root=inputs)
    notes: list[str] = []

    def disturb(progress: JointProgress) -> None:
        if len(cluster.worker_nodes) == 2 and progress.cluster.finished == 1:
            end_node(cluster)
        elif len(cluster.worker_nodes) == 1 and progress.cluster.finished == 3:
            cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)

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
        train_together([validation], executor, on_progress=disturb)
        assert {node.id for node in executor.cluster.nodes()} - before, "no node came"
    assert any(note.endswith("it is run again.") for note in notes), notes
    check(tmp_path / "out", expected)


def test_a_killed_driver_is_resumed_and_ctrl_c_cancels(
    cluster: Any, inputs: Path, expected: tuple[SeedRecord, ...], tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def start() -> subprocess.Popen[str]:
        command = arguments(inputs, out, "--checkpoint-every", 1, "--resume", "--ray", cluster.address)
        # Another working directory than that of the workers, and a relative folder of results.
        command[command.index(str(out))] = "out"
        return subprocess.Popen(
            [sys.executable, "-m", "graphcaps", *command],
            cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def wait_for(pattern: str, process: subprocess.Popen[str]) -> None:
        end, before = time.monotonic() + 300, times(pattern)
        while times(pattern).items() <= before.items():
            assert process.poll() is None, process.communicate()[1]
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
    killed.communicate()
    before = {path: path.read_bytes() for path in out.glob("*.record.json")}
    assert 0 < len(before) < 3
    interrupted = start()
    wait_for("unfinished/*.checkpoint", interrupted)
    interrupted.send_signal(signal.SIGINT)
    errors = interrupted.communicate()[1]
    assert interrupted.returncode == 130, errors
    assert "Stopped. Continue with the same command and --resume." in errors
    last = start()
    errors = last.communicate()[1]
    assert last.returncode == 0, errors
    assert f"Ray cluster at {cluster.address}: 3 nodes, 2 cores." in errors
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
