"""A batch of trials: each equals the same configuration trained alone, also after others were dropped."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphcaps.config import TrainConfig
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.models.builder import join_builders, model_factory
from graphcaps.registry import Interval
from graphcaps.search import SearchSpace, Trial, trial_cells
from graphcaps.search import successive_halving as module
from graphcaps.search.proposals import RandomProposer
from graphcaps.search.search_space import space_from_dict
from graphcaps.search.successive_halving import BatchTrainer, plan_rungs, survivors
from graphcaps.training import Replica, Trainer, stack_replicas
from graphcaps.training.multiprocess import make_trainer
from tests.graphs import random_graphs
from tests.search.searches import CONFIG, SPACE, graphs


@pytest.mark.parametrize(
    ("epochs", "reduction", "rungs"),
    [
        (100, 3, (11, 33, 100)),
        (300, 3, (33, 100, 300)),
        (100, 1, (100,)),
        (25, 3, (25,)),
        (40, 2, (10, 20, 40)),
    ],
)
def test_rungs(epochs: int, reduction: int, rungs: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_RUNG", 10)
    assert plan_rungs(epochs, reduction) == rungs


def test_the_best_survive() -> None:
    assert survivors({0: 0.5, 1: 0.1, 2: math.inf, 3: 0.3, 4: 0.1}, 3) == [1, 4]
    assert survivors({0: 0.5, 1: 0.5}, 2) == [0]
    assert survivors({0: math.inf, 1: 0.5, 2: math.inf}, 1) == [1]
    assert survivors({0: math.inf}, 2) == []


def _trials(count: int, space: SearchSpace | None = None) -> list[Trial]:
    space = space or space_from_dict(SPACE, "hgcn")
    values = RandomProposer(space, ["model.num_capsules"], 2, 0).propose([], 0, count)
    return [Trial(number, 0, each) for number, each in enumerate(values)]


def _trainer(reduction: int, space: SearchSpace | None = None, folds: int = 3) -> BatchTrainer:
    store = graphs()
    assert store.y is not None
    return BatchTrainer(
        *(store, CONFIG, space or space_from_dict(SPACE, "hgcn"), stratified_folds(store.y, folds, 0)),
        seed=0, reduction=reduction, device=torch.device("cpu"),
    )  # fmt: skip


def test_dropping_trials_changes_none_of_the_others() -> None:
    *_, whole = _trainer(1).train(_trials(6))
    rungs = list(_trainer(2).train(_trials(6)))
    assert [sum(trial.state == "running" for trial in each) for each in rungs] == [3, 2, 0]
    last = rungs[-1]
    assert sorted(trial.epochs for trial in last) == [1, 1, 1, 2, 4, 4]
    for trial, alone in zip(last, whole, strict=True):
        if trial.state == "finished":
            assert trial.fold_losses == pytest.approx(alone.fold_losses, abs=1e-4)
    # Those with the lowest losses after each rung were kept.
    first = {trial.number: trial.losses[1] for trial in last}
    assert survivors(first, 2) == [trial.number for trial in last if trial.epochs > 1]


def test_the_epochs_of_a_batch() -> None:
    assert _trainer(2).work(6) == 6 * 1 + 3 * 1 + 2 * 2
    events = []
    list(_trainer(2).train(_trials(6), events.append))
    assert sum(event.trials for event in events) == 13


def test_a_trial_equals_the_same_configuration_in_a_batch_of_its_own() -> None:
    together = list(_trainer(1).train(_trials(4)))[-1]
    for trial in _trials(4):
        [alone] = list(_trainer(1).train([trial]))[-1]
        assert alone.fold_losses == pytest.approx(together[trial.number].fold_losses, abs=1e-4)


def test_32_trials_together_equal_each_alone() -> None:
    """In float64, with all numbers per replica, to 1e-9: losses of every epoch on training and validation graphs."""
    domains = {
        "training.learning_rate": Interval(1e-3, 1e-2, log=True),
        "training.halve_every": Interval(1, 3),
        "training.weight_decay": Interval(1e-5, 1e-2, log=True),
        "training.reconstruction_weight": Interval(0.01, 1.0, log=True),
        "model.dropout": Interval(0.0, 0.7),
        "model.upper_margin": Interval(0.7, 0.95),
        "model.lower_margin": Interval(0.05, 0.3),
    }
    space = SearchSpace(domains)
    assert space.numbers("hgcn") == (*domains,)
    drawn = random_graphs([5, 9, 3, 7, 6, 8, 4, 5, 7, 6], classes=2, seed=1)
    shared = TrainConfig(epochs=3, batch_size=4)
    base = replace(CONFIG, training=shared)
    configs = [space.configure(base, values) for values in RandomProposer(space, [], 1, 5).propose([], 0, 32)]
    builders = {f"{number}": model_factory(config, 5, 2) for number, config in enumerate(configs)}
    graph, none = torch.arange(10), torch.empty(0, dtype=torch.long)
    replicas = [
        Replica(graph[f % 2 : 8], graph[8:], none, seed=0, fold=f % 3, variant=f"{f}") for f in range(32)
    ]
    model = stack_replicas(join_builders([*builders.values()]), replicas, torch.float64, builders)
    together = Trainer(
        *(model, drawn.as_store(), drawn.x, replicas, shared),
        replica_configs=[config.training for config in configs],
    )
    events = list(together.run())
    for f, (replica, config) in enumerate(zip(replicas, configs, strict=True)):
        single = stack_replicas(builders[f"{f}"], [replica], torch.float64)
        alone = Trainer(single, drawn.as_store(), drawn.x, [replica], config.training)
        for many, one in zip(events, alone.run(), strict=True):
            assert many.train_loss[f] == pytest.approx(one.train_loss[0], abs=1e-9)
            assert many.validation_loss[f] == pytest.approx(one.validation_loss[0], abs=1e-9)


def test_a_trial_that_diverges_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_nan(*arguments: Any) -> Trainer:
        trainer = make_trainer(*arguments)
        assert isinstance(trainer, Trainer)
        rows = [replica.variant == "trial1" for replica in trainer.replicas]
        with torch.no_grad():
            next(iter(trainer.model.parameters()))[torch.tensor(rows)] = math.nan
        return trainer

    expected = list(_trainer(2).train(_trials(4)))[-1]
    monkeypatch.setattr(trial_cells, "make_trainer", with_nan)
    trials = list(_trainer(2).train(_trials(4)))[-1]
    assert trials[1].state == "diverged"
    assert trials[1].loss == math.inf
    assert trials[1].accuracy is None
    for number in (0, 2, 3):
        assert trials[number].losses[1] == pytest.approx(expected[number].losses[1], abs=1e-5)
    assert sum(trial.state == "finished" for trial in trials) == 1
