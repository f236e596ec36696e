"""Sentences on what a training does not read of its graphs; records and model files keep them."""

from __future__ import annotations

from graphcaps.config import RunConfig
from graphcaps.data.class_names import describe_quantities, describe_spellings
from graphcaps.data.features.truncate import describe_truncation
from graphcaps.data.store import GraphStore
from graphcaps.models.builder import model_factory, precomputation_of
from graphcaps.models.lookup import find_classical_model, find_graph_model, is_classical
from graphcaps.nn.graph_model import GraphModel

__all__ = ["describe_reading"]


def describe_reading(
    store: GraphStore,
    config: RunConfig,
    *,
    keep_nodes: str = "--max-nodes 0 keeps all",
    use_labels: str = "edge_labels under [features] uses them (docs/inputs.md)",
) -> tuple[str, ...]:
    """One sentence each on nodes that are left out, on a sampled reconstruction loss, on unused columns, on classes
    that are a measured quantity or may be one class written in several ways, and on large graphs whose precomputation
    is approximate.

    Of nodes, only classical models leave columns out that a configuration does not name.

    Args:
        store (GraphStore): All graphs of the run.
        config (RunConfig): Model, features and training, resolved.
        keep_nodes, use_labels (str): What to do about left-out nodes and unused labels. (default: on the command line)
    """
    notes = (
        describe_truncation(store, config.features.max_nodes, keep_nodes),
        _describe_sampling(store, config),
        _describe_nodes(store, config),
        _describe_edge_labels(store, config, use_labels),
        _describe_classes(store),
        _describe_precomputation(store, config),
    )
    return tuple(filter(None, notes))


def _describe_sampling(store: GraphStore, config: RunConfig) -> str:
    limit = config.model_arguments.get("reconstruct_up_to")
    nodes = min(store.max_size, config.features.max_nodes or store.max_size)
    if not isinstance(limit, int) or nodes <= limit:
        return ""
    count = int((store.sizes > limit).sum())
    return (
        f"{store.name}: {count:,} of {len(store):,} graphs {'has' if count == 1 else 'have'} more than {limit:,} "
        f"nodes; {'its' if count == 1 else 'their'} reconstruction loss is estimated from sampled pairs."
    )


def _describe_classes(store: GraphStore) -> str:
    sentence = describe_quantities(store.class_names) or describe_spellings(store.class_names)
    return f"{store.name}: {sentence[0].lower()}{sentence[1:]}" if sentence else ""


def _describe_precomputation(store: GraphStore, config: RunConfig) -> str:
    if (
        is_classical(config.model)
        or find_graph_model(config.model).precomputation is GraphModel.precomputation
    ):
        return ""
    needed = precomputation_of(model_factory(config, 1, max(store.num_classes, 1)))
    if needed is None or needed.sparse_above is None:
        return ""
    sizes = store.sizes.clamp_max(config.features.max_nodes or store.max_size)
    count = int((sizes > needed.sparse_above).sum())
    if not count:
        return ""
    return (
        f"{store.name}: {count:,} of {len(store):,} graphs {'has' if count == 1 else 'have'} more than "
        f"{needed.sparse_above:,} nodes; {config.model} clusters {'it' if count == 1 else 'them'} in blocks, which a "
        "sparse eigensolver finds."
    )


def _describe_nodes(store: GraphStore, config: RunConfig) -> str:
    """What a classical model that reads edges does without labels or attributes of nodes that the graphs have."""
    # The catalogue's data sets are compared with publications that do not use these columns either.
    if not is_classical(config.model) or store.catalogue_name is not None:
        return ""
    inputs = find_classical_model(config.model).inputs
    tables = {"node labels": store.node_labels, "node attributes": store.node_attributes}
    unread = [
        name
        for name, table in tables.items()
        if table is not None and name.replace(" ", "_") not in inputs and "edges" in inputs
    ]
    if not unread:
        return ""
    sentence = f"{store.name}: {' and '.join(unread)} are not used by {config.model}"
    if "node_labels" in inputs and store.node_labels is None:
        sentence += ", which reads labels: without them all nodes start alike, and it sees the edges alone"
    return f"{sentence}."


def _describe_edge_labels(store: GraphStore, config: RunConfig, use_labels: str) -> str:
    # The published presets of the catalogue's data sets are known not to use them.
    if store.edge_labels is None or store.catalogue_name is not None:
        return ""
    if is_classical(config.model):
        # SMILES hold the bonds that the edge labels of a molecule were read from.
        used = find_classical_model(config.model).inputs & {"edge_labels", "smiles"}
        return "" if used else f"{store.name}: edge labels are not used by {config.model}."
    if config.features.edge_labels is not None:
        return ""
    return f"{store.name}: edge labels are not used by {config.model} with this preset; {use_labels}."
