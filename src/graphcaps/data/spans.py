"""A store in pieces of bounded size, for what is computed of many graphs at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from graphcaps.data.store import GraphStore

__all__ = ["spans"]


def spans(store: GraphStore, nodes: int, entries: int) -> Iterator[tuple[int, int]]:
    """Consecutive graphs together, up to so many nodes and edge entries but at least one: first graph and end."""
    node, entry = store.host_node_ptr, store.host_entry_ptr
    first = 0
    while first < len(store):
        by_nodes = int(torch.searchsorted(node, node[first] + nodes, right=True)) - 1
        by_entries = int(torch.searchsorted(entry, entry[first] + entries, right=True)) - 1
        end = max(min(by_nodes, by_entries), first + 1)
        yield first, end
        first = end
