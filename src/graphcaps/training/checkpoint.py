"""Checkpoints: the state of a training in one safetensors file, without code.

A checkpoint is written to a temporary file, flushed to the disk and renamed, so a process that is killed at any moment
leaves the old file or the new one. The file holds a checksum and the fingerprint of its run
(:mod:`graphcaps.training.fingerprint`). A damaged file, or one of another run, is rejected.
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
from graphcaps.training.replica_trainer import METRICS, EpochEnd, strip_prefix

__all__ = ["Checkpoint", "check_state", "load_checkpoint", "write_checkpoint"]

FORMAT = 3
_KIND = "graphcaps checkpoint"
_TERM = "term."  # prefix of the terms of the training loss
_START_AGAIN = "Start again without resuming."


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training between two epochs.

    Args:
        state (dict): Result of :meth:`Trainer.state`: weights, kept weights, moments, step counts, dropout streams.
        history (tuple): An :class:`EpochEnd` per epoch so far.
        extra (dict): Further tensors, such as the epochs of the kept weights.
        notes (tuple): Remarks on the resumed training, one sentence each.
    """

    state: dict[str, Tensor]
    history: tuple[EpochEnd, ...]
    extra: dict[str, Tensor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return int(self.state["epoch"])


def write_checkpoint(path: str | Path, checkpoint: Checkpoint, fingerprint: Mapping[str, Any]) -> None:
    """Writes a checkpoint; an existing file is replaced atomically.

    Args:
        path (str or Path): File to write.
        checkpoint (Checkpoint): State of a training, such as :meth:`graphcaps.training.loop.TrainingLoop.checkpoint`.
        fingerprint (dict): Result of :func:`graphcaps.training.fingerprint.run_fingerprint`.
    """
    history = checkpoint.history
    tensors = {f"state.{name}": value for name, value in checkpoint.state.items()}
    tensors |= {f"extra.{name}": value for name, value in checkpoint.extra.items()}
    tensors |= {f"history.{name}": _column(history, name) for name in METRICS}
    for name in history[-1].loss_terms if history else ():
        tensors[f"history.{_TERM}{name}"] = torch.tensor(
            [event.loss_terms[name] for event in history], dtype=torch.float64
        )
    tensors["history.seconds"] = torch.tensor([event.seconds for event in history], dtype=torch.float64)
    # Copies: the format does not allow two tensors to share memory.
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
    path: str | Path,
    fingerprint: Mapping[str, Any],
    device: str | torch.device = "cpu",
    max_epochs: int | None = None,
) -> Checkpoint:
    """Reads a checkpoint of the run with that fingerprint.

    Args:
        path (str or Path): File that :func:`write_checkpoint` wrote.
        fingerprint (dict): Fingerprint of the run that is resumed.
        device (str): Device of the resumed run; a change of device is allowed and noted. (default: "cpu")
        max_epochs (int, optional): Epochs of the resumed run, where weights of later epochs are of no use to it.

    Raises:
        DataError: If the file is missing, damaged, no checkpoint, of another run, or has too many epochs.
    """
    path = Path(path)
    try:
        read = read_checked(path, _KIND, FORMAT)
    except DataError as error:
        raise DataError(path, error.expected, error.found, fix=_START_AGAIN) from error
    content = read.content
    _check_header(path, content)
    differences = describe_differences(content["fingerprint"], fingerprint)
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise DataError(
            path,
            "a checkpoint of this run",
            f"one of another run: {', '.join(differences[:3])}{more}",
            fix="Use the values of that run, or start again without resuming.",
        )
    parts: dict[str, dict[str, Tensor]] = {"state": {}, "extra": {}, "history": {}}
    for name, value in read.tensors.items():
        part, _, rest = name.partition(".")
        if part not in parts:
            expected = f"tensors whose names begin with {', '.join(parts)}"
            raise DataError(path, expected, f"'{name[:60]}'", fix=_START_AGAIN)
        parts[part][rest] = value
    _check_tensors(path, parts["state"], parts["history"])
    history = _events(parts["history"], content["epochs"])
    if max_epochs is not None and len(history) > max_epochs:
        raise DataError(
            path,
            f"a checkpoint of at most {max_epochs} epochs",
            f"one of {len(history)}",
            fix="Increase the number of epochs, or start again without resuming.",
        )
    return Checkpoint(parts["state"], history, parts["extra"], _notes(content, torch.device(device).type))


