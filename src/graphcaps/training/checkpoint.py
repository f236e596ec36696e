"""Where a training stood, in one file: tensors and plain values, no code, and never half of it.

A checkpoint is a safetensors file. It is written to a temporary name, brought to the disk and renamed, so a
process killed at any moment leaves the old one or the new one. It carries a checksum of all it holds and the
fingerprint of its run (:mod:`graphcaps.training.fingerprint`): a damaged, foreign or other run's file is
refused in a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps._io.provenance import library_versions
from graphcaps.errors import DataError
from graphcaps.training.fingerprint import describe_differences
from graphcaps.training.multiprocess import ProcessPoolTrainer
from graphcaps.training.trainer import EpochEnd, Trainer, strip_prefix

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint", "take_checkpoint", "write_checkpoint"]

FORMAT = 1
_KIND = "graphcaps checkpoint"
_ANEW = "Start again without resuming."
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

    @property
    def weights(self) -> dict[str, Tensor]:
        """What the model held between the two epochs."""
        return strip_prefix("model.", self.state)


def take_checkpoint(
    trainer: Trainer | ProcessPoolTrainer,
    history: Sequence[EpochEnd],
    extra: Mapping[str, Tensor] | None = None,
) -> Checkpoint:
    """A copy of where ``trainer`` stands, in memory: later epochs do not change it. Call between epochs."""
    state = {name: value.detach().clone() for name, value in trainer.state().items()}
    return Checkpoint(state, tuple(history), dict(extra or {}))


def save_checkpoint(
    path: str | Path,
    trainer: Trainer | ProcessPoolTrainer,
    history: Sequence[EpochEnd],
    fingerprint: Mapping[str, Any],
    extra: Mapping[str, Tensor] | None = None,
) -> None:
    """Writes where ``trainer`` stands, for any number of replicas. Call between epochs.

    Args:
        path (str or Path): Where to write; what stands there is replaced at once or not at all.
        trainer (Trainer or ProcessPoolTrainer): What is trained.
        history (list): Its events so far.
        fingerprint (dict): Of :func:`graphcaps.training.fingerprint.run_fingerprint`.
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
    content = {
        "epochs": history[-1].epochs if history else 0,
        "device": next(iter(checkpoint.state.values())).device.type,
        "threads": torch.get_num_threads(),
        "versions": _versions(),
        "fingerprint": dict(fingerprint),
    }
    write_atomically(path, encode_checked(_KIND, FORMAT, content, tensors))


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
        read = read_checked(path, _KIND, FORMAT)
    except DataError as error:
        raise DataError(path, error.expected, error.found, fix=_ANEW) from error
    content = read.content
    told = describe_differences(content.get("fingerprint") or {}, fingerprint)
    if told:
        more = f" and {len(told) - 3} more" if len(told) > 3 else ""
        raise DataError(
            path,
            "a checkpoint of this run",
            f"one of another run: {', '.join(told[:3])}{more}",
            fix="Go on with the values it was made with, or start again without resuming.",
        )
    parts: dict[str, dict[str, Tensor]] = {"state": {}, "extra": {}, "history": {}}
    for name, value in read.tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = value
    history = _events(parts["history"], content["epochs"])
    return Checkpoint(parts["state"], history, parts["extra"], _notes(content, torch.device(device).type))


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


def _notes(content: Mapping[str, Any], device: str) -> tuple[str, ...]:
    """Differences that are allowed, but may change the last bits of the weights."""
    found = content.get("versions") or {}
    then = {"device": content.get("device")} | {name: found.get(name) for name in _versions()}
    now = {"device": device} | _versions()
    if device == "cpu" and "threads" in content:  # the replicas were shared among as many
        then["threads"], now["threads"] = str(content["threads"]), str(torch.get_num_threads())
    return tuple(
        f"The checkpoint was written with {name} {then[name]}, and this is {now[name]}: "
        "the last bits of the weights may differ from an unbroken run's."
        for name in now
        if then[name] != now[name]
    )


def _versions() -> dict[str, str]:
    """Versions that the last bits depend on."""
    return {name: library_versions()[name] for name in ("graphcaps", "torch")}
