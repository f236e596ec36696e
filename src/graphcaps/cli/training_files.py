"""Files of a training: checked before it starts, written when it has ended."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphcaps._io.atomic_write import write_atomically
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.training.final_training import FinalResult, FinalTraining
    from graphcaps.training.trainer import EpochEnd

__all__ = ["TrainingFiles", "check_folder", "history_table", "write_json", "write_training"]


def check_folder(out: Path) -> None:
    """Refuses a folder that could not be written into; one that is not there yet is not made."""
    try:
        # It will be made in the nearest one that is there.
        nearest = next(place for place in (out, *out.absolute().parents) if place.exists())
        if not nearest.is_dir():
            raise DataError(out, "a folder to write into", f"a file at {nearest}")
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise DataError(out, "a folder to write into", f"'{error.strerror or error}'") from error


@dataclass(frozen=True)
class TrainingFiles:
    """Where a training writes: the model file named by the user, and what stands beside it."""

    model: Path

    @property
    def history(self) -> Path:
        return self._beside("history.json")

    @property
    def config(self) -> Path:
        return self._beside("config.json")

    @property
    def checkpoint(self) -> Path:
        return self._beside("checkpoint")

    def history_of(self, training: dict[str, Any]) -> list[dict[str, Any]] | None:
        """The epochs of the training that made the model; ``None`` where they are not known.

        The file beside the model may be of another training, whose model was written over: its number of epochs
        and the loss of the kept one tell. A classifier keeps its epochs in the model file.
        """
        own = training.get("estimator")
        if isinstance(own, dict) and own.get("history"):
            return list(own["history"])
        try:
            rows = json.loads(self.history.read_text("utf-8"))
            run = training.get("epochs_run", training["epochs"])
            kept = rows[training.get("epoch", run) - 1]
            same = len(rows) == run and math.isclose(kept["train_loss"], training["train_loss"], rel_tol=1e-6)
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return None
        return rows if same else None

    def _beside(self, ending: str) -> Path:
        return self.model.with_name(f"{self.model.name}.{ending}")

    def check(self, *, overwrite: bool, resume: bool) -> None:
        """Refuses, before anything is computed, what could not be written or would be lost."""
        if overwrite and resume:
            raise ArgumentError("train", "--resume", "stand without --overwrite", "both")
        if self.model.suffix != ".safetensors":
            raise ArgumentError("train", "--out", "end in .safetensors", f"'{self.model}'")
        folder = self.model.parent
        if not folder.is_dir():
            raise DataError(
                self.model, "a folder to write into", f"none at {folder}", fix="Create the folder first."
            )
        for path in (self.model, self.history, self.config, self.checkpoint):
            if path.is_symlink() and not path.exists():
                raise DataError(path, "a name for a file to write", "a link that leads nowhere")
            if path.exists() and not path.is_file():
                raise DataError(path, "a name for a file to write", "a folder or a device")
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise DataError(folder, "a folder to write into", f"'{error.strerror}'") from error
        if overwrite or resume:
            return
        if self.checkpoint.exists():
            raise DataError(
                self.checkpoint,
                "no checkpoint of an earlier training",
                "one",
                fix="Go on with --resume, or start again with --overwrite.",
            )
        if self.model.exists():
            raise DataError(self.model, "no file yet", "one", fix="Replace it with --overwrite.")

    def finished(self, run: str, epochs: int) -> bool:
        """Whether the same run has ended here: its model, which is written last, says so."""
        from graphcaps.inference.fitted_model import load

        if not (self.model.is_file() and self.config.is_file()):
            return False
        try:
            known = load(self.model).training
        except DataError:
            return False
        return (known.get("run"), known.get("epochs")) == (run, epochs)

    def clear(self) -> None:
        """Removes the checkpoint, and what a killed process left half written."""
        self.checkpoint.unlink(missing_ok=True)
        for path in (self.model, self.history, self.config, self.checkpoint):
            for left in path.parent.glob(f".{_escape(path.name[:64])}.*.part"):
                left.unlink(missing_ok=True)


def _escape(name: str) -> str:
    """A name for which a pattern stands for itself."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def history_table(history: tuple[EpochEnd, ...]) -> list[dict[str, Any]]:
    """One row of plain numbers per epoch of a single training; ``None`` where nothing was measured."""
    rows = []
    for event in history:
        row = {
            name: value for name, value in asdict(event).items() if name not in ("epochs", "test_accuracy")
        }
        rows.append({name: _plain(value) for name, value in row.items()})
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        value = value[0] if value else None
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    """A JSON file that appears whole or not at all."""
    write_atomically(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_training(
    files: TrainingFiles, training: FinalTraining, result: FinalResult, loaded: LoadedDataset
) -> None:
    """All files of an ended training; the model last, which says that the others are there."""
    from graphcaps._io.provenance import versions_and_commit

    write_json(files.history, history_table(result.history))
    beside = {
        "config": result.model.config.as_dict(),
        "data": {
            "source": None if loaded.source is None else str(loaded.source),
            "digest": training.data_digest,
        },
        "training": result.training,
        "versions": result.model.versions | versions_and_commit(),
    }
    write_json(files.config, beside)
    result.model.save(files.model)
    files.clear()
