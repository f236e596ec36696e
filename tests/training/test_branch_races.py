"""Branches of a captured step race with nothing, and read no memory that is freed: checked without a GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch

from graphcaps.data.features.encoding import feature_table
from graphcaps.nn import HGCN
from graphcaps.ops._triton.branches import Branch, fork, use_side_streams
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import use_precision
from graphcaps.ops.reconstruction.adjacency_bits import pack_adjacency
from graphcaps.training.cuda_graphs import BucketedRunner, StepSize
from graphcaps.training.epoch_metrics import EpochMetrics
from graphcaps.training.optimizer import ReplicaAdam
from graphcaps.training.step import TrainingStep
from graphcaps.types import LossOptions, LossTerms
from tests.graphs import random_graphs, with_weights
from tests.ops.conftest import kernel_device  # noqa: F401
from tests.training.stream_tracker import StreamTracker

GRAPHS = torch.tensor([[0, 3, 1, 5], [2, 2, -1, 4]])


@pytest.fixture(autouse=True)
def _interpreter(kernel_device: str, empty_is_nan: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """New memory is NaN, so that a write shows. Metrics are those of a GPU, added in a launch of every step."""
    from graphcaps.ops.metric_sums.metric_sums_triton import accumulate_metrics_

    if kernel_device != "cpu":
        pytest.skip("a GPU launches kernels itself")

    def add(self: Any, terms: LossTerms, scores: torch.Tensor, y: torch.Tensor) -> None:
        values = terms.values()
        if self.sums is None:
            self.sums = torch.zeros(values.shape, dtype=torch.float64)
            self.finite_steps = torch.zeros_like(self.sums)
        accumulate_metrics_(values, scores, y, self.sums, self.finite_steps, self.correct)

    monkeypatch.setattr(EpochMetrics, "add", torch.no_grad()(add))


def _track(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any] | None = None,
    *,
    side_streams: int = 3,
    weighted: bool = False,
    dense: bool = False,
    tall: bool = False,
    loss: LossOptions | None = None,
    precision: Any = "float32",
    left_out: int | None = None,
) -> tuple[StreamTracker, ReplicaAdam]:
    """A training step with its batch, metrics and update, as it is captured, after one without side streams.

    With ``tall``, the sums over pairs have tiles of as many rows as a hop by dense bits, as those of large graphs, and
    both read one table of tiles. ``left_out`` is the number of a join that is left out.
    """
    if tall:
        from graphcaps.ops.reconstruction import pair_loss_triton

        monkeypatch.setattr(pair_loss_triton, "TALL_FROM", 1)
    graphs = random_graphs([9, 33, 1, 2, 17, 5], channels=6, classes=3, seed=3)
    store = with_weights(graphs.as_store()) if weighted else graphs.as_store()
    bits = replace(pack_adjacency(store.edge_ptr, store.neighbours, store.sizes), dense=dense)
    monkeypatch.setattr(type(store), "bits", property(lambda store: bits))
    model = HGCN(
        6, 3, **{"capsule_dim": 16, "num_capsules": (5,), "dropout": 0.3, "lead": (2,), **(options or {})}
    )
    tracker = StreamTracker(side_streams)
    tracker.install(monkeypatch)
    with use_kernels("always"), use_precision(precision):
        adam = ReplicaAdam(model, 2)
        adam.set_rate(0.01)  # with a rate of zero an update would write what was there, which is no write
        step = TrainingStep(model, adam, EpochMetrics(2, torch.device("cpu")), loss or LossOptions())
        recorder: Any = None  # the step is not recorded here
        runner = BucketedRunner(step, store, feature_table(graphs.x.float(), store), 2, 1, 4, recorder)
        runner.order[:, :4] = GRAPHS
        runner.cursor.fill_(0)
        runner._step(StepSize(64, 33))
        runner.cursor.fill_(0)
        join, numbers = Branch.join, count()
        monkeypatch.setattr(
            Branch, "join", lambda branch: None if next(numbers) == left_out else join(branch)
        )
        with tracker, use_side_streams(tracker.side_streams):  # type: ignore[arg-type]
            runner._step(StepSize(64, 33))
    return tracker, adam


def test_a_step_has_no_races(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker, adam = _track(monkeypatch)
    assert not tracker.errors
    assert "class_level_triton._routing_kernel" in tracker.launched  # it is the form without autograd
    assert all(stream.known for stream in tracker.side_streams)
    assert adam.steps.tolist() == [2, 2]  # counted once in a step, on a side stream


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"reconstruction": False}, {}),
        ({"residual": False}, {}),
        ({"dropout": 0.0}, {"loss": LossOptions(reconstruction_weight=0.0)}),
        ({"routing_iterations": 2}, {"weighted": True}),
        ({"routing_iterations": 4}, {"dense": True}),
        (
            {"dropout": torch.tensor([0.2, 0.5])},
            {"loss": LossOptions(reconstruction_weight=torch.tensor([0.1, 0.2]))},
        ),
        ({}, {"dense": True, "tall": True}),
        ({"context": "gated"}, {"dense": True, "tall": True}),
        ({}, {"side_streams": 1}),
        ({}, {"side_streams": 2, "precision": "tf32"}),
        ({"num_capsules": (4, 3)}, {}),
        ({"reconstruct_up_to": 8}, {}),
        ({"trunk": "sage"}, {}),
        ({"context": "gin", "residual": False}, {"side_streams": 1}),
        ({"context": "gated", "reconstruct_up_to": 8}, {"weighted": True}),
    ],
    ids=str,
)
def test_no_option_has_races(
    options: dict[str, Any], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not _track(monkeypatch, options, **settings)[0].errors


def test_a_join_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("does not wait for" in error for error in _track(monkeypatch, left_out=0)[0].errors)


@pytest.mark.exhaustive
def test_all_joins_that_matter_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of fourteen; each of the other joins is followed in time by another one of the same stream or branch."""
    found = 0
    for index in range(14):
        with monkeypatch.context() as patch:
            found += bool(_track(patch, left_out=index)[0].errors)
    assert found == 10


def test_freed_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor of the main stream, which a branch reads and nobody keeps."""
    tracker = StreamTracker(1)
    tracker.install(monkeypatch)
    with tracker, use_side_streams(tracker.side_streams):  # type: ignore[arg-type]
        kept, freed = torch.ones(2) + 1, torch.ones(3) + 1
        with fork(kept) as branch:
            result = kept.sum() + freed.sum()
        del freed
        torch.ones(4).add_(1)
        branch.join()
        result += 1
    assert tracker.errors
    assert all("may use the freed result of" in error for error in tracker.errors)
