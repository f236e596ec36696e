"""The files of a training run: model, history, configuration and checkpoint."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphcaps._io.atomic_write import remove_temporary_files, write_atomically
from graphcaps._io.file_lock import lock_file
from graphcaps.cli.output_files import check_output_file, check_output_folder, write_json
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.training.baseline import Baseline
    from graphcaps.training.replica_trainer import EpochEnd
    from graphcaps.training.single_training import FinalResult, SingleTraining

__all__ = ["TrainingFiles", "history_rows", "write_baseline", "write_training"]

_HISTORY = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy")


@dataclass(frozen=True)
class TrainingFiles:
    """Paths of a training run: the model file that the user names, and the files next to it."""

    model: Path

    @property
    def history(self) -> Path:
        return self._sibling("history.json")

    @property
    def config(self) -> Path:
        return self._sibling("config.json")

    @property
    def checkpoint(self) -> Path:
        return self._sibling("checkpoint")

    @property
    def all(self) -> tuple[Path, ...]:
        return (self.model, self.history, self.config, self.checkpoint)

    def _sibling(self, suffix: str) -> Path:
        return self.model.with_name(f"{self.model.name}.{suffix}")

    def check(self, *, overwrite: bool, resume: bool) -> None:
        """Rejects, before anything is computed, files that cannot be written or would be lost."""
        if overwrite and resume:
            raise ArgumentError("train", "--resume", "be used without --overwrite", "both")
        if self.model.suffix != ".safetensors":
            raise ArgumentError("train", "--out", "end in .safetensors", f"'{self.model}'")
        for path in self.all:
            check_output_file(path)
        check_output_folder(self.model.parent)
        if overwrite or resume:
            return
        if self.checkpoint.exists():
            fix = "Continue with --resume, or start again with --overwrite."
            raise DataError(self.checkpoint, "a checkpoint of an earlier training exists", fix=fix)
        if self.model.exists():
            raise DataError(self.model, "the file exists", fix="Replace it with --overwrite.")

    def lock(self) -> AbstractContextManager[None]:
        """Refuses a second training that writes the same files; see :func:`graphcaps._io.file_lock.lock_file`."""
        return lock_file(self.model)

    def unused(self) -> TrainingFiles:
        """Files of the same name with a number, such as ``model-2.safetensors``, of which none exists."""
        for number in itertools.count(2):
            files = TrainingFiles(self.model.with_name(f"{self.model.stem}-{number}{self.model.suffix}"))
            if not any(path.exists() for path in files.all):
                return files
        raise AssertionError("unreachable")

    def is_finished(self, run_digest: str, epochs: int) -> bool:
        """Whether the model of this run is complete; it is the last file that a run writes."""
        from graphcaps.inference.model_file import load

        if not (self.model.is_file() and self.config.is_file()):
            return False
        try:
            training = load(self.model).training
        except DataError:
            return False
        return (training.get("run"), training.get("epochs")) == (run_digest, epochs)

    def read_history(self, training: dict[str, Any]) -> list[dict[str, Any]] | None:
        """One row per epoch of the training that made the model; ``None`` if they are not available.

        The history file may belong to another training whose model was replaced. It is used only if its number of
        epochs and the loss of the selected epoch agree with ``training``. A model of
        :class:`~graphcaps.HGCNClassifier` contains its history.
        """
        estimator = training.get("estimator")
        if isinstance(estimator, dict) and estimator.get("history"):
            return list(estimator["history"])
        try:
            rows = json.loads(self.history.read_text("utf-8"))
            epochs = training.get("epochs_run", training["epochs"])
            if "members" in training:
                first = training["members"][0]
                loss, kept = rows[first["epoch"] - 1]["member_train_loss"][0], first["train_loss"]
            else:
                loss, kept = rows[training.get("epoch", epochs) - 1]["train_loss"], training["train_loss"]
            same = len(rows) == epochs and math.isclose(loss, kept, rel_tol=1e-6)
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return None
        return rows if same else None

    def clear(self) -> None:
        """Removes the checkpoint and the partial files of a killed process."""
        self.checkpoint.unlink(missing_ok=True)
        self.remove_temporary()

    def remove_temporary(self) -> None:
        """Removes the partial files of a killed process."""
        for path in self.all:
            remove_temporary_files(path)


def history_rows(history: tuple[EpochEnd, ...]) -> list[dict[str, Any]]:
    """One row of numbers per epoch of a training; ``None`` for what was not measured.

    Rows of a committee have means over its members, and further lists with a number per member, such as
    ``member_train_loss``.
    """
    rows = []
    for event in history:
        means, lists = event.means(), asdict(event)
        row: dict[str, Any] = {"epoch": event.epoch, "seconds": event.seconds}
        row |= {name: _json_number(means.get(name)) for name in _HISTORY}
        if event.validation_metric:
            row["validation_metric"] = _json_number(means["validation_metric"])
        if len(event.train_loss) > 1:
            row |= {f"member_{name}": [_json_number(value) for value in lists[name]] for name in means}
        rows.append(row)
    return rows


def _json_number(value: float | None) -> float | None:
    """The value; ``None`` if there is none or it is not finite."""
    return None if value is None or not math.isfinite(value) else value


def write_training(
    files: TrainingFiles,
    training: SingleTraining,
    result: FinalResult,
    loaded: LoadedDataset,
) -> None:
    """Writes all files of a finished training; the model last, so that it implies the others.

    If one of them cannot be written, the others are as they were before.
    """
    from graphcaps._io.provenance import versions_and_commit

    files.model.parent.mkdir(parents=True, exist_ok=True)  # it may have been removed during the training
    config = {
        "config": result.model.config.as_dict(),
        "data": {
            "source": None if loaded.source is None else str(loaded.source),
            "digest": training.data_digest,
        },
        "training": result.training,
        "versions": result.model.versions | versions_and_commit(),
    }
    with _restored_on_failure(files.history, files.config):
        write_json(files.history, history_rows(result.history))
        write_json(files.config, config)
        result.model.save(files.model)
    files.clear()


@contextmanager
def _restored_on_failure(*paths: Path) -> Iterator[None]:
    """Gives small files their earlier content, or removes them, if the block raises."""
    contents = {path: path.read_bytes() if path.is_file() else None for path in paths}
    try:
        yield
    except BaseException:
        for path, content in contents.items():
            with suppress(OSError, DataError):  # the reason of the failure is reported
                if content is None:
                    path.unlink(missing_ok=True)
                elif path.read_bytes() != content:
                    write_atomically(path, content)
        raise


def write_baseline(files: TrainingFiles, baseline: Baseline) -> None:
    """Adds the result of a simple model to the configuration file of a finished training."""
    content = json.loads(files.config.read_bytes())
    write_json(files.config, content | {"baseline": baseline.as_dict()})
