"""The fingerprint of a run: all values that determine its weights, for the check of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from graphcaps._io.tensor_digest import digest_tensors
from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.training.replicas import Replica

__all__ = ["NUMERICS_VERSION", "data_digest", "describe_differences", "run_fingerprint", "weights_digest"]

NUMERICS_VERSION = 4
"""Version of the arithmetic. Increase it when the same configuration, data and seed give other weights."""

# Digests are reported in words.
_DIGESTS = {
    "data": "other graphs",
    "split": "other training or validation graphs",
    "sample_weight": "other weights of graphs",
}


def run_fingerprint(
    config: RunConfig, data: str, replicas: Sequence[Replica], **options: Any
) -> dict[str, Any]:
    """The values that must agree between a checkpoint and the run that resumes from it.

    The number of epochs is not among them: the learning rate depends on the epoch only, so a longer run continues a
    shorter one.

    Args:
        config (RunConfig): Model, features and training.
        data (str): :func:`data_digest` of the graphs.
        replicas (list): Replicas, with their splits and seeds.
        options: Further values, such as the patience; those that are ``None`` are left out.
    """
    values = config.as_dict()
    flat = {f"model.{name}": value for name, value in values["model"].items()}
    flat |= {f"features.{name}": value for name, value in values["features"].items()}
    flat |= {f"training.{name}": value for name, value in values["training"].items() if name != "epochs"}
    parts = [part for replica in replicas for part in (replica.train, replica.validation, replica.test)]
    flat |= {
        "seed": sorted({replica.seed for replica in replicas}),
        "folds": [replica.fold for replica in replicas],
        "split": digest_tensors(parts),
        "data": data,
        "numerics": NUMERICS_VERSION,
    }
    variants = [replica.variant for replica in replicas]
    flat |= {"variants": variants} if any(variants) else {}
    return flat | {name: value for name, value in options.items() if value is not None}


def data_digest(store: GraphStore) -> str:
    """SHA-256 of graphs, classes, and labels and attributes of nodes and edges. The name of the store is left out."""
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
    return digest_tensors([*columns], "\n".join(store.class_names))


def weights_digest(weights: Tensor) -> str:
    """SHA-256 of the weights of graphs."""
    return digest_tensors([weights])


def describe_differences(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """The entries of two fingerprints that differ, in words, in the order of ``expected``."""
    lines = []
    for name in [*expected, *(name for name in actual if name not in expected)]:
        if actual.get(name) == expected.get(name):
            continue
        if name in _DIGESTS:
            lines.append(_DIGESTS[name])
        else:
            lines.append(f"{name} {_short(actual.get(name))} (here {_short(expected.get(name))})")
    return lines


def _short(value: Any) -> str:
    """A value in at most 60 characters; a list of one element is shown as that element."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
