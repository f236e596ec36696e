"""Names of the kinds of nodes in graphs whose ground truth is known."""

from __future__ import annotations

from graphcaps.data.datasets.ba_motifs import MULTISHAPES_KINDS, TWO_MOTIFS_KINDS
from graphcaps.data.datasets.molecule_tasks import MOLECULE_KINDS, MOLECULE_TASKS
from graphcaps.data.datasets.motifs import MOTIF_KINDS
from graphcaps.data.store import GraphStore

__all__ = ["kind_names"]

_BY_NAME: dict[str, tuple[str, ...]] = {
    "ba-2motifs": TWO_MOTIFS_KINDS,
    "ba-multishapes": MULTISHAPES_KINDS,
    **dict.fromkeys(MOLECULE_TASKS, MOLECULE_KINDS),
}


def kind_names(store: GraphStore) -> tuple[str, ...]:
    """Names in the order of ``store.truth["kind"]``, by the name of the store; kind 0 belongs to no part.

    Stores of other names have the kinds of ``planted-parts``, or numbers if there are more.
    """
    count = 1 + int(store.truth["kind"].max()) if store.num_nodes else 1
    names = _BY_NAME.get(store.name, MOTIF_KINDS)
    return names if count <= len(names) else tuple(f"kind {number}" for number in range(count))
