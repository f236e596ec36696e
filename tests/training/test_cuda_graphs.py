"""Bucketed steps equal exactly sized ones; memory pools of captured steps."""

import contextlib
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphcaps.config import TrainConfig
from graphcaps.ops._triton.branches import fork
from graphcaps.training import Replica, Trainer, pick_replica, stack_replicas
from graphcaps.training.batch_schedule import schedule_epoch
from graphcaps.training.cuda_graphs import BucketedRunner, CudaGraphRecorder, StepSize
from tests.graphs import assert_equal, with_weights
from tests.training.test_trainer import CONFIG, _graphs, _maker, _replicas, _scores


def _trainer(
    kind: str,
    step_mode: Any,
    replicas: list[Replica],
    dropout: float = 0.3,
    weighted: bool = False,
    **changes: int,
) -> Trainer:
    graphs = _graphs()
    store = with_weights(graphs.as_store(), torch.float64) if weighted else graphs.as_store()
    model = stack_replicas(_maker(kind, dropout), replicas, torch.float64)
    config = TrainConfig(**({**CONFIG.__dict__, **changes}))
    return Trainer(model, store, graphs.x, replicas, config, step_mode=step_mode)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["hgcn", "gin"])
def test_bucketed_steps_equal_eager_steps(kind: str, weighted: bool) -> None:
    replicas = _replicas()  # folds of unequal size, one of them with fewer batches
    exact, padded = (_trainer(kind, steps, replicas, weighted=weighted) for steps in ("eager", "bucketed"))
    for one, other in zip(exact.run(), padded.run(), strict=True):
        for name in ("train_loss", "train_accuracy", "validation_loss", "test_accuracy"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-9), name
    assert exact.adam.steps.tolist() == padded.adam.steps.tolist()
    for f in range(len(replicas)):
        models = [pick_replica(trainer.model, _maker(kind, 0.3), f) for trainer in (exact, padded)]
        assert_equal(_scores(models[0]), _scores(models[1]), "scores", 1e-9)


def test_bucketed_steps_with_fewer_graphs_than_a_batch() -> None:
    replicas = _replicas()[2:]
    exact, padded = (_trainer("hgcn", steps, replicas, batch_size=64) for steps in ("eager", "bucketed"))
    for one, other in zip(exact.run(), padded.run(), strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, abs=1e-9)


def test_a_step_with_more_rows_gets_a_larger_bucket() -> None:
    trainer = _trainer("hgcn", "bucketed", _replicas())
    runner = trainer._runner
    assert isinstance(runner, BucketedRunner)
    trainer.run_epoch()
    buckets = {size.num_rows for size in runner.steps}
    sizes = trainer.store.host_node_ptr.diff()
    # The largest graphs in one step: more nodes than in any step of the epoch.
    largest = sizes.argsort(descending=True)[:4]
    none = torch.empty(0, dtype=torch.long)
    schedule = schedule_epoch([Replica(largest, none, none)] * 3, 0, 4, sizes)
    assert max(schedule.num_rows) > max(buckets)
    runner.run(schedule)
    assert max(runner.steps).num_rows > max(buckets)
    assert {size.max_size for size in runner.steps} == {int(sizes.max())}
    assert all(torch.isfinite(value).all() for value in trainer.state().values())


def test_models_that_pad_to_the_largest_graph_have_steps_by_its_size() -> None:
    trainer = _trainer("asap", "bucketed", _replicas())
    runner = trainer._runner
    assert isinstance(runner, BucketedRunner)
    sizes = trainer.store.host_node_ptr.diff()
    none = torch.empty(0, dtype=torch.long)
    small, large = sizes.argsort()[:2], sizes.argsort()[-2:]
    assert sizes[small].max() <= 32 < sizes.max()
    for graphs in (small, large):
        runner.run(schedule_epoch([Replica(graphs, none, none)] * 3, 0, 4, sizes))
    assert [size.max_size for size in runner.steps] == [32, int(sizes.max())]


