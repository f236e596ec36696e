"""Where a training stood, in one file: tensors and plain values, no code, and never half of it.

A checkpoint is a safetensors file. It is written to a temporary name, brought to the disk and renamed, so a
process killed at any moment leaves the old one or the new one. It carries a checksum of all it holds and the
fingerprint of its run (:mod:`graphcaps.engine.fingerprint`): a damaged, foreign or other run's file is
refused in a sentence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as decode
from safetensors.torch import save as encode
from torch import Tensor

from graphcaps.engine.fingerprint import differences
from graphcaps.engine.fit import EpochEnd, Trainer
from graphcaps.errors import DataError
from graphcaps.files import write_atomically

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint", "take_checkpoint", "write_checkpoint"]

FORMAT = 1
_KIND = "graphcaps checkpoint"
_FIGURES = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_accuracy")


@dataclass(frozen=True)
class Checkpoint:
    """A training between two epochs.

    Args:
        state (dict): Of :meth:`Trainer.state`: weights, moments, counts, dropout streams.
        history (tuple): An :class:`EpochEnd` per epoch so far.
        extra (dict): More tensors that the caller needs, such as the best weights so far.
        notes (tuple): What a reader of the result should know, one sentence each.
    """

    state: dict[str, Tensor]
    history: tuple[EpochEnd, ...]
    extra: dict[str, Tensor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return int(self.state["epoch"])


def take_checkpoint(
    trainer: Trainer, history: Sequence[EpochEnd], extra: Mapping[str, Tensor] | None = None
) -> Checkpoint:
    """A copy of where ``trainer`` stands, in memory: later epochs do not change it. Call between epochs."""
    state = {name: value.detach().clone() for name, value in trainer.state().items()}
    return Checkpoint(state, tuple(history), dict(extra or {}))


def save_checkpoint(
    path: str | Path,
    trainer: Trainer,
    history: Sequence[EpochEnd],
    fingerprint: Mapping[str, Any],
    extra: Mapping[str, Tensor] | None = None,
) -> None:
    """Writes where ``trainer`` stands, for any number of replicas. Call between epochs.

    Args:
        path (str or Path): Where to write; what stands there is replaced at once or not at all.
        trainer (Trainer): What is trained.
        history (list): Its events so far.
        fingerprint (dict): Of :func:`graphcaps.engine.fingerprint.run_fingerprint`.
        extra (dict, optional): More tensors to keep.
    """
    write_checkpoint(path, Checkpoint(trainer.state(), tuple(history), dict(extra or {})), fingerprint)


def write_checkpoint(path: str | Path, checkpoint: Checkpoint, fingerprint: Mapping[str, Any]) -> None:
    """:func:`save_checkpoint` of a copy that was taken before."""
    history = checkpoint.history
    tensors = {f"state.{name}": value for name, value in checkpoint.state.items()}
    tensors |= {f"extra.{name}": value for name, value in checkpoint.extra.items()}
    tensors |= {f"history.{name}": _column(history, name) for name in _FIGURES}
    tensors["history.seconds"] = torch.tensor([event.seconds for event in history], dtype=torch.float64)
    # A copy each: the format does not allow two names for one memory.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    header = {
        "epoch": checkpoint.epoch,
        "epochs": history[-1].epochs if history else 0,
        "device": str(next(iter(checkpoint.state.values())).device.type),
        "torch": torch.__version__,
        "fingerprint": dict(fingerprint),
    }
    text = json.dumps(header, sort_keys=True)
    metadata = {"kind": _KIND, "format": str(FORMAT), "header": text, "sha256": _checksum(text, tensors)}
    write_atomically(path, encode(tensors, metadata))


def load_checkpoint(
    path: str | Path, fingerprint: Mapping[str, Any], device: str | torch.device = "cpu"
) -> Checkpoint:
    """Reads a checkpoint of the run with that fingerprint.

    Args:
        path (str or Path): What :func:`save_checkpoint` wrote.
        fingerprint (dict): Of the run that wants to go on.
        device (str): Where it will go on; another kind than before is allowed and noted. (default: "cpu")

    Raises:
        DataError: If there is none, it is damaged, is something else, or belongs to another run.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(path, "a checkpoint that can be read", f"'{error.strerror or error}'") from error
    header, tensors = _open(path, data)
    told = differences(header["fingerprint"], fingerprint)
    if told:
        more = f" and {len(told) - 3} more" if len(told) > 3 else ""
        raise DataError(
            path,
            "a checkpoint of this run",
            f"one of another run: {', '.join(told[:3])}{more}",
            fix="Go on with the values it was made with, or start again without resuming.",
        )
    parts: dict[str, dict[str, Tensor]] = {"state": {}, "extra": {}, "history": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = value
    history = _events(parts["history"], header["epochs"])
    return Checkpoint(parts["state"], history, parts["extra"], _notes(header, torch.device(device).type))


def _open(path: Path, data: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file that is a whole checkpoint of a known format."""
    metadata = _metadata(data)
    if metadata.get("kind") != _KIND:
        raise DataError(path, "a checkpoint written by graphcaps", "something else, or the start of one")
    if metadata.get("format") != str(FORMAT):
        raise DataError(
            path,
            f"a checkpoint of format {FORMAT}",
            f"format {str(metadata.get('format'))[:20]}",
            fix="It was written by another version of graphcaps.",
        )
    damaged = DataError(path, "the checkpoint as it was written", "a damaged one", fix="Start again without resuming.")  # fmt: skip
    try:
        tensors = decode(data)
        text = metadata["header"]
        if metadata["sha256"] != _checksum(text, tensors):
            raise damaged
        header: dict[str, Any] = json.loads(text)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise damaged from error
    return header, tensors


def _metadata(data: bytes) -> dict[str, Any]:
    """The names and texts in front of the tensors, empty where there are none to be read."""
    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= len(data) - 8:
        return {}
    try:
        found = json.loads(data[8 : 8 + size]).get("__metadata__")
    except (ValueError, AttributeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode("utf-8"))
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name}{value.dtype}{list(value.shape)};".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _column(history: Sequence[EpochEnd], name: str) -> Tensor:
    """One figure of all epochs, ``[epochs, F]``, with no columns where it is not measured."""
    if not history:
        return torch.empty(0, 0, dtype=torch.float64)
    return torch.tensor([getattr(event, name) for event in history], dtype=torch.float64)


def _events(columns: Mapping[str, Tensor], epochs: int) -> tuple[EpochEnd, ...]:
    seconds = columns["seconds"].tolist()
    figures = {name: columns[name].tolist() for name in _FIGURES}
    return tuple(
        EpochEnd(i + 1, epochs, seconds[i], **{name: figures[name][i] for name in _FIGURES})
        for i in range(len(seconds))
    )


def _notes(header: Mapping[str, Any], device: str) -> tuple[str, ...]:
    """Differences that are allowed, but may change the last bits of the weights."""
    notes = []
    if header.get("torch") != torch.__version__:
        notes.append(
            f"The checkpoint was written with torch {header.get('torch')}, and this is {torch.__version__}: "
            "the last bits of the weights may differ from an unbroken run's."
        )
    if header.get("device") != device:
        notes.append(
            f"The checkpoint was written on a {header.get('device')} device, and this is {device}: "
            "the last bits of the weights may differ from an unbroken run's."
        )
    return tuple(notes)
