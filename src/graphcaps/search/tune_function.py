"""The public entry point of the search, with nested cross-validation and pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.user_folders import expand_home
from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.evaluation.divisions import Groups, group_graphs
from graphcaps.execution.cell import Executor
from graphcaps.search.nested_search import (
    NestedResult,
    held_out_accuracies,
    outer_training_part,
    run_outer_searches,
)
from graphcaps.search.search_pictures import search_pictures
from graphcaps.search.search_space import SearchSpace
from graphcaps.search.tuning import (
    BATCH,
    FOLDS,
    PER_SHAPE,
    REDUCTION,
    TRIALS,
    Search,
    SearchProgress,
    SearchResult,
    TimeUp,
    check_minutes,
)

__all__ = ["TuneResult", "TuneRun", "tune"]


@dataclass(frozen=True, eq=False)
class TuneResult:
    """What a search found.

    Args:
        search (SearchResult): The search on all graphs.
        nested (NestedResult, optional): Its held-out accuracy, where it was asked for and all its trials have ended.
    """

    search: SearchResult
    nested: NestedResult | None = None

    @property
    def best_config(self) -> RunConfig:
        """The best configuration, as in :attr:`SearchResult.best_config`."""
        return self.search.best_config

    def as_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary."""
        nested = {} if self.nested is None else {"nested": self.nested.as_dict()}
        return self.search.as_dict() | nested


class TuneRun:
    """A search with its nested searches: arguments are checked on construction, training starts with :meth:`run`.

    Arguments are those of :func:`tune` without ``on_event``.
    """

    def __init__(
        self,
        store: GraphStore,
        config: RunConfig | None = None,
        *,
        minutes: float | None = None,
        nested: bool = False,
        groups: Groups | None = None,
        split: Split | Sequence[Split] | None = None,
        out: str | Path | None = None,
        **options: Any,
    ) -> None:
        check_minutes(minutes)
        if nested and split is not None:
            expected = "be left out with a split: its test part is not read by the search"
            raise ArgumentError("tune", "nested", expected, "both")
        self.minutes = minutes
        self.folder = None if out is None else expand_home(out, "tune", "out")
        grouping = (
            None if groups is None or not isinstance(store, GraphStore) else group_graphs(store, groups)
        )
        self.search = Search(store, config, groups=grouping, split=split, out=self.folder, **options)
        self.outer: list[Search] = []
        if nested:
            folds = self.search.folds
            for fold in range(folds.num_folds):
                folder = None if self.folder is None else self.folder / "nested" / f"fold{fold + 1}"
                part = f"fold {fold + 1}/{folds.num_folds}"
                inner = None
                if grouping is not None:
                    inner = replace(grouping, ids=grouping.ids[folds.paper(fold).train.cpu().numpy()])
                self.outer.append(
                    Search(
                        *(outer_training_part(store, folds, fold), config), groups=inner,
                        out=folder, part=part, name=f"{self.search.name}, outer {part}", **options,
                    )
                )  # fmt: skip

    @property
    def searches(self) -> list[Search]:
        """The search on all graphs, then those of the outer folds."""
        return [self.search, *self.outer]

    def run(self, on_event: Callable[[SearchProgress], object] | None = None) -> TuneResult:
        """Searches, and writes results and pictures to the folder, if there is one."""
        began = monotonic()

        def remaining() -> float | None:
            # With 0, a search ends after its first epoch.
            return None if self.minutes is None else max(self.minutes - (monotonic() - began) / 60, 0.0)

        try:
            result = TuneResult(self.search.run(on_event, remaining()))
        finally:  # also after Ctrl-C
            self._draw(self.search.result(complete=False))
        if not self.outer or not result.search.complete:
            return result
        try:
            inner = run_outer_searches(self.outer, on_event, remaining)
        except TimeUp:
            return result
        nested = self._score(result.search, inner, on_event)
        if self.folder is not None:
            write_atomically(self.folder / "nested.json", json.dumps(nested.as_dict(), indent=1) + "\n")
        return TuneResult(result.search, nested)

    def _score(
        self,
        search: SearchResult,
        inner: tuple[SearchResult, ...],
        on_event: Callable[[SearchProgress], object] | None,
    ) -> NestedResult:
        """Scores every outer test fold once with each of the two configurations."""
        folds, here = self.search.folds, self.search
        configs = {
            "nested": [each.best_config for each in inner],
            "unnested": [search.best_config] * folds.num_folds,
        }
        both = [
            held_out_accuracies(
                here.store, each, folds, seed=here.seed, device=here.device, executor=here.executor, part=part,
                on_event=on_event,
            )
            for part, each in configs.items()
        ]  # fmt: skip
        return NestedResult(both[0], both[1], inner)

    def _draw(self, result: SearchResult) -> None:
        if self.folder is None or result.best is None:
            return
        for name, picture in search_pictures(result).items():
            write_atomically(self.folder / name, picture)


