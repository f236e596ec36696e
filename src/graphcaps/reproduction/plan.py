"""Trains what the tables need and the results store does not have yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic

from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.store import GraphStore
from graphcaps.evaluation.concurrent_trainings import run_concurrently
from graphcaps.evaluation.cross_validation import CrossValidation, GroupEpoch
from graphcaps.evaluation.record import Protocol, RecordKey
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.reproduction.cells import Training
from graphcaps.training.device import choose_device

__all__ = ["Progress", "Run", "plan_runs", "reproduce"]


@dataclass(frozen=True)
class Run:
    """Trainings that are one computation: variants that only start otherwise are replicas of one run."""

    trainings: tuple[Training, ...]

    @property
    def dataset(self) -> str:
        return self.trainings[0].dataset

    @property
    def protocol(self) -> Protocol:
        return self.trainings[0].protocol

    @property
    def title(self) -> str:
        rows = ", ".join(training.variant.row for training in self.trainings)
        return f"{self.dataset} {rows} {self.protocol}"


@dataclass(frozen=True)
class Progress:
    """What happened to one of several runs.

    Args:
        run (Run): Which.
        number, of (int): Its place among all, from 1.
        epoch (GroupEpoch, optional): An epoch that ended; ``None`` when the run begins or is finished.
        finished (bool): Whether its records are written.
    """

    run: Run
    number: int
    of: int
    epoch: GroupEpoch | None = None
    finished: bool = False


def plan_runs(needed: Iterable[Training], results: ResultsStore, seeds: int) -> list[Run]:
    """The trainings without all their records, joined where they can be replicas of one run.

    Args:
        needed (list): What tables ask for, in the order in which to train.
        results (ResultsStore): What is there.
        seeds (int): Number of seeds; they are 0, 1, 2, …
    """
    runs: list[list[Training]] = []
    for training in needed:
        keys = (
            RecordKey(training.dataset, training.variant.name, training.protocol, s) for s in range(seeds)
        )
        if all(key in results for key in keys):
            continue
        for run in runs:
            if _one_computation(run[0], training):
                run.append(training)
                break
        else:
            runs.append([training])
    return [Run(tuple(run)) for run in runs]


def reproduce(
    runs: Sequence[Run],
    results: ResultsStore,
    *,
    seeds: int = 5,
    epochs: int | None = None,
    precision: str | None = None,
    device: str = "auto",
    jobs: int = 1,
    minutes: float | None = None,
    resume: bool = False,
    root: Path | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> int:
    """Trains runs and keeps the record of every finished seed.

    Args:
        runs (list): From :func:`plan_runs`.
        results (ResultsStore): Where records are kept.
        seeds (int): Number of seeds. (default: 5)
        epochs (int, optional): In place of the published ones.
        precision (str, optional): Of products on a GPU.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        jobs (int): Runs side by side on a GPU. (default: 1)
        minutes (float, optional): Start no run after this long.
        resume (bool): Go on from checkpoints of interrupted runs; without it they are refused.
        root (Path, optional): Folder to look in first for the data sets.
        on_progress (callable, optional): Is handed a :class:`Progress`; from several threads, one at a time.

    Returns:
        int: Runs that were not started, since the time was over.
    """
    began, telling, opening = monotonic(), Lock(), Lock()
    stores: dict[str, GraphStore] = {}

    def tell(*what: object) -> None:
        if on_progress is not None:
            with telling:
                on_progress(Progress(*what))  # type: ignore[arg-type]

    def open_once(name: str) -> GraphStore:
        with opening:
            if name not in stores:
                stores[name] = open_dataset(name, root).store
            return stores[name]

    def train(number: int, run: Run) -> bool:
        if minutes is not None and monotonic() - began > 60 * minutes:
            return False
        tell(run, number, len(runs))
        first, *others = run.trainings
        configs = {
            each.variant.name: each.variant.config(run.dataset, epochs=epochs, precision=precision)
            for each in (first, *others)
        }
        validation = CrossValidation(
            open_once(run.dataset), configs.pop(first.variant.name), variant=first.variant.name,
            joint_variants=configs, seeds=seeds, protocol=run.protocol, device=device, results=results, resume=True,
        )  # fmt: skip
        if not resume:
            validation.checkpoints.require_none(validation.protocols)
        validation.run_all(lambda epoch: tell(run, number, len(runs), epoch))
        tell(run, number, len(runs), None, True)
        return True

    tasks = [partial(train, number, run) for number, run in enumerate(runs, 1)]
    place = choose_device(device, "reproduce")
    return sum(not done for done in run_concurrently(tasks, jobs, place))


def _one_computation(one: Training, other: Training) -> bool:
    """Whether two trainings differ in the number of joined factors alone, which only draws the first weights."""
    first, second = ({**training.variant.changes, "num_factors": None} for training in (one, other))
    return (one.dataset, one.protocol) == (other.dataset, other.protocol) and first == second
