"""Concatenation of stores with the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["concat_stores"]


def concat_stores(stores: Sequence[GraphStore]) -> GraphStore:
    """Concatenates stores with the same columns and class names.

    Ground truth and SMILES that not all stores have are dropped, and so is what was precomputed from the
    graphs of one store.

    Raises:
        ArgumentError: If columns or their names, class names or featurizers differ.
    """
    first = stores[0]
    if len(stores) == 1:
        return first

    def offsets(name: str, last: str) -> Tensor:
        parts, start = [first.node_ptr.new_zeros(1)], 0
        for store in stores:
            parts.append(getattr(store, name)[1:] + start)
            start += store.num_nodes if last == "nodes" else store.neighbours.numel()
        return torch.cat(parts)

    columns: dict[str, Any] = {}
    for name in (
        *("y", "node_labels", "node_attributes"),
        *("edge_labels", "edge_attributes", "edge_weight", "edge_kind"),
    ):
        # A store without nodes (edges) may leave out the columns of nodes (edges).
        with_rows = [store for store in stores if _num_rows(store, name)] or stores
        tensors = [getattr(store, name) for store in with_rows]
        if any((tensor is None) != (tensors[0] is None) for tensor in tensors):
            expected = f"hold stores that all have '{name}', or none"
            raise ArgumentError("concat_stores", "stores", expected, "stores with and without")
        if tensors[0] is not None and len({tensor.shape[1:] for tensor in tensors}) > 1:
            expected = f"hold stores with equally many columns of '{name}'"
            raise ArgumentError("concat_stores", "stores", expected, "different numbers")
        columns[name] = None if tensors[0] is None else torch.cat(tensors)
    source_columns = {}
    for name in ("node_labels", "node_attributes", "edge_labels", "edge_attributes"):
        found = list(dict.fromkeys(filter(None, (store.column_names(name) for store in stores))))
        if len(found) > 1:
            expected = f"hold stores with the same names of '{name}', in one order"
            raise ArgumentError("concat_stores", "stores", expected, " and ".join(map(", ".join, found)))
        if found:
            source_columns[name] = found[0]
    if any(store.class_names != first.class_names for store in stores):
        raise ArgumentError(
            "concat_stores", "stores", "hold stores with the same class names", "different ones"
        )
    featurizers = list(dict.fromkeys(str(store.featurizer) for store in stores))
    if len(featurizers) > 1:
        expected = "hold molecules that were read with the same featurizer"
        raise ArgumentError("concat_stores", "stores", expected, " and ".join(featurizers))
    same_source = all(store.catalogue_name == first.catalogue_name for store in stores)
    with_nodes = [store for store in stores if store.num_nodes] or stores
    shared = set.intersection(*(set(store.truth) for store in with_nodes))
    return replace(
        first,
        catalogue_name=first.catalogue_name if same_source else None,
        node_ptr=offsets("node_ptr", "nodes"),
        edge_ptr=offsets("edge_ptr", "entries"),
        neighbours=torch.cat([store.neighbours for store in stores]),
        label_names={code: text for store in stores for code, text in store.label_names.items()},
        truth={key: torch.cat([store.truth[key] for store in with_nodes]) for key in sorted(shared)},
        smiles=_concat_smiles(stores),
        fragments=first.fragments if len({store.fragments for store in stores}) == 1 else None,
        source_columns=source_columns,
        structure=None,
        **columns,
    )


def _concat_smiles(stores: Sequence[GraphStore]) -> tuple[str, ...] | None:
    """SMILES of all graphs, or ``None`` unless every store has them."""
    smiles: list[str] = []
    for store in stores:
        if store.smiles is None:
            return None
        smiles += store.smiles
    return tuple(smiles)


def _num_rows(store: GraphStore, column: str) -> int:
    """Number of rows of a column."""
    if column == "y":
        return len(store)
    return store.num_nodes if column.startswith("node") else store.neighbours.numel()