@pytest.mark.parametrize("kind", ["hgcn", "gin", "asap", "hgcn, context", "hgcn, parts"])
def test_a_step_without_graphs_changes_no_state(kind: str) -> None:
    """Captures are warmed up with such a step."""
    trainer = _trainer(kind, "bucketed", _replicas())
    trainer.run_epoch()
    runner = trainer._runner
    assert isinstance(runner, BucketedRunner)
    before = {name: value.clone() for name, value in trainer.state().items()}
    sums = trainer._metrics.read()["sums"]
    runner.cursor.fill_(runner.num_steps)
    trainer.model.train()
    runner._step(StepSize(96, trainer.store.max_size))
    after = trainer.state()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    for name, value in trainer._metrics.read()["sums"].items():
        assert torch.equal(value, sums[name]), name


@pytest.mark.parametrize("kind", ["hgcn", "gin", "hgcn, context"])
def test_the_dry_run_that_collects_kernels_changes_no_training(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from tests.ops._triton.stub_driver import stub_driver

    plain, compiled = (_trainer(kind, "bucketed", _replicas(), average_epochs=2) for _ in range(2))
    compiled._recorder = SimpleNamespace(record=lambda body: body)  # type: ignore[assignment]
    runner, dry_runs = compiled._runner, []
    assert isinstance(runner, BucketedRunner)
    compute = runner.run_largest

    def run_largest(schedule: Any) -> None:
        compute(schedule)
        dry_runs.append(schedule.epoch)
        for value in compiled.state().values():  # without kernels, nothing that is computed has a meaning
            value.fill_(7)
        compiled._metrics.correct.fill_(7)
        compiled.model.eval()
        raise RuntimeError("the GPU ran out of memory")

    runner.run_largest = run_largest  # type: ignore[method-assign]
    with stub_driver():
        events = [list(trainer.run()) for trainer in (plain, compiled)]
    assert dry_runs == [0]
    for one, other in zip(*events, strict=True):
        assert (one.train_loss, one.train_accuracy) == (other.train_loss, other.train_accuracy)
    state = compiled.state()
    assert all(torch.equal(value, state[name]) for name, value in plain.state().items())


def test_kernels_in_the_cache_need_no_dry_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from tests.ops._triton.stub_driver import stub_driver

    def dry_runs(batch_size: int) -> int:
        trainer = _trainer("hgcn", "bucketed", _replicas(), batch_size=batch_size)
        trainer._recorder = SimpleNamespace(record=lambda body: body)  # type: ignore[assignment]
        runner, counted = trainer._runner, list[int]()
        assert isinstance(runner, BucketedRunner)
        runner.run_largest = lambda schedule: counted.append(1)  # type: ignore[method-assign]
        with stub_driver():
            trainer.run_epoch()
        return len(counted)

    assert [dry_runs(2), dry_runs(2), dry_runs(3)] == [1, 0, 1]
    monkeypatch.setenv("GRAPHCAPS_PRECOMPILE", "0")
    assert dry_runs(4) == 0


@pytest.mark.parametrize("kind", ["hgcn", "hgcn, context", "hgcn, parts"])
def test_nan_in_padding_does_not_reach_results(kind: str) -> None:
    """Padding rows are undefined; filled with NaN they change neither losses nor weights."""
    trainer, poisoned = (_trainer(kind, "bucketed", _replicas()) for _ in range(2))
    import graphcaps.training.cuda_graphs as module

    collate = module.batch_from_layout

    def poison(*arguments: Any, **named: Any) -> Any:
        batch = collate(*arguments, **named)
        batch.x[batch.edges.node < 0] = float("nan")
        return batch

    one = trainer.run_epoch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "batch_from_layout", poison)
        other = poisoned.run_epoch()
    assert one.train_loss == other.train_loss
    state = poisoned.state()
    assert all(torch.equal(value, state[name]) for name, value in trainer.state().items())


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Replaces torch.cuda by a fake that counts the graphs of each memory pool, as torch's allocator does."""
    counts: dict[int, int] = {}

    class Graph:
        pool: int | None = None

        def capture_begin(self, pool: int, capture_error_mode: str) -> None:
            assert counts.get(pool) != 0, "this pool was freed with its last graph"  # torch's INTERNAL ASSERT
            counts[pool] = counts.get(pool, 0) + 1
            self.pool = pool

        def capture_end(self) -> None: ...

        def replay(self) -> None: ...

        def __del__(self) -> None:
            if self.pool is not None:
                counts[self.pool] -= 1

    stream = SimpleNamespace(wait_stream=lambda other: None, synchronize=lambda: None, cuda_stream=1)
    handles = iter(range(100))
    for name, value in {
        "CUDAGraph": Graph,
        "current_stream": lambda: stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "graph_pool_handle": lambda: next(handles),
        "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    lease: Any = SimpleNamespace(stream=stream)
    monkeypatch.setattr("graphcaps.training.cuda_graphs.lease_stream", lambda **_: lease)
    monkeypatch.setattr("graphcaps.training.cuda_graphs.lease_side_streams", lambda: [])
    return counts


def test_replays_share_a_pool_while_one_is_alive(pools: dict[int, int]) -> None:
    recorder, calls = CudaGraphRecorder(), []
    first = recorder.record(lambda: calls.append("a"))
    second = recorder.record(lambda: calls.append("b"))
    assert calls == ["a", "a", "b", "b"]  # once to warm up, once captured
    assert pools == {0: 2}
    del first
    third = recorder.record(lambda: None)
    assert pools == {0: 2}
    del second, third
    assert pools == {0: 0}  # the recorder holds no reference


def test_a_new_pool_is_used_after_all_replays_are_deleted(pools: dict[int, int]) -> None:
    recorder = CudaGraphRecorder()
    for _ in range(3):
        recorder.record(lambda: None)()
        gc.collect()
    assert pools == {0: 0, 1: 0, 2: 0}


def test_recording_works_after_a_failed_capture(pools: dict[int, int]) -> None:
    recorder = CudaGraphRecorder()
    succeeds = iter((True, False))

    def body() -> None:
        if not next(succeeds):
            raise RuntimeError("capture failed")

    with pytest.raises(RuntimeError, match="capture failed"):
        recorder.record(body)
    gc.collect()
    kept = recorder.record(lambda: None)
    assert 1 in pools.values()
    kept()


def test_an_error_during_a_capture_is_that_of_the_step(
    pools: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory runs out while a branch is open. A graph with such a branch cannot end: CUDA's error would hide it."""
    main, side = torch.cuda.current_stream(), SimpleNamespace(wait_stream=lambda other: None)
    joined: list[Any] = []
    monkeypatch.setattr(main, "wait_stream", joined.append)
    monkeypatch.setattr(
        "graphcaps.training.cuda_graphs.lease_side_streams",
        lambda: [SimpleNamespace(stream=side)] * 3,
    )

    def end(graph: Any) -> None:
        assert joined.count(side) == 1, "unjoined work"

    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_end", end)
    captured = iter((False, True))

    def body() -> None:
        with fork(stream=1):
            if next(captured):
                raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        CudaGraphRecorder().record(body)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_captures_on_a_gpu_one_after_another() -> None:
    recorder = CudaGraphRecorder()
    total: Any = torch.zeros(3, device="cuda")
    for _ in range(3):  # the previous graph has been deleted

        def body() -> None:
            total.add_(torch.ones(3, device="cuda") * 2)

        total.zero_()
        replay = recorder.record(body)
        total.zero_()
        replay()
        replay()
        assert total.tolist() == [4.0, 4.0, 4.0]
        del replay