def check_state(path: str | Path, state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Checks that a checkpoint has the tensors of a trainer, before they are copied into it.

    Kept and averaged weights are left out: a trainer has them from some epoch on.

    Args:
        path (str or Path): The checkpoint file, for the message.
        state (mapping): Tensors of the checkpoint.
        expected (mapping): Tensors of the trainer.

    Raises:
        DataError: If a tensor is missing, unknown, or of another shape.
    """
    for name in dict.fromkeys((*expected, *state)):
        if name.startswith(("kept.", "last.")):
            continue
        if name not in expected:
            raise DataError(path, "tensors of this training", f"also '{name}'", fix=_START_AGAIN)
        shape = list(expected[name].shape)
        if name not in state or list(state[name].shape) != shape:
            found = f"the shape {list(state[name].shape)}" if name in state else "none"
            raise DataError(path, f"a tensor of shape {shape} under 'state.{name}'", found, fix=_START_AGAIN)


def _check_header(path: Path, content: Mapping[str, Any]) -> None:
    """Checks the entries that are used below; one with a valid checksum can still be made by hand."""
    for name in ("fingerprint", "versions"):
        if not isinstance(content.get(name), dict):
            raise DataError(path, f"an object under '{name}'", repr(content.get(name))[:60], fix=_START_AGAIN)
    epochs = content.get("epochs")
    if type(epochs) is not int or epochs < 0:
        raise DataError(path, "a number under 'epochs'", repr(epochs)[:60], fix=_START_AGAIN)


def _check_tensors(path: Path, state: Mapping[str, Tensor], history: Mapping[str, Tensor]) -> None:
    """Checks the number of completed epochs, and that each column of the history has a row for each of them."""
    epoch = state.get("epoch")
    if epoch is None or epoch.numel() != 1 or epoch.dtype != torch.int64:
        raise DataError(path, "the number of completed epochs under 'state.epoch'", "none", fix=_START_AGAIN)
    seconds = history.get("seconds")
    if seconds is None or seconds.dim() != 1:
        raise DataError(path, "one number per epoch under 'history.seconds'", "none", fix=_START_AGAIN)
    columns = {name: history.get(name) for name in METRICS} | strip_prefix(_TERM, dict(history))
    for name, column in columns.items():
        if column is None or column.dim() != 2 or len(column) != len(seconds):
            found = "none" if column is None else f"the shape {list(column.shape)}"
            expected = f"{len(seconds)} rows under 'history.{name[:60]}'"
            raise DataError(path, expected, found, fix=_START_AGAIN)


def _column(history: Sequence[EpochEnd], name: str) -> Tensor:
    """One metric of all epochs, ``[epochs, F]``; without columns if it is not measured."""
    if not history:
        return torch.empty(0, 0, dtype=torch.float64)
    return torch.tensor([getattr(event, name) for event in history], dtype=torch.float64)


def _events(columns: Mapping[str, Tensor], epochs: int) -> tuple[EpochEnd, ...]:
    seconds = columns["seconds"].tolist()
    metrics = {name: columns[name].tolist() for name in METRICS}
    terms = {name: column.tolist() for name, column in strip_prefix(_TERM, dict(columns)).items()}
    return tuple(
        EpochEnd(
            *(i + 1, epochs, seconds[i]),
            **{name: metrics[name][i] for name in METRICS},
            loss_terms={name: column[i] for name, column in terms.items()},
        )
        for i in range(len(seconds))
    )


def _notes(content: Mapping[str, Any], device: str) -> tuple[str, ...]:
    """Notes on differences that are allowed, but may change the last bits of the weights."""
    versions = content["versions"]
    then = {"device": content.get("device")} | {name: versions.get(name) for name in _versions()}
    now = {"device": device} | _versions()
    if device == "cpu" and "threads" in content:  # the replicas are divided among as many processes
        then["threads"], now["threads"] = str(content["threads"]), str(torch.get_num_threads())
    return tuple(
        f"The checkpoint was written with {name} {then[name]}, and this is {now[name]}: "
        "the last bits of the weights may differ from those of an uninterrupted run."
        for name in now
        if then[name] != now[name]
    )


def _versions() -> dict[str, str]:
    """Versions of the libraries that the last bits depend on."""
    return {name: library_versions()[name] for name in ("graphcaps", "torch")}