def tune(
    store: GraphStore,
    config: RunConfig | None = None,
    *,
    space: SearchSpace | Mapping[str, Any] | str | Path | None = None,
    trials: int = TRIALS,
    minutes: float | None = None,
    folds: int = FOLDS,
    nested: bool = False,
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
    on_event: Callable[[SearchProgress], object] | None = None,
    executor: Executor | None = None,
) -> TuneResult:
    """Searches for the configuration of lowest validation loss.

    Trials × folds are replicas of one training: learning rate, its halving, weight decay, dropout, reconstruction
    weight and margins are one number per replica. Trials that differ in other options are trained in groups of one
    shape. After each rung the worst trials of a batch are dropped. Test parts of the folds are not read.

    Args:
        store (GraphStore): Graphs with class labels.
        config (RunConfig, optional): The configuration that trials change; it is the first trial if it is in the space.
            (default: the defaults of each section)
        space (SearchSpace, dict or path, optional): Options and their values. (default:
            :func:`graphcaps.search.default_space` of the model)
        trials (int): Number of trials. (default: 64)
        minutes (float, optional): Longest time; the search can be resumed afterwards. (default: no limit)
        folds (int): Number of folds; a trial trains on all but two of them and is judged on one. (default: 5)
        nested (bool): Also search inside each outer fold and score its test fold once, for the held-out accuracy of the
            search. It takes as many further searches as there are folds. (default: ``False``)
        groups (sequence or str, optional): Groups that stay in one fold, as in :func:`graphcaps.cross_validate`.
        split (Split or sequence, optional): Fixed splits in place of folds, as there; their test parts are not read.
        seed (int): Seed of proposals and trainings. (default: 0)
        sampler (str): ``"tpe"`` with Optuna, or ``"random"``, which needs no further package. (default: "tpe")
        batch (int): Number of trials that are proposed and compared together. (default: 16)
        per_shape (int): Number of consecutive proposals of a batch that have the same shape. (default: 8)
        reduction (int): Factor between the epochs of consecutive rungs, and between the trials before and after one; 1
            trains all trials to the end. (default: 3)
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        out (path, optional): Folder for ``best.toml``, ``trials.csv``, Optuna's ``study.db``, pictures and the state.
        resume (bool): Continue the search in ``out``; it makes the same proposals as an unbroken one.
        on_event (callable, optional): Called with a :class:`graphcaps.search.SearchProgress` after every epoch, also
            while outer test folds are scored.
        executor (Executor, optional): Where trials are trained, such as a
            :class:`graphcaps.execution.RayExecutor`. (default: in this process)

    Returns:
        TuneResult: All trials, the best configuration, and the nested result.

    Raises:
        GraphcapsError: If an argument is invalid, the space is empty or contradictory, or ``out`` holds another search;
            raised before training starts.
        MissingExtraError: If Optuna is not installed and the sampler is ``"tpe"``.
    """
    run = TuneRun(
        store, config, space=space, trials=trials, minutes=minutes, folds=folds, nested=nested, groups=groups,
        split=split, seed=seed, sampler=sampler, batch=batch, per_shape=per_shape, reduction=reduction,
        device=device, out=out, resume=resume, executor=executor,
    )  # fmt: skip
    return run.run(on_event)
