"""The folder of a search: its state, from which it can be resumed, and its results."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcaps._io.atomic_write import remove_leftovers, write_atomically
from graphcaps._io.csv_cells import csv_text
from graphcaps._io.file_lock import lock_file
from graphcaps._io.read_limit import read_bounded
from graphcaps.errors import DataError
from graphcaps.search.optuna_study import optuna_installed, store_trials
from graphcaps.search.search_space import SearchSpace
from graphcaps.search.trial import Trial, trial_from_dict
from graphcaps.training.fingerprint import describe_differences

__all__ = ["SearchFolder", "trials_csv"]

FORMAT = 1
_STATE = "search.json"
_MAX_BYTES = 1 << 28
_ANOTHER = "Name another folder, or repeat the options of that search."


class SearchFolder:
    """State and results of one search.

    ``search.json`` holds the settings and all trials, ``trials.csv`` the trials as a table, ``best.toml`` the best
    configuration, ``study.db`` the trials for Optuna, and ``unfinished`` the checkpoints of the batch that is trained.

    Args:
        path (Path): The folder; it is made when the search starts.
        settings (dict): JSON-safe values that determine the trials.
        space (SearchSpace): The options.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], space: SearchSpace) -> None:
        self.path, self.settings, self.space = path, dict(settings), space
        self.unfinished = path / "unfinished"

    def load(self, resume: bool) -> list[Trial]:
        """The trials of an earlier run of this search; none if there was none.

        Raises:
            DataError: If the folder holds a search and ``resume`` is not set, or it holds another search.
        """
        path = self.path / _STATE
        if not path.is_file():
            return []
        if not resume:
            fix = "Add --resume to continue it, or name another folder."
            raise DataError(path, "this folder holds a search", fix=fix)
        try:
            values = json.loads(read_bounded(path, _MAX_BYTES))
            settings, trials = values["settings"], values["trials"]
            if values["format"] != FORMAT or not isinstance(settings, dict) or not isinstance(trials, list):
                raise KeyError("format")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(path, f"a search of format {FORMAT}", "something else") from error
        differences = describe_differences(_flat(settings), _flat(self.settings))
        if differences:
            more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
            other = f"another one: {', '.join(differences[:3])}{more}"
            raise DataError(path, "the search that is resumed", other, fix=_ANOTHER)
        return [trial_from_dict(trial, self.space, str(path)) for trial in trials]

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Makes the folder and refuses other processes that search in it.

        Raises:
            DataError: If another process has the lock, or the folder cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(self.path, f"folder cannot be made ({error.strerror or error})") from error
        fix = "Wait until it has ended, or name another folder."
        refusal = DataError(self.path, "another process is searching in this folder", fix=fix)
        with lock_file(self.path / _STATE, refusal=refusal):
            remove_leftovers(self.path)
            yield

    def write_state(self, trials: Sequence[Trial]) -> None:
        """Writes settings and trials, from which the search can be resumed."""
        values = {
            "format": FORMAT,
            "settings": self.settings,
            "trials": [trial.as_dict() for trial in trials],
        }
        write_atomically(self.path / _STATE, json.dumps(values, indent=1, ensure_ascii=False) + "\n")

    def write_results(self, name: str, trials: Sequence[Trial], best: str | None) -> None:
        """Writes the table of trials, the best configuration, and Optuna's study where Optuna is installed.

        Args:
            name (str): Name of the study.
            trials (sequence): All trials.
            best (str, optional): Content of ``best.toml``; ``None`` if no trial has a loss yet.
        """
        write_atomically(self.path / "trials.csv", trials_csv(trials, self.space))
        if best is not None:
            write_atomically(self.path / "best.toml", best)
        # Complete batches only: trials are added to the study in their order.
        running = {trial.batch for trial in trials if trial.state == "running"}
        ended = [trial for trial in trials if trial.batch not in running]
        if optuna_installed():
            store_trials(self.path / "study.db", name, ended, self.space)


def trials_csv(trials: Sequence[Trial], space: SearchSpace) -> str:
    """The trials as CSV, one row each: state, epochs, validation loss and accuracy, and the value of each option."""
    head = ["trial", "batch", "state", "epochs", "validation_loss", "validation_accuracy", "seconds"]
    rows: list[list[object]] = [[*head, *space.options]]
    for trial in trials:
        loss = f"{trial.loss:.6f}" if trial.loss < float("inf") else ""
        accuracy = "" if trial.accuracy is None else f"{trial.accuracy:.6f}"
        values = [trial.values[name] for name in space.options]
        shown = [str(list(value)) if isinstance(value, tuple) else value for value in values]
        numbers = [trial.number, trial.batch, trial.state, trial.epochs, loss, accuracy]
        rows.append([*numbers, f"{trial.seconds:.2f}", *shown])
    return csv_text(rows)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by names with dots, so that a message can name the one that differs."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and not {"low", "high"} <= set(value):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
