"""Values of a configuration that are read off the graphs: batches, dropout, columns of degrees, the divisor."""

from __future__ import annotations

import math
from dataclasses import replace

from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore

__all__ = ["auto_batch_size", "auto_degree_onehot", "auto_dropout", "resolve_config"]

_LEAST, _MOST = 16, 128
_STEPS = 40  # per pass over all graphs; about thirty over the eight folds of ten that are learned from

_FEW = 1500
_DROPOUT_OF_FEW, _DROPOUT_OF_MANY = 0.5, 0.1

_USUAL, _DEGREES = 0.99, 100


def auto_batch_size(num_graphs: int) -> int:
    """The power of two nearest to a fortieth of the graphs, from 16 to 128.

    Small sets need the steps, and large ones learn as well from fewer, larger ones (docs/estimator.md).
    """
    nearest = 2 ** round(math.log2(max(num_graphs, 1) / _STEPS))
    return int(min(max(nearest, _LEAST), _MOST))


def auto_dropout(num_graphs: int) -> float:
    """Half of the numbers up to 1,500 graphs, a tenth above.

    Few graphs are soon learned by heart, which dropout hinders; of many there is more to learn than time. It was
    chosen from sets of at most 1,500 graphs and of at least 2,000, folds of which train on 1,600 or more.
    """
    return _DROPOUT_OF_FEW if num_graphs <= _FEW else _DROPOUT_OF_MANY


def auto_degree_onehot(store: GraphStore) -> int:
    """The least degree that 99 nodes of 100 do not exceed, at most 100.

    Columns of rarer degrees are learned from few nodes, and mostly by heart.
    """
    if not store.num_nodes:
        return 1
    at_most = store.degree.bincount().cumsum(0)
    usual = int((at_most < _USUAL * store.num_nodes).sum())
    return min(max(usual, 1), _DEGREES)


def resolve_config(config: RunConfig, store: GraphStore, like: RunConfig | None = None) -> RunConfig:
    """The same configuration with a number for everything that ``by_data`` names.

    Args:
        config (RunConfig): Any; one without ``by_data`` is given back as it is.
        store (GraphStore): All graphs of the run, training and test.
        like (RunConfig, optional): Of a model whose training goes on: its columns stay, and its divisor where
            the configuration names none.
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
