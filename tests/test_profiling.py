"""Ranges: seen by profilers and clocks, in the order of the phases, and free of effects without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from graphcaps.config import TrainConfig
from graphcaps.data.features.encoding import feature_table
from graphcaps.nn import HGCN
from graphcaps.profiling import PHASES, STEP, profiled, time_ranges
from graphcaps.training.replicas import Replica, stack_replicas
from graphcaps.training.trainer import Trainer
from tests.graphs import random_graphs

NONE = torch.empty(0, dtype=torch.long)
REPLICAS = [Replica(torch.arange(8), NONE, NONE, fold=0), Replica(torch.arange(2, 8), NONE, NONE, fold=1)]


class Tape:
    """Notes when a range begins and ends."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        self.notes.append(name)
        yield
        self.notes.append(f"end of {name}")


def _trainer(step_mode: Any = "eager", sparse: bool = False, **arguments: Any) -> Trainer:
    torch.manual_seed(0)
    graphs = random_graphs([9, 12, 5, 6, 2, 8, 7, 11], channels=4, seed=1)
    options = {"capsule_dim": 8, "num_capsules": (3,), "dropout": 0.3} | arguments
    model = stack_replicas(lambda lead: HGCN(4, 2, lead=lead, **options), REPLICAS)
    store, x = graphs.as_store(), graphs.x.float()
    config = TrainConfig(batch_size=4, epochs=1)
    features = feature_table(x, store) if sparse else x
    return Trainer(model, store, features, REPLICAS, config, step_mode=step_mode)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("step_mode", ["eager", "bucketed"])
@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_a_training_step_consists_of_its_phases(formulation: str, step_mode: str, sparse: bool) -> None:
    trainer, tape = _trainer(step_mode, sparse, formulation=formulation), Tape()
    with time_ranges(tape):
        trainer.run_epoch()
    expected = [STEP, *(note for name in PHASES for note in (name, f"end of {name}")), f"end of {STEP}"]
    assert tape.notes[: 2 * len(expected)] == 2 * expected  # two steps; evaluation follows


def test_a_model_without_decoder_has_no_range_of_reconstruction() -> None:
    trainer, tape = _trainer(reconstruction=False), Tape()
    with time_ranges(tape):
        trainer.run_epoch()
    assert set(PHASES) - set(tape.notes) == {"reconstruction"}


# torch 2.11 warns of cycles, although there is only one.
@pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end of each cycle:UserWarning")
@pytest.mark.parametrize("step_mode", ["eager", "bucketed"])
def test_a_profiler_sees_the_phases(step_mode: str) -> None:
    trainer = _trainer(step_mode)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        trainer.run_epoch()
    entries = {entry.key: entry for entry in profiler.key_averages()}
    assert {*PHASES, STEP} <= set(entries)
    assert entries[STEP].count == entries["backward"].count == 2
    phases = sum(entries[name].cpu_time_total for name in PHASES if name in ("batch", "backward", "update"))
    assert phases < entries[STEP].cpu_time_total


def test_ranges_do_not_change_results() -> None:
    weights = []
    for tape in (None, Tape()):
        trainer = _trainer()
        if tape is None:
            trainer.run_epoch()
        else:
            with time_ranges(tape):
                trainer.run_epoch()
        weights.append({name: value.clone() for name, value in trainer.model.state_dict().items()})
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def test_without_profiler_and_clock_a_range_does_nothing() -> None:
    assert profiled("hop") is profiled("routing")
    tape = Tape()
    with time_ranges(tape), profiled("hop"):
        pass
    with profiled("routing"):
        pass
    assert tape.notes == ["hop", "end of hop"]
