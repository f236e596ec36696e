"""What ``HGCNClassifier.fit`` says of its graphs, one sentence each."""

from __future__ import annotations

from graphcaps.data.coercion import GraphInput
from graphcaps.data.readers.row_rules import describe_fragments, find_repeated
from graphcaps.data.store import GraphStore

__all__ = ["fit_notes"]


def fit_notes(graphs: GraphInput, store: GraphStore, *, is_read: bool, has_y: bool) -> list[str]:
    """Sentences on what a training should know of its rows, as the command line prints them.

    Args:
        graphs (GraphInput): The graphs as they were converted.
        store (GraphStore): The same graphs with their classes.
        is_read (bool): Whether ``fit`` read them itself; the function that made a store has said the rest.
        has_y (bool): Whether the classes were passed beside the graphs, so that no reader could compare them.
    """
    notes: list[str] = []
    if is_read and graphs.metadata is not None:
        notes += [*graphs.metadata.notes, *graphs.metadata.skipped_notes]
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
