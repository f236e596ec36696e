"""Cross-validation of classical models: fits the replicas of a group one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.evaluation.replica_groups import GroupResult, ReplicaGroup
from graphcaps.models.lookup import find_classical_model
from graphcaps.training.classical_fit import fit_replica, selecting_graphs
from graphcaps.training.replica_trainer import EpochEnd

__all__ = ["fit_group"]


def fit_group(
    group: ReplicaGroup, store: GraphStore, config: RunConfig, on_epoch: Callable[[EpochEnd], object]
) -> GroupResult:
    """Fits a model to the training graphs of each replica and measures it on all its graphs.

    Args:
        group (ReplicaGroup): Folds and seeds.
        store (GraphStore): All graphs, with labels.
        config (RunConfig): Names the model and its arguments, resolved.
        on_epoch (callable): Called with the metrics of all replicas, as those of the only epoch.
    """
    fits = [fit_replica(store, config, replica) for replica in group.replicas]
    event = EpochEnd.join([fit.event for fit in fits])
    on_epoch(event)
    selected = find_classical_model(config.model).selected_options
    has_validation = any(replica.validation.numel() for replica in group.replicas)
    choice = (
        f"{_join(selected)} are selected on {selecting_graphs(has_validation)}"
        if selected
        else "a validation fold is not used"
    )
    note = (
        f"Fitted once per fold, to its training graphs: {config.model}. There are no epochs, {choice}, and settings of "
        "features and training do not apply."
    )
    predicted = [fit.probabilities for fit in fits] if group.protocol == "held-out" else None
    return GroupResult([event], np.ones(len(fits), dtype=np.int64), (note,), probabilities=predicted)


def _join(names: Sequence[str]) -> str:
    """As in "iterations, dimension and C"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
