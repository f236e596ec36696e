"""Graphs of a request, one by one: each is a store of one graph, or the reason why it is none."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from graphcaps.data.convert_networkx import from_networkx
from graphcaps.data.features import FeatureRecipe
from graphcaps.data.label_codes import label_code
from graphcaps.data.misfits import check_columns
from graphcaps.data.store import GraphStore
from graphcaps.errors import GraphcapsError, MissingExtraError
from graphcaps.serve.limits import Limits, Refused

__all__ = ["Item", "check_counts", "items_of_networks", "items_of_smiles", "items_of_store"]

_LONGEST_REASON = 240


@dataclass(frozen=True, eq=False)
class Item:
    """One graph of a request.

    Args:
        name (str): What its source calls it: a file, a line, a SMILES, or its number.
        store (GraphStore, optional): The graph with the columns that the model reads; ``None`` with an ``error``.
        error (str): Why it is not one.
        smiles (bool): Whether its labels are elements.
        texts (dict): Text that a number among its node labels stands for.
    """

    name: str
    store: GraphStore | None = None
    error: str = ""
    smiles: bool = False
    texts: dict[int, str] = field(default_factory=dict)


def check_counts(count: int, limits: Limits, where: str = "request") -> None:
    """Refuses more graphs than a request may have, before they are read."""
    if count > limits.max_graphs:
        raise Refused(413, f"{where}: expected at most {limits.max_graphs:,} graphs, found {count:,}.")
    if not count:
        raise Refused(422, f"{where}: expected at least one graph, found none.")


def items_of_networks(graphs: Sequence[tuple[str, Any]], recipe: FeatureRecipe, limits: Limits) -> list[Item]:
    """From networkx graphs, each with its name; or from a function that makes one, or raises."""
    check_counts(len(graphs), limits)
    return [_network(name, graph, recipe, limits) for name, graph in graphs]


def items_of_smiles(
    texts: Sequence[Any], names: Sequence[str], recipe: FeatureRecipe, limits: Limits
) -> list[Item]:
    """From SMILES; node labels are elements, with charge, aromaticity and hydrogens where the model knows them."""
    from graphcaps.data.molecules import ATOM_COLUMNS, read_smiles

    check_counts(len(texts), limits)
    full = len(recipe.label_values or ()) == len(ATOM_COLUMNS["full"])
    # The last is a molecule for certain: where no other is one, there is still a store.
    read = read_smiles(
        [*(text if isinstance(text, str) else "" for text in texts), "C"],
        atoms="full" if full else "elements",
        bad="skip",
    )
    place = {number: row for row, number in enumerate(read.kept)}
    reasons = {row.line - 1: row.reason for row in read.skipped}
    items = []
    for number, (text, name) in enumerate(zip(texts, names, strict=True)):
        if number in place:
            items.append(_sound(Item(name, read.store[place[number]], smiles=True), recipe, limits))
        else:
            found = repr(text)[:60] if not isinstance(text, str) else reasons[number]
            items.append(Item(name, error=_short(f"it is no molecule in SMILES: {found}")))
    return items


def items_of_store(
    store: GraphStore, names: Sequence[str], texts: dict[int, str], recipe: FeatureRecipe, limits: Limits
) -> list[Item]:
    """From graphs that were read together."""
    check_counts(len(store), limits)
    return [_sound(Item(name, store[graph], texts=texts), recipe, limits) for graph, name in enumerate(names)]


def _network(name: str, source: Any, recipe: FeatureRecipe, limits: Limits) -> Item:
    try:
        graph = source() if callable(source) else source
        if graph.number_of_nodes() > limits.max_nodes:
            return Item(name, error=_too_many(graph.number_of_nodes(), limits))
        texts: dict[int, str] = {}
        return _sound(Item(name, _store(graph, recipe, texts), texts=texts), recipe, limits)
    except MissingExtraError:
        raise
    except GraphcapsError as error:
        return Item(name, error=_short(str(error)))
    except Exception:  # whatever a stranger's graph trips is an error of that graph; the log keeps the place
        traceback.print_exc()
        return Item(name, error="it cannot be read as a graph")


def _store(graph: Any, recipe: FeatureRecipe, texts: dict[int, str]) -> GraphStore:
    from graphcaps.data.networks import store_of_networks

    entries = [entry for _, entry in graph.nodes(data=True)]
    several = any(
        isinstance(entry.get(key), list | tuple) for entry in entries for key in ("label", "attributes")
    )
    edge_label = "label" if recipe.edge_label_values else None
    if several:  # as graphcaps.data.to_networkx writes them
        for entry in entries:
            if "label" in entry:
                labels = entry["label"] if isinstance(entry["label"], list | tuple) else [entry["label"]]
                entry["label"] = [label_code(label, texts) for label in labels]
        return from_networkx(
            [graph],
            [None],  # type: ignore[list-item]
            node_attributes="attributes" if recipe.num_attributes else None,
            edge_label=edge_label,
            codes={},
        )
    read = store_of_networks(
        [graph],
        [None],
        node_label="label" if recipe.label_values else None,
        node_attributes=None if recipe.num_attributes else (),
        edge_label=edge_label,
        edge_attributes=(),
    )
    texts.update(read.rows.label_names)
    return read.store


def _short(reason: str) -> str:
    """A reason as part of a sentence; what it quotes may be long."""
    plain = " ".join(reason.split()).rstrip(".")
    return plain if len(plain) <= _LONGEST_REASON else f"{plain[:_LONGEST_REASON]} …"


def _too_many(nodes: int, limits: Limits) -> str:
    return f"it has {nodes:,} nodes, and {limits.max_nodes:,} is the most that a graph may have"


def _sound(item: Item, recipe: FeatureRecipe, limits: Limits) -> Item:
    """The item with the columns that the model reads and no others, or with the reason why it cannot be read."""
    store = item.store
    assert store is not None
    if store.num_nodes > limits.max_nodes:
        return replace(item, store=None, error=_too_many(store.num_nodes, limits))
    try:
        check_columns(replace(store, name="this graph"), recipe, "predict")
    except GraphcapsError as error:
        return replace(item, store=None, error=_short(str(error)))
    edge_labels = None
    if recipe.edge_label_values:
        edge_labels = store.edge_labels
        if edge_labels is None:  # a graph without edges
            edge_labels = torch.empty(0, len(recipe.edge_label_values), dtype=torch.long)
    kept = replace(
        store,
        name="request",
        y=None,
        class_names=(),
        node_labels=store.node_labels if recipe.labels and recipe.label_values else None,
        node_attributes=store.node_attributes if recipe.attributes and recipe.num_attributes else None,
        edge_labels=edge_labels,
        edge_attributes=None,
        truth={},
    )
    return replace(item, store=kept)
