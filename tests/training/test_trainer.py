"""Trainer: replicas equal single trainings, a plain loop and, when resumed, an uninterrupted training."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphcaps.config import TrainConfig
from graphcaps.errors import ArgumentError
from graphcaps.models.asap import ASAP
from graphcaps.models.gin import GIN
from graphcaps.nn import HGCN
from graphcaps.training import EpochEnd, Replica, Trainer, TrainingError, pick_replica, stack_replicas
from tests.graphs import Graphs, assert_equal, random_graphs

CONFIG = TrainConfig(epochs=3, batch_size=4, learning_rate=0.01, weight_decay=0.001, halve_every=2)


def _graphs(count: int = 13) -> Graphs:
    generator = torch.Generator().manual_seed(4)
    sizes = torch.randint(1, 40, (count,), generator=generator).tolist()
    return random_graphs(sizes, classes=2, seed=3)


def _maker(kind: str, dropout: float) -> Callable[[tuple[int, ...]], nn.Module]:
    return partial(_build, kind, dropout)  # picklable, for spawned processes


def _build(kind: str, dropout: float, lead: tuple[int, ...]) -> nn.Module:
    if kind == "asap":
        return ASAP(5, 2, hidden=8, attention_dropout=dropout, dropout=dropout, lead=lead)
    if kind == "gin":
        return GIN(5, 2, hidden=8, dropout=dropout, lead=lead)
    options: dict[str, Any] = {
        "hgcn": {},
        "hgcn, sage": {"trunk": "sage"},
        "hgcn, gine": {"trunk": "gine", "edge_kinds": 3},
        "hgcn, context": {"context": "gin", "context_layers": 1, "context_jumping": True},
        "hgcn, parts": {"parts": "blocks"},
    }[kind]
    return HGCN(5, 2, capsule_dim=8, num_capsules=(4,), dropout=dropout, lead=lead, **options)


def _replicas() -> list[Replica]:
    """Training sets of 8 graphs (two batches), 9 (three batches) and 3 (one batch)."""
    indices = torch.arange(13)
    return [
        Replica(indices[:8], indices[8:11], indices[11:], seed=0, fold=0),
        Replica(indices[4:], indices[:2], indices[2:4], seed=0, fold=1),
        Replica(indices[:3], indices[3:5], indices[5:12], seed=1, fold=0),
    ]


def _train(
    kind: str, dropout: float, replicas: list[Replica], **changes: int
) -> tuple[Trainer, list[EpochEnd]]:
    graphs = _graphs()
    model = stack_replicas(_maker(kind, dropout), replicas, torch.float64)
    config = TrainConfig(**({**CONFIG.__dict__, **changes}))
    trainer = Trainer(model, graphs.as_store(), graphs.x, replicas, config)
    return trainer, list(trainer.run())


def _scores(model: nn.Module) -> Tensor:
    graphs = _graphs()
    return model.eval().forward_batch(graphs.as_batch()).class_scores


@pytest.mark.parametrize(
    ("kind", "dropout"),
    [
        ("hgcn", 0.0),
        *((kind, 0.4) for kind in ("hgcn", "gin", "hgcn, sage", "hgcn, context")),
        *(
            pytest.param(kind, 0.0, marks=pytest.mark.exhaustive)
            for kind in ("gin", "hgcn, sage", "hgcn, context")
        ),
    ],
)
def test_a_replica_equals_a_single_training(kind: str, dropout: float) -> None:
    replicas = _replicas()
    together, events = _train(kind, dropout, replicas)
    assert together.adam.steps.tolist() == [6, 9, 3]
    for f, replica in enumerate(replicas):
        alone, single_events = _train(kind, dropout, [replica])
        # Weights whose gradient is zero drift with rounding errors, so outputs are compared.
        one = pick_replica(together.model, _maker(kind, dropout), f)
        two = pick_replica(alone.model, _maker(kind, dropout), 0)
        assert_equal(_scores(one), _scores(two), "scores", 1e-9)
        for many, single in zip(events, single_events, strict=True):
            assert many.train_loss[f] == pytest.approx(single.train_loss[0], abs=1e-9)
            assert many.validation_loss[f] == pytest.approx(single.validation_loss[0], abs=1e-9)
            assert many.test_accuracy[f] == single.test_accuracy[0]
            assert many.train_accuracy[f] == single.train_accuracy[0]


def test_equals_a_plain_loop_with_torch_adam() -> None:
    graphs = _graphs()
    store = graphs.as_store()
    replica = _replicas()[0]
    trainer, events = _train("hgcn", 0.0, [replica])
    torch.manual_seed(replica.stream_seed)
    model = _maker("hgcn", 0.0)(()).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.001)
    for epoch in range(3):
        for group in optimiser.param_groups:
            group["lr"] = 0.01 if epoch < 2 else 0.005
        model.train()
        total = 0.0
        for chosen in replica.order(epoch).split(4):
            batch = store.batch(graphs.x, chosen)
            loss = model.loss(model.forward_batch(batch, batch.y), batch.y).total
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(chosen)
        assert events[epoch].train_loss[0] == pytest.approx(total / 8, abs=1e-9)
    assert_equal(_scores(pick_replica(trainer.model, _maker("hgcn", 0.0), 0)), _scores(model), "scores", 1e-9)
    model.eval()
    batch = store.batch(graphs.x, replica.test)
    accuracy = (model.forward_batch(batch).class_scores.argmax(-1) == batch.y).double().mean()
    assert events[-1].test_accuracy[0] == pytest.approx(float(accuracy))


def test_the_same_seed_gives_identical_weights() -> None:
    runs = [_train("hgcn", 0.3, _replicas()[:2])[0].state() for _ in range(2)]
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    other = _train("hgcn", 0.3, [Replica(r.train, r.validation, r.test, seed=7) for r in _replicas()[:2]])[
        0
    ].state()
    assert not torch.equal(other["model.primary.weight"], runs[0]["model.primary.weight"])


@pytest.mark.parametrize("kind", ["hgcn", "hgcn, context"])
def test_resumed_training_equals_an_uninterrupted_one(kind: str) -> None:
    replicas = _replicas()
    uninterrupted, events = _train(kind, 0.3, replicas)
    interrupted, first = _train(kind, 0.3, replicas, epochs=2)
    state = {name: value.clone() for name, value in interrupted.state().items()}
    graphs = _graphs()
    fresh = stack_replicas(_maker(kind, 0.3), replicas, torch.float64)
    resumed = Trainer(fresh, graphs.as_store(), graphs.x, replicas, CONFIG)
    resumed.load_state(state)
    rest = list(resumed.run())
    assert [event.train_loss for event in first + rest] == [event.train_loss for event in events]
    final = uninterrupted.state()
    assert all(torch.equal(value, final[name]) for name, value in resumed.state().items())


def test_learning_rate_is_halved() -> None:
    config = TrainConfig(learning_rate=0.8, halve_every=500)
    assert [config.learning_rate_at(epoch) for epoch in (0, 499, 500, 999, 1000)] == [0.8, 0.8, 0.4, 0.4, 0.2]


def test_nan_loss_names_epoch_and_term() -> None:
    graphs = _graphs()
    replicas = _replicas()[:1]
    model = stack_replicas(_maker("hgcn", 0.0), replicas, torch.float64)
    trainer = Trainer(model, graphs.as_store(), graphs.x, replicas, CONFIG)
    trainer.run_epoch()
    with torch.no_grad():
        model.decoder.bias.fill_(float("nan"))
    with pytest.raises(TrainingError, match=r"stopped in epoch 2: the reconstruction loss is not a number\."):
        trainer.run_epoch()


def test_wrong_arguments_are_refused() -> None:
    graphs = _graphs()
    store = graphs.as_store()
    empty = Replica(torch.arange(0), torch.arange(0), torch.arange(3))
    model = stack_replicas(_maker("gin", 0.0), [empty], torch.float64)
    with pytest.raises(ArgumentError, match=r"'replicas' must each have at least one training graph"):
        Trainer(model, store, graphs.x, [empty], CONFIG)
    with pytest.raises(ArgumentError, match=r"training: 'batch_size' must be at least 1, got 0\."):
        TrainConfig(batch_size=0)


def test_reconstruction_weight_changes_the_loss() -> None:
    graphs = _graphs()
    replicas = _replicas()[:1]
    losses = []
    for weight in (0.0, 1.0):
        model = stack_replicas(_maker("hgcn", 0.0), replicas, torch.float64)
        config = TrainConfig(epochs=1, batch_size=4, reconstruction_weight=weight)
        (event,) = Trainer(model, graphs.as_store(), graphs.x, replicas, config).run()
        losses.append(event.train_loss[0])
    assert losses[1] > losses[0] + 0.1


def test_a_fixed_number_of_batches_per_epoch() -> None:
    replicas = _replicas()
    trainer, events = _train("gin", 0.0, replicas, batches_per_epoch=5)
    assert trainer.epoch == 3
    alone, alone_events = _train("gin", 0.0, replicas[2:], batches_per_epoch=5)
    assert_equal(
        _scores(pick_replica(alone.model, _maker("gin", 0.0), 0)),
        _scores(pick_replica(trainer.model, _maker("gin", 0.0), 2)),
    )
    for event, single in zip(events, alone_events, strict=True):
        assert event.train_loss[2] == pytest.approx(single.train_loss[0])
        assert all(0 <= accuracy <= 1 for accuracy in event.train_accuracy)


def test_one_batch_of_all_graphs_is_an_ordinary_epoch() -> None:
    """Losses are means over the draws: with three batches of all graphs, and a rate of almost 0, those of one."""
    replicas, still = _replicas()[:1], {"learning_rate": 1e-300, "batch_size": 32, "epochs": 1}
    _, (one,) = _train("gin", 0.0, replicas, **still)
    _, (three,) = _train("gin", 0.0, replicas, batches_per_epoch=3, **still)
    assert three.train_loss == pytest.approx(one.train_loss)
    assert three.train_accuracy == one.train_accuracy
    assert three.loss_terms["cross-entropy"] == pytest.approx(one.loss_terms["cross-entropy"])


def test_capsules_in_use_do_not_depend_on_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """With captured steps they are of the size of training steps, padded; large graphs are fewer."""
    trainer, _ = _train("hgcn", 0.0, _replicas())
    expected = trainer.capsule_use()
    trainer._recorder = object()  # type: ignore[assignment]
    assert trainer.capsule_use() == expected
    seen: list[list[int]] = []
    monkeypatch.setattr(
        "graphcaps.training.trainer.measure_capsule_use",
        lambda model, *parts: seen.extend([batch.segments.num_graphs for batch in part] for part in parts),
    )
    trainer.capsule_use()
    monkeypatch.setattr("graphcaps.training.trainer._SIZE_OF_USE", 1)
    monkeypatch.setattr("graphcaps.training.trainer._LEAST_OF_USE", 2)
    trainer.capsule_use()
    # Of the largest validation and training set; a step has four graphs.
    assert seen == [[3], [4, 4, 1], [2], [4, 4, 1]]
