"""What ``HGCNClassifier.fit`` says of its graphs, one sentence each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphcaps.data.quality.graph_hashes import graph_hashes
from graphcaps.data.readers.row_rules import describe_fragments, find_repeated
from graphcaps.data.store import GraphStore
from graphcaps.training.data_notes import describe_reading
from graphcaps.training.final_training import FinalTraining

__all__ = ["fit_notes", "training_notes"]


def fit_notes(store: GraphStore, *, is_read: bool, has_y: bool) -> list[str]:
    """Sentences on what a training should know of its rows, as the command line prints them.

    What was not read is said where the graphs are converted (:func:`graphcaps.data.coerce`).

    Args:
        store (GraphStore): The graphs with their classes.
        is_read (bool): Whether ``fit`` read them itself; the function that made a store has said the rest.
        has_y (bool): Whether the classes were passed beside the graphs, so that no reader could compare them.
    """
    notes: list[str] = []
    if store.smiles is None or store.y is None:
        return notes
    if is_read and store.fragments != "largest":
        count = sum("." in smiles for smiles in store.smiles)
        option = "coerce(X, fragments='largest')"
        notes.append(describe_fragments(count, len(store), "all", option))
    repeated = find_repeated(store.smiles, store.y.tolist())
    if repeated.contradicting and (is_read or has_y):  # copies with one class change no result in silence
        notes.append(repeated.describe("keep", has_options=False))
    return notes


def training_notes(training: FinalTraining, *, has_own_validation: bool, ignores_edges: bool) -> list[str]:
    """Sentences on what a training does not read of its graphs, and on validation graphs that it trains on.

    Args:
        training (FinalTraining): The training, before its first epoch.
        has_own_validation (bool): Whether the user passed the validation graphs.
        ignores_edges (bool): Whether the user chose to leave edge labels out, so that it need not be said.
    """
    store = training.source
    reading = describe_reading(
        replace(store, edge_labels=None) if ignores_edges else store,
        training.config,
        keep_nodes="max_nodes=0 keeps all",
        use_labels="edge_labels='messages' uses them (docs/inputs.md)",
    )
    notes = [sentence.removeprefix(f"{store.name}: ") for sentence in reading]
    if has_own_validation:
        notes.append(_describe_overlap(training))
    return notes


def _describe_overlap(training: FinalTraining) -> str:
    """A sentence on validation graphs that equal a training graph as the model reads them; "" if there are none."""
    hashes = graph_hashes(training.source, training.recipe)
    train, validation = (
        hashes[part.cpu().numpy()] for part in (training.holdout.train, training.holdout.validation)
    )
    count = int(np.isin(validation, train).sum())
    if not count:
        return ""
    verb = "is a training graph" if count == 1 else "are training graphs"
    return (
        f"{count:,} of {len(validation):,} validation graphs {verb}; the epoch and the calibration are selected on "
        "graphs that the model has learned, and validation metrics say less about new graphs."
    )
