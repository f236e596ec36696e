"""Hyper-parameters that depend on the data: batch size, features and options that the model declares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from graphcaps.config import DATA_SETTINGS, RunConfig, TrainConfig
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.models.builder import complete_tuples
from graphcaps.models.lookup import find_classical_model, find_model, is_classical
from graphcaps.registry import DatasetSize

__all__ = [
    "auto_batch_size",
    "auto_degree_onehot",
    "auto_max_nodes",
    "check_network_options",
    "check_run_types",
    "resolve_config",
]

_MIN_BATCH, _MAX_BATCH = 16, 128
_STEPS = 40  # per pass over all graphs; about thirty in a fold, which trains on eight tenths of them

_DEGREE_QUANTILE, _MAX_DEGREE = 0.99, 100
_PUBLISHED_NODES = 1000  # the limit of the released program


def auto_batch_size(num_graphs: int) -> int:
    """The power of two nearest to a fortieth of the number of graphs, between 16 and 128.

    Small data sets need many steps; large ones train as well with fewer, larger batches (docs/estimator.md).
    """
    nearest = 2 ** round(math.log2(max(num_graphs, 1) / _STEPS))
    return int(min(max(nearest, _MIN_BATCH), _MAX_BATCH))


def auto_degree_onehot(store: GraphStore) -> int:
    """The 99 % quantile of the node degrees, between 1 and 100.

    Weights of one-hot columns for rarer degrees would be fitted to few nodes, and overfit.
    """
    if not store.num_nodes:
        return 1
    at_most = store.degree.bincount().cumsum(0)
    quantile = int((at_most < _DEGREE_QUANTILE * store.num_nodes).sum())
    return min(max(quantile, 1), _MAX_DEGREE)


def auto_max_nodes(store: GraphStore) -> int | None:
    """1000 for a data set of the catalogue, as in the published results; ``None``, all nodes, for other graphs."""
    return None if store.catalogue_name is None else _PUBLISHED_NODES


def check_run_types(store: object, config: object, owner: str) -> None:
    """Rejects graphs that are not in a store, and a configuration of another type.

    Raises:
        ArgumentError: With the function that converts them.
    """
    if not isinstance(store, GraphStore):
        fix = "Convert graphs with graphcaps.data.coerce(graphs).store."
        raise ArgumentError(owner, "store", "be a GraphStore", type(store).__name__, fix)
    if not isinstance(config, RunConfig):
        fix = "Convert a dictionary with graphcaps.config.RunConfig.from_dict."
        raise ArgumentError(owner, "config", "be a RunConfig", type(config).__name__, fix)


def check_network_options(config: RunConfig, options: Mapping[str, object], owner: str) -> None:
    """Rejects options of a training by gradient descent if the model is a classical one.

    Args:
        config (RunConfig): Names the model.
        options (mapping): Values of options by name; ``None`` for those that were not given.
        owner (str): Name of the caller, for messages.

    Raises:
        ArgumentError: If the model is fitted without epochs and an option was given.
    """
    if not is_classical(config.model):
        return
    for name, value in options.items():
        if value is not None:
            expected = f"be left out with the model '{config.model}', which is fitted without epochs"
            raise ArgumentError(owner, name, expected, value)


def resolve_config(config: RunConfig, store: GraphStore, like: RunConfig | None = None) -> RunConfig:
    """The configuration with a number for each hyper-parameter that ``by_data`` names, in its stored form.

    Options that a model derives by default are among them, unless ``config`` has a value.

    Args:
        config (RunConfig): Any configuration. In that of a classical model, features are replaced by what the model
            reads, and the training by a single epoch.
        store (GraphStore): All graphs of the run.
        like (RunConfig, optional): Configuration of a model whose training is continued. Its degree features and its
            ``max_nodes`` are kept, and so are its data options that are marked ``kept``, unless ``config`` has a value.

    Raises:
        DataError: If ``by_data`` has a name that neither every run nor the model derives from the data.
    """
    model = find_model(config.model)
    data_options = model.data_options
    for name in config.by_data:
        if name not in DATA_SETTINGS and name not in data_options:
            expected = (
                f"names among {', '.join((*DATA_SETTINGS, *data_options))} for the model '{config.model}'"
            )
            raise DataError(f"{config.source}, by_data", expected, f"'{name}'")
    training, features = config.training, config.features
    arguments = complete_tuples(model, config.model_arguments)
    if "batch_size" in config.by_data:
        training = replace(training, batch_size=auto_batch_size(len(store)))
    if "degree_onehot" in config.by_data:
        columns = auto_degree_onehot(store) if like is None else like.features.degree_onehot
        features = replace(features, degree_onehot=columns)
    if "max_nodes" in config.by_data:
        limit = auto_max_nodes(store) if like is None else like.features.max_nodes
        features = replace(features, max_nodes=limit)
    for name, option in data_options.items():
        value: object = None
        if option.kept and like is not None:
            value = like.model_arguments.get(name)
        elif option.by_default or name in config.by_data:
            value = option.rule(_dataset_size(store, features.max_nodes))
        if name not in arguments and value is not None:
            arguments[name] = value
    if is_classical(config.model):
        training, features = TrainConfig(epochs=1), find_classical_model(config.model).features()
    return replace(config, training=training, features=features, model_arguments=arguments, by_data=())


def _dataset_size(store: GraphStore, max_nodes: int | None) -> DatasetSize:
    counts = store.host_node_ptr.diff().sort().values
    if max_nodes is not None:
        counts = counts.clamp_max(max_nodes)
    return DatasetSize(tuple(counts.tolist()), store.num_classes)
