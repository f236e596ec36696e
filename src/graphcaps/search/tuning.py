"""Hyper-parameter search by validation loss: batches of proposals are trained as replicas of one computation.

:func:`tune` is the public entry point. :class:`Search` checks the arguments on construction and trains on
:meth:`~Search.run`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from graphcaps._io.atomic_write import temporary_file
from graphcaps._io.user_folders import expand_home
from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Folds, Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.evaluation.divisions import FOLDS_SEED, Groups, build_folds
from graphcaps.execution.cell import ClusterProgress, Executor
from graphcaps.execution.local_executor import LocalExecutor
from graphcaps.models.lookup import is_classical
from graphcaps.search.optuna_study import TPEProposer
from graphcaps.search.proposals import Proposer, RandomProposer, check_sampler
from graphcaps.search.search_folder import SearchFolder
from graphcaps.search.search_space import (
    SearchSpace,
    Value,
    check_space,
    default_space,
    read_space,
    space_from_dict,
)
from graphcaps.search.successive_halving import BatchEpoch, BatchTrainer
from graphcaps.search.trial import Trial, best_trial
from graphcaps.training.auto_config import check_run_types, resolve_config
from graphcaps.training.fingerprint import NUMERICS_VERSION, data_digest
from graphcaps.training.holdout import check_nodes

__all__ = ["BATCH", "FOLDS", "PER_SHAPE", "REDUCTION", "TRIALS", "Search", "SearchProgress", "SearchResult"]

TRIALS, FOLDS, BATCH, PER_SHAPE, REDUCTION = 64, 5, 16, 8, 3
"""Defaults: trials, folds, proposals of a batch, those of one shape, and the factor between rungs."""
_MAX_TRIALS = 100_000


class TimeUp(Exception):
    """The time of a search is spent."""


@dataclass(frozen=True)
class SearchProgress:
    """Progress of a search.

    Args:
        work, total (int): Epochs of single trials so far, and of the whole search if no trial diverges.
        ended, trials (int): Trials that have ended, and all of them; of a scoring, trainings of folds.
        best (Trial, optional): The best trial so far.
        epoch (BatchEpoch, optional): The epoch that ended; ``None`` when a rung ended.
        part (str): Which search of a nested one this is; ``""`` for the search on all graphs.
        cluster (ClusterProgress, optional): Nodes and cells, where trials are trained on a cluster.
        is_scoring (bool): Whether outer test folds are scored after the searches of a nested one.
    """

    work: int
    total: int
    ended: int
    trials: int
    best: Trial | None
    epoch: BatchEpoch | None = None
    part: str = ""
    cluster: ClusterProgress | None = None
    is_scoring: bool = False


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Trials of a search and the best configuration.

    Args:
        dataset (str): Name of the data set.
        config (RunConfig): The configuration that trials changed, not resolved.
        space (SearchSpace): The options.
        trials (tuple): All trials, in the order of their numbers.
        folds (int): Number of folds.
        rungs (tuple): Numbers of epochs after which trials were compared.
        sampler (str): ``"tpe"`` or ``"random"``.
        seed (int): Seed of proposals and trainings.
        complete (bool): Whether all trials have ended.
        seconds (float): Time of this run, without that of earlier ones.
    """

    dataset: str
    config: RunConfig
    space: SearchSpace
    trials: tuple[Trial, ...]
    folds: int
    rungs: tuple[int, ...]
    sampler: str
    seed: int
    complete: bool
    seconds: float

    @property
    def best(self) -> Trial | None:
        """The finished trial of lowest validation loss; of unfinished ones if none is finished."""
        return best_trial(self.trials)

    @property
    def best_config(self) -> RunConfig:
        """The configuration of the best trial; values that are derived from the data and not searched remain so.

        Raises:
            ArgumentError: If no trial has a validation loss yet.
        """
        best = self.best
        if best is None:
            fix = "Resume the search, or give it more time."
            raise ArgumentError("search", "trials", "have a validation loss", "none", fix)
        changed = self.space.configure(self.config, best.values)
        return replace(changed, dataset=self.dataset, source=f"search, trial {best.number}")

    def best_toml(self) -> str:
        """The best configuration as a preset, with how it was found at the top."""
        best = self.best
        assert best is not None
        comment = (
            f"graphcaps evaluate {self.dataset} --preset best.toml\n\n"
            f"Trial {best.number} of {len(self.trials)} (sampler {self.sampler}, seed {self.seed}): validation loss "
            f"{best.loss:.4f} after {best.epochs} epochs, mean of {self.folds} folds.\n"
            "It was selected by that loss, which is therefore too low an estimate for new graphs (docs/tune.md)."
        )
        return self.best_config.to_toml(comment)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary."""
        best = self.best
        return {
            "dataset": self.dataset,
            "model": self.config.model,
            "sampler": self.sampler,
            "seed": self.seed,
            "folds": self.folds,
            "rungs": list(self.rungs),
            "complete": self.complete,
            "space": self.space.as_dict(),
            "best": None if best is None else best.as_dict(),
            "config": None if best is None else self.best_config.as_dict(),
            "trials": [trial.as_dict() for trial in self.trials],
            "seconds": round(self.seconds, 2),
        }


class Search:
    """A search: arguments are checked on construction, training starts with :meth:`run`.

    Arguments are those of :func:`graphcaps.tune`, and

    Args:
        name (str, optional): Name of the study in Optuna's storage. (default: data set and model)
        part (str): Which search of a nested one this is, for progress. (default: "")
    """

    def __init__(
        self,
        store: GraphStore,
        config: RunConfig | None = None,
        *,
        space: SearchSpace | Mapping[str, Any] | str | Path | None = None,
        trials: int = TRIALS,
        folds: int = FOLDS,
        groups: Groups | None = None,
        split: Split | Sequence[Split] | None = None,
        seed: int = 0,
        sampler: str = "tpe",
        batch: int = BATCH,
        per_shape: int = PER_SHAPE,
        reduction: int = REDUCTION,
        device: str = "auto",
        out: str | Path | None = None,
        resume: bool = False,
        name: str | None = None,
        part: str = "",
        executor: Executor | None = None,
    ) -> None:
        config = RunConfig() if config is None else config
        check_run_types(store, config, "tune")
        check_space(space)
        counts = {"trials": trials, "batch": batch, "per_shape": per_shape, "reduction": reduction}
        for key, value in counts.items():
            if type(value) is not int or not 1 <= value <= _MAX_TRIALS:
                raise ArgumentError("tune", key, f"be a whole number from 1 to {_MAX_TRIALS:,}", value)
        if type(seed) is not int or seed < 0:
            raise ArgumentError("tune", "seed", "be a whole number from 0 on", seed)
        if is_classical(config.model):
            expected = "be a network: classical models are fitted without epochs and losses"
            raise ArgumentError("tune", "model", expected, repr(config.model))
        if resume and out is None:
            raise UsageError("--resume needs --out DIR, the folder of the search that is continued.")
        self.store, self.config, self.trials, self.seed = store, config, trials, seed
        self.sampler, self.batch, self.part = check_sampler(sampler), min(batch, trials), part
        self.folds: Folds
        self.folds, partition = build_folds(store, folds, groups, split)
        for fold in range(self.folds.num_folds):
            check_nodes(store, self.folds.held_out(fold).train, "tune", "store")
        # As in a cross-validation: with a split, its training graphs determine settings that depend on the data.
        visible = store if split is None else store[self.folds.paper(0).train]
        self.resolved = resolve_config(config, visible)
        if space is None:
            self.space = default_space(self.resolved)
        elif isinstance(space, SearchSpace):
            self.space = space
        elif isinstance(space, Mapping):
            self.space = space_from_dict(space, config.model)
        else:
            self.space = read_space(expand_home(space, "tune", "space"), config.model)
        self.space.check(self.resolved, store.num_classes)
        self.executor = LocalExecutor() if executor is None else executor
        self.device = self.executor.choose_device(device, "tune", config.model)
        self.name = name or f"{store.name} {config.model}"
        shapes = self.space.shapes(config.model)
        make = TPEProposer if self.sampler == "tpe" else RandomProposer
        self.proposer: Proposer = make(self.space, shapes, per_shape, seed)
        digest = data_digest(store)
        settings = {
            "data": digest,
            "dataset": store.name,
            "config": {key: value for key, value in self.resolved.as_dict().items() if key != "source"},
            "space": self.space.as_dict(),
            "folds": self.folds.num_folds,
            "folds_seed": FOLDS_SEED,
            "partition": None if partition is None else partition.fingerprint,
            "seed": seed,
            "sampler": self.sampler,
            "batch": batch,
            "per_shape": per_shape,
            "reduction": reduction,
            "numerics": NUMERICS_VERSION,
        }
        self.folder = (
            None if out is None else SearchFolder(expand_home(out, "tune", "out"), settings, self.space)
        )
        self.history = [] if self.folder is None else self.folder.load(resume)
        self.trainer = BatchTrainer(
            *(store, self.resolved, self.space, self.folds),
            seed=seed, reduction=reduction, device=self.device, data=digest,
            folder=None if self.folder is None else self.folder.unfinished, executor=self.executor,
        )  # fmt: skip
        self._seconds = 0.0

    @property
    def total(self) -> int:
        """Epochs of single trials of the whole search, if no trial diverges."""
        full, rest = divmod(self.trials, self.batch)
        return full * self.trainer.work(self.batch) + (self.trainer.work(rest) if rest else 0)

    def run(
        self, on_event: Callable[[SearchProgress], object] | None = None, minutes: float | None = None
    ) -> SearchResult:
        """Trains until all trials have ended, or the time is spent.

        An exception such as Ctrl-C leaves the folder in a valid state: trials that have ended, the best configuration
        so far, and checkpoints of the others.

        Args:
            on_event (callable, optional): Called with a :class:`SearchProgress` after every epoch and rung.
            minutes (float, optional): Longest time of this run. (default: no limit)
        """
        if self.folder is None:
            return self._run(on_event, minutes)
        with self.folder.lock():
            try:
                return self._run(on_event, minutes)
            finally:
                if self.history:
                    self.folder.write_state(self.history)
                    result = self.result(complete=False)
                    best = None if result.best is None else result.best_toml()
                    self.folder.write_results(self.name, self.history, best)

    def result(self, *, complete: bool) -> SearchResult:
        """The trials so far."""
        return SearchResult(
            self.store.name, self.config, self.space, tuple(self.history), self.folds.num_folds,
            self.trainer.rungs, self.sampler, self.seed, complete, self._seconds,
        )  # fmt: skip

    def _run(
        self, on_event: Callable[[SearchProgress], object] | None, minutes: float | None
    ) -> SearchResult:
        began = monotonic()
        done = [0]

        def check_time() -> None:
            if minutes is not None and monotonic() - began > 60 * minutes:
                raise TimeUp

        def on_epoch(epoch: BatchEpoch) -> None:
            done[0] += epoch.trials
            self._notify(on_event, done[0], epoch)
            check_time()

        def on_cluster(progress: ClusterProgress) -> None:
            self._notify(on_event, done[0], None, progress)
            check_time()

        try:
            while self._unfinished() or len(self.history) < self.trials:
                pending = self._unfinished() or self._propose()
                batch, first = pending[0].batch, pending[0].number
                done[0] = sum(self.trainer.work(self.batch) for _ in range(batch))
                with self._marker() as marker:
                    for judged in self.trainer.train(pending, on_epoch, on_cluster, marker):
                        self.history[first : first + len(judged)] = judged
                        if self.folder is not None:
                            self.folder.write_state(self.history)
                        self._notify(on_event, done[0], None)
                self.trainer.remove_checkpoints(batch)
                if self.folder is not None:
                    best = self.result(complete=False)
                    text = None if best.best is None else best.best_toml()
                    self.folder.write_results(self.name, self.history, text)
        except TimeUp:
            pass
        finally:
            self._seconds += monotonic() - began
        return self.result(complete=not self._unfinished() and len(self.history) >= self.trials)

    def _marker(self) -> AbstractContextManager[Path | None]:
        """A file by which nodes of a cluster find out whether they share the folder."""
        if self.executor.is_local or self.folder is None:
            return nullcontext()
        return temporary_file(self.folder.path)

    def _unfinished(self) -> list[Trial]:
        """All trials of the last batch if one of them is running: the batch is trained again from its checkpoints."""
        last = [trial for trial in self.history if trial.batch == self.history[-1].batch]
        return last if any(trial.state == "running" for trial in last) else []

    def _propose(self) -> list[Trial]:
        """The next batch, written to the folder before it is trained."""
        batch = 0 if not self.history else self.history[-1].batch + 1
        count = min(self.batch, self.trials - len(self.history))
        first = self.space.values_of(self.resolved) if batch == 0 else None
        values = self.proposer.propose(self.history, batch, count, first, self._refusal)
        start = len(self.history)
        proposed = [Trial(start + number, batch, each) for number, each in enumerate(values)]
        self.history += proposed
        if self.folder is not None:
            self.folder.write_state(self.history)
        return proposed

    def _refusal(self, values: Mapping[str, Value]) -> str | None:
        """Why the model refuses a proposal: the check of the space sees its bounds and pairs of them only."""
        return self.space.refusal(self.resolved, values, self.store.num_classes)

    def _notify(
        self,
        on_event: Callable[[SearchProgress], object] | None,
        work: int,
        epoch: BatchEpoch | None,
        cluster: ClusterProgress | None = None,
    ) -> None:
        if on_event is None:
            return
        ended = sum(trial.state != "running" for trial in self.history)
        best = best_trial(self.history)
        counts = work, self.total, ended, self.trials
        on_event(SearchProgress(*counts, best, epoch, self.part, cluster))


def check_minutes(minutes: float | None) -> None:
    """Rejects a time that is not a positive number.

    Raises:
        ArgumentError: With what was passed.
    """
    if minutes is None:
        return
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if not is_number or not 0 < minutes < math.inf:
        raise ArgumentError("tune", "minutes", "be above 0", minutes)
