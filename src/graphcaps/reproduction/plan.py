"""Plans and runs the trainings that the tables need and the results store does not hold yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic

from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError
from graphcaps.evaluation.concurrent_trainings import run_concurrently
from graphcaps.evaluation.cross_validation import CrossValidation
from graphcaps.evaluation.joint_training import GroupEpoch, JointProgress, train_together
from graphcaps.evaluation.record import Protocol
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.execution.cell import Executor
from graphcaps.execution.local_executor import LocalExecutor
from graphcaps.reproduction.cells import Training
from graphcaps.reproduction.measured import describe_epochs, how_to_show, other_epochs

__all__ = ["Progress", "Run", "plan_runs", "reproduce"]


@dataclass(frozen=True)
class Run:
    """Trainings computed together: variants that differ only in their initial weights are replicas of one run."""

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
    """Progress of one of several runs.

    Args:
        run (Run): The run.
        number, of (int): Number of the run, from 1, and number of runs.
        epoch (GroupEpoch, optional): The epoch that ended; ``None`` when the run starts or is finished.
        finished (bool): Whether the records are written.
    """

    run: Run
    number: int
    of: int
    epoch: GroupEpoch | None = None
    finished: bool = False


def plan_runs(
    needed: Iterable[Training], results: ResultsStore, seeds: int, epochs: int | None = None
) -> list[Run]:
    """The trainings that lack a record, combined where they can be replicas of one run.

    Args:
        needed (list): Trainings, in the order in which to run them.
        results (ResultsStore): Existing records.
        seeds (int): Number of seeds; they are 0, 1, 2, …
        epochs (int, optional): Number of epochs in place of the published one.

    Raises:
        DataError: If a record that is needed is stored with another number of epochs: a folder holds one record per
            training and seed.
    """
    trainings = list(needed)
    if others := other_epochs(trainings, results, seeds, epochs):
        wanted = {key: each.num_epochs(epochs) for each in trainings for key in each.keys(seeds)}
        expected = f"records of {describe_epochs({key: wanted[key] for key in others})}"
        fix = f"To train, name another folder (--results DIR). {how_to_show(others, results, epochs)}"
        raise DataError(results.folder, expected, f"those of {describe_epochs(others)}", fix=fix.strip())
    runs: list[list[Training]] = []
    for training in trainings:
        if all(key in results for key in training.keys(seeds)):
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
    executor: Executor | None = None,
    on_cluster: Callable[[JointProgress], object] | None = None,
) -> int:
    """Trains runs and stores the record of every finished seed.

    Args:
        runs (list): From :func:`plan_runs`.
        results (ResultsStore): Store for the records.
        seeds (int): Number of seeds. (default: 5)
        epochs (int, optional): Number of epochs in place of the published one.
        precision (str, optional): Precision of matrix products on a GPU.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        jobs (int): Concurrent runs on a GPU. (default: 1)
        minutes (float, optional): Time after which no further run is started.
        resume (bool): Continue from checkpoints of interrupted runs; without it they are an error.
        root (Path, optional): Folder that is searched first for the data sets.
        on_progress (callable, optional): Called with a :class:`Progress`; from several threads, one at a time.
        executor (Executor, optional): Where the runs are trained, such as a
            :class:`graphcaps.execution.RayExecutor`. (default: in this process)
        on_cluster (callable, optional): Called when a part of a run starts or ends on a cluster.

    Returns:
        int: Number of runs that were not started because of ``minutes``.
    """
    start, progress_lock, data_lock = monotonic(), Lock(), Lock()
    stores: dict[str, GraphStore] = {}

    def report(*fields: object) -> None:
        if on_progress is not None:
            with progress_lock:
                on_progress(Progress(*fields))  # type: ignore[arg-type]

    def open_once(name: str) -> GraphStore:
        with data_lock:
            if name not in stores:
                stores[name] = open_dataset(name, root).store
            return stores[name]

    def is_late() -> bool:
        return minutes is not None and monotonic() - start > 60 * minutes

    def prepare(run: Run) -> CrossValidation:
        first, *others = run.trainings
        configs = {
            each.variant.name: each.variant.config(run.dataset, epochs=epochs, precision=precision)
            for each in (first, *others)
        }
        validation = CrossValidation(
            open_once(run.dataset), configs.pop(first.variant.name), variant=first.variant.name,
            joint_variants=configs, seeds=seeds, protocol=run.protocol, device=device, results=results, resume=True,
            executor=executor,
        )  # fmt: skip
        if not resume:
            validation.checkpoints.require_none(validation.protocols)
        return validation

    def train(number: int, run: Run) -> bool:
        if is_late():
            return False
        report(run, number, len(runs))
        prepare(run).run_all(lambda epoch: report(run, number, len(runs), epoch))
        report(run, number, len(runs), None, True)
        return True

    executor = LocalExecutor() if executor is None else executor
    torch_device = executor.choose_device(device, "reproduce")
    if not executor.is_local:
        numbers = {prepare(run): (run, number) for number, run in enumerate(runs, 1)}
        not_started = train_together(
            list(numbers),
            executor,
            on_progress=on_cluster,
            on_finished=lambda validation: report(*numbers[validation], len(runs), None, True),
            may_start=lambda: not is_late(),
        )
        return len(not_started)
    tasks = [partial(train, number, run) for number, run in enumerate(runs, 1)]
    return sum(not started for started in run_concurrently(tasks, jobs, torch_device))


def _one_computation(one: Training, other: Training) -> bool:
    """Whether two trainings differ only in ``num_factors``, which changes only the initial weights."""
    first, second = ({**training.variant.changes, "num_factors": None} for training in (one, other))
    return (one.dataset, one.protocol) == (other.dataset, other.protocol) and first == second
