"""What makes two runs the same run: everything that its weights follow from, as plain values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.training.replicas import Replica

__all__ = ["NUMERICS_VERSION", "data_digest", "describe_differences", "run_fingerprint"]

NUMERICS_VERSION = 3
"""Raise this whenever the same configuration, data and seed would train to other weights."""

# What a reader learns about digests, which say nothing to people.
_DIGESTS = {"data": "other graphs", "split": "other graphs to learn from or choose by"}


def run_fingerprint(config: RunConfig, data: str, replicas: Sequence[Replica]) -> dict[str, Any]:
    """The values that must agree between a checkpoint and the run that goes on from it.

    The number of epochs is not among them: the learning rate follows from the epoch alone, so a longer run
    is the continuation of a shorter one.

    Args:
        config (RunConfig): Model, input columns and training.
        data (str): :func:`data_digest` of the graphs.
        replicas (list): Their parts and seeds.
    """
    values = config.as_dict()
    flat = {f"model.{name}": value for name, value in values["model"].items()}
    flat |= {f"features.{name}": value for name, value in values["features"].items()}
    flat |= {f"training.{name}": value for name, value in values["training"].items() if name != "epochs"}
    parts = [part for replica in replicas for part in (replica.train, replica.validation, replica.test)]
    flat |= {
        "seed": sorted({replica.seed for replica in replicas}),
        "folds": [replica.fold for replica in replicas],
        "split": _digest(parts),
        "data": data,
        "numerics": NUMERICS_VERSION,
    }
    variants = [replica.variant for replica in replicas]
    return flat | ({"variants": variants} if any(variants) else {})


def data_digest(store: GraphStore) -> str:
    """SHA-256 of the graphs, their classes and what stands on nodes and edges; the name does not count."""
    columns = (
        store.node_ptr,
        store.edge_ptr,
        store.neighbours,
        store.y,
        store.node_labels,
        store.node_attributes,
        store.edge_labels,
        store.edge_attributes,
        store.edge_weight,
    )
    return _digest([*columns], "\n".join(store.class_names))


def describe_differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What ``found`` has otherwise than ``wanted``, in words, nearest to the user's hand first."""
    told = []
    for name in [*wanted, *(name for name in found if name not in wanted)]:
        if found.get(name) == wanted.get(name):
            continue
        if name in _DIGESTS:
            told.append(_DIGESTS[name])
        else:
            told.append(f"{name} {_short(found.get(name))} (here {_short(wanted.get(name))})")
    return told


def _short(value: Any) -> str:
    """A value in a few words; a list of one is that one."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _digest(tensors: Sequence[Tensor | None], text: str = "") -> str:
    """SHA-256 over values and shapes; an integer counts the same whatever its width."""
    digest = hashlib.sha256(text.encode("utf-8"))
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none;")
            continue
        kind = "<f8" if tensor.is_floating_point() else "<i8"
        digest.update(f"{kind}{list(tensor.shape)};".encode())
        flat = tensor.detach().cpu().reshape(-1)
        for piece in torch.split(flat, 1 << 22):  # in pieces: wide copies of a large store are not kept
            digest.update(np.ascontiguousarray(piece.numpy().astype(kind)).data)
    return digest.hexdigest()
