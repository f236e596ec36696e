"""A real cluster of one node on this machine whose memory is always full, and one that reproduces a table.

Ray's memory monitor ends a task as soon as the machine uses more than a share of its memory. Here the share is so small
that every task is ended. What else a real cluster does was checked by hand, with Ray 2.60:

- A share 2 GB above the present use, and a cell of four parts that fill 0.6 GB each: the cell was ended, and both
  halves succeeded.
- ``unfinished`` in the folder of results on a file system of 64 kB: ``evaluate --ray --checkpoint-every 1`` gave the
  results, and a note for each cell that its checkpoint could not be written.
- Data of 240 MB, an object store of 80 MB and a full disk (``local_fs_capacity_threshold=0``): the command ended with
  the sentence about the object store.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphcaps
from graphcaps.evaluation import ResultsStore
from graphcaps.execution import RayExecutor
from graphcaps.execution.cell import Cell
from graphcaps.training.memory import OutOfMemoryError
from tests.cli.training import invoke

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux"),
    pytest.mark.filterwarnings("ignore"),  # of Ray
]
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def start_node(**settings: Any) -> Iterator[str]:
    """The address of a cluster of one node with one core."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'graphcaps[cluster]'")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("PYTHONPATH", f"{Path(graphcaps.__file__).parents[1]}:{ROOT}")
        head = {
            "num_cpus": 1,
            "include_dashboard": False,
            "object_store_memory": 80 * 2**20,
            "_system_config": settings,
        }
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            yield str(cluster.address)
        finally:
            cluster.shutdown()


@dataclass(frozen=True, eq=False)
class EndlessCell(Cell[tuple[int, ...]]):
    """A cell that runs until it is ended, of as many parts as it has numbers."""

    numbers: tuple[int, ...]

    def run(self, on_epoch: Callable[..., object]) -> tuple[int, ...]:
        time.sleep(600)
        return self.numbers

    def resumed(self) -> EndlessCell:
        raise AssertionError("a cell out of memory is not run again as it is")

    def halves(self) -> tuple[EndlessCell, ...]:
        parts = [self.numbers[:1], self.numbers[1:]] if len(self.numbers) == 2 else []
        return tuple(replace(self, title=f"{self.title}{part}", numbers=part) for part in parts)


@pytest.mark.exhaustive  # whether Ray reads the use of memory depends on the machine
def test_a_task_that_ray_ends_for_lack_of_memory_is_halved_and_said() -> None:
    notes: list[str] = []
    always = {"memory_usage_threshold": 0.0001, "memory_monitor_refresh_ms": 50}
    with start_node(**always) as address, RayExecutor(address, notes.append) as executor:
        cell = EndlessCell("cell ", None, torch.device("cpu"), 0, (1, 2))
        outcomes = sorted(executor.run([cell]), key=lambda outcome: outcome.cell.title)
    assert notes == [
        "cell : out of memory (Ray ended a process of a node that had little memory left). Its two halves are trained "
        "one by one."
    ]
    assert [outcome.cell.title for outcome in outcomes] == ["cell (1,)", "cell (2,)"]
    for outcome in outcomes:
        assert isinstance(outcome.error, OutOfMemoryError)
        assert str(outcome.error).startswith(f"{outcome.cell.title}: out of memory. Ray ended a process")


def test_reproduce_on_a_cluster_gives_the_records_of_this_process(shared_data: Path, tmp_path: Path) -> None:
    words = [
        *("reproduce", "table1", "--rows", "HGCN", "--datasets", "MUTAG", "--criteria", "C", "--seeds", 1),
        *("--epochs", 2, "--device", "cpu", "--root", shared_data),
    ]
    with start_node() as address:
        result = invoke(*words, "--ray", address, "--results", tmp_path / "ray")
    assert result.exit_code == 0, result.output
    notes = result.stderr.splitlines()
    assert notes[:3] == [
        f"Ray cluster at {address}: 1 node, 1 core.",
        f"1 training is missing; records go to {tmp_path / 'ray'}.",
        "1/1  MUTAG HGCN paper: finished.",
    ]
    assert invoke(*words, "--results", tmp_path / "local").exit_code == 0
    [record], [expected] = (ResultsStore(tmp_path / name).records() for name in ("ray", "local"))
    assert record.key == expected.key
    assert record.settings == expected.settings
    np.testing.assert_allclose(record.curves.train_loss, expected.curves.train_loss, rtol=1e-4)
    assert sorted(path.name for path in (tmp_path / "ray").iterdir()) == [
        ResultsStore(tmp_path / "ray").path(record.key).name
    ]
