"""Steps of few shapes learn what steps sized exactly learn; a step without graphs changes nothing."""

from typing import Any

import pytest
import torch

from graphcaps.config import TrainConfig
from graphcaps.training import Replica, Trainer, pick_replica, stack_replicas
from graphcaps.training.batch_schedule import schedule_epoch
from graphcaps.training.cuda_graphs import BucketedRunner
from tests.graphs import assert_equal
from tests.training.test_trainer import CONFIG, _graphs, _maker, _replicas, _scores


def _trainer(kind: str, steps: Any, replicas: list[Replica], dropout: float = 0.3, **changes: int) -> Trainer:
    graphs = _graphs()
    model = stack_replicas(_maker(kind, dropout), replicas, torch.float64)
    config = TrainConfig(**({**CONFIG.__dict__, **changes}))
    return Trainer(model, graphs.as_store(), graphs.x, replicas, config, step_mode=steps)


@pytest.mark.parametrize("kind", ["hgcn", "gin"])
def test_bucketed_is_unbucketed(kind: str) -> None:
    replicas = _replicas()  # folds of unequal size, one of them with fewer batches
    exact, padded = (_trainer(kind, steps, replicas) for steps in ("eager", "bucketed"))
    for one, other in zip(exact.run(), padded.run(), strict=True):
        for name in ("train_loss", "train_accuracy", "validation_loss", "test_accuracy"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-9), name
    assert exact.adam.steps.tolist() == padded.adam.steps.tolist()
    for f in range(len(replicas)):
        models = [pick_replica(trainer.model, _maker(kind, 0.3), f) for trainer in (exact, padded)]
        assert_equal(_scores(models[0]), _scores(models[1]), "scores", 1e-9)


def test_fewer_graphs_than_a_batch() -> None:
    replicas = _replicas()[2:]
    exact, padded = (_trainer("hgcn", steps, replicas, batch_size=64) for steps in ("eager", "bucketed"))
    for one, other in zip(exact.run(), padded.run(), strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, abs=1e-9)


def test_a_step_that_overflows_gets_a_bucket_of_its_own() -> None:
    trainer = _trainer("hgcn", "bucketed", _replicas())
    steps = trainer._runner
    assert isinstance(steps, BucketedRunner)
    trainer.run_epoch()
    first = set(steps.steps)
    sizes = trainer.store.host_node_ptr.diff()
    # The largest graphs together: more nodes than any step had.
    largest = sizes.argsort(descending=True)[:16]
    none = torch.empty(0, dtype=torch.long)
    plan = schedule_epoch([Replica(largest, none, none)] * 3, 0, 4, sizes)
    assert max(plan.num_rows) > max(first)
    steps.run(plan)
    assert max(steps.steps) > max(first)
    assert all(torch.isfinite(value).all() for value in trainer.state().values())


@pytest.mark.parametrize("kind", ["hgcn", "gin"])
def test_a_step_without_graphs_changes_nothing(kind: str) -> None:
    """What a capture is warmed up with."""
    trainer = _trainer(kind, "bucketed", _replicas())
    trainer.run_epoch()
    steps = trainer._runner
    assert isinstance(steps, BucketedRunner)
    before = {name: value.clone() for name, value in trainer.state().items()}
    sums = trainer._metrics.read()["sums"]
    steps.cursor.fill_(steps.num_steps)
    trainer.model.train()
    steps._step(96)
    after = trainer.state()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    for name, value in trainer._metrics.read()["sums"].items():
        assert torch.equal(value, sums[name]), name


def test_padding_holds_anything() -> None:
    """Rows of padding slots are not defined: here they are NaN, and nothing shows it."""
    trainer, poisoned = (_trainer("hgcn", "bucketed", _replicas()) for _ in range(2))
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
