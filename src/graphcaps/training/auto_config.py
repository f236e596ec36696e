"""Hyper-parameters that depend on the data: batch size, dropout, degree features and the divisor of the residual."""

from __future__ import annotations

import math
from dataclasses import replace

from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore

__all__ = ["auto_batch_size", "auto_degree_onehot", "auto_dropout", "resolve_config"]

_MIN_BATCH, _MAX_BATCH = 16, 128
_STEPS = 40  # per pass over all graphs; about thirty in a fold, which trains on eight tenths of them

_SMALL_DATASET = 1500  # graphs
_DROPOUT_SMALL, _DROPOUT_LARGE = 0.5, 0.1

_DEGREE_QUANTILE, _MAX_DEGREE = 0.99, 100


def auto_batch_size(num_graphs: int) -> int:
    """The power of two nearest to a fortieth of the number of graphs, between 16 and 128.

    Small data sets need many steps; large ones train as well with fewer, larger batches (docs/estimator.md).
    """
    nearest = 2 ** round(math.log2(max(num_graphs, 1) / _STEPS))
    return int(min(max(nearest, _MIN_BATCH), _MAX_BATCH))


def auto_dropout(num_graphs: int) -> float:
    """0.5 up to 1,500 graphs, 0.1 above: small data sets overfit, and dropout reduces that.

    The threshold separates the data sets it was chosen with: at most 1,500 graphs, or at least 2,000, whose folds
    train on 1,600 or more.
    """
    return _DROPOUT_SMALL if num_graphs <= _SMALL_DATASET else _DROPOUT_LARGE


def auto_degree_onehot(store: GraphStore) -> int:
    """The 99 % quantile of the node degrees, between 1 and 100.

    Weights of one-hot columns for rarer degrees would be fitted to few nodes, and overfit.
    """
    if not store.num_nodes:
        return 1
    at_most = store.degree.bincount().cumsum(0)
    quantile = int((at_most < _DEGREE_QUANTILE * store.num_nodes).sum())
    return min(max(quantile, 1), _MAX_DEGREE)


def resolve_config(config: RunConfig, store: GraphStore, like: RunConfig | None = None) -> RunConfig:
    """The configuration with a number for each hyper-parameter that ``by_data`` names.

    Args:
        config (RunConfig): Any configuration; without ``by_data`` it is returned unchanged.
        store (GraphStore): All graphs of the run.
        like (RunConfig, optional): Configuration of a model whose training is continued. Its degree features are kept,
            and its divisor unless ``config`` has one.
    """
    training, features, arguments = config.training, config.features, dict(config.model_arguments)
    if "batch_size" in config.by_data:
        training = replace(training, batch_size=auto_batch_size(len(store)))
    if "degree_onehot" in config.by_data:
        columns = auto_degree_onehot(store) if like is None else like.features.degree_onehot
        features = replace(features, degree_onehot=columns)
    if "dropout" in config.by_data and config.model == "hgcn":
        arguments["dropout"] = auto_dropout(len(store))
    if config.model == "hgcn" and "residual_nodes" not in arguments:
        divisor = like.model_arguments.get("residual_nodes") if like is not None else None
        if like is None and "residual_nodes" in config.by_data:
            largest = int(store.host_node_ptr.diff().max()) if len(store) else 1
            divisor = max(min(largest, features.max_nodes or largest), 1)
        arguments |= {} if divisor is None else {"residual_nodes": divisor}
    return replace(config, training=training, features=features, model_arguments=arguments, by_data=())
