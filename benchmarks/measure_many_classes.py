"""Many classes, small graphs and attributes of very different scale: what a training needs, each change alone.

    python -m benchmarks.measure_many_classes --out results/many-classes.json
    python -m benchmarks.measure_many_classes --dropout --epochs 60 --out results/many-classes-dropout.json

Graphs are generated like those of COIL-RAG: a class is a vector of 64 attributes, a node has the vector of its graph's
class plus noise, and a graph has two to six nodes. Columns have scales from 1e-3 to 1e4; some are constant, and some
have a large offset, as years have. Edges say nothing about the class. A random forest on the sums of attributes is the
simple baseline.

Each row is one training of the default configuration with one or two changes, on the same validation graphs. Without
a change, attributes are not standardised and class capsules have a residual, as in the published model. With
``--dropout``, the default configuration is trained with a dropout of 0.5 and of 0.1 on small sets of many classes.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import networkx as nx
import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor

from graphcaps._io.provenance import describe_hardware
from graphcaps.config import RunConfig
from graphcaps.data import from_networkx
from graphcaps.data.store import GraphStore
from graphcaps.nn.losses import cross_entropy, margin_loss
from graphcaps.ops.edges import clean_edges
from graphcaps.presets import load_preset
from graphcaps.training.final_training import FinalTraining

SMALLEST_SCALE, LARGEST_SCALE = 1e-3, 1e4
YEAR = 2000.0


def attribute_prototypes(
    num_classes: int,
    *,
    graphs_per_class: int = 39,
    num_attributes: int = 64,
    num_constant: int = 4,
    num_years: int = 4,
    noise: float = 0.35,
    seed: int = 0,
) -> GraphStore:
    """Paths and cycles of two to six nodes whose class is a prototype of their nodes' attributes.

    Args:
        num_classes (int): Number of classes.
        graphs_per_class (int): Number of graphs of each class. (default: 39, as in COIL-RAG)
        num_attributes (int): Number of attribute columns. (default: 64)
        num_constant (int): Number of columns that are constant, the last ones. (default: 4)
        num_years (int): Number of columns with an offset of 2000 and a scale of 1, the first ones. (default: 4)
        noise (float): Deviation of a node from its prototype, whose entries have deviation 1. (default: 0.35)
        seed (int): Seed. (default: 0)
    """
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(num_classes, num_attributes))
    scale = 10 ** rng.uniform(np.log10(SMALLEST_SCALE), np.log10(LARGEST_SCALE), num_attributes)
    offset = np.zeros(num_attributes)
    scale[:num_years], offset[:num_years] = 1, YEAR
    y = rng.permutation(np.repeat(np.arange(num_classes), graphs_per_class))
    sizes = rng.integers(2, 7, len(y))
    first = np.concatenate([[0], sizes.cumsum()])
    graph = np.repeat(np.arange(len(y)), sizes)
    values = prototypes[y[graph]] + noise * rng.normal(size=(len(graph), num_attributes))
    values = values * scale + offset
    values[:, num_attributes - num_constant :] = 100 * rng.normal(size=num_constant)
    follows = np.flatnonzero(graph[1:] == graph[:-1])
    closed = np.flatnonzero((sizes > 2) & (rng.random(len(y)) < 0.5))
    source = torch.from_numpy(np.concatenate([follows, first[closed]]))
    target = torch.from_numpy(np.concatenate([follows + 1, first[closed + 1] - 1]))
    edges = clean_edges(source, target, len(graph))
    row = np.repeat(np.arange(len(graph)), edges.ptr.diff().numpy())
    return GraphStore(
        f"prototypes-{num_classes}",
        torch.from_numpy(first),
        edges.ptr,
        (edges.neighbours - torch.from_numpy(first[graph[row]])).int(),
        y=torch.from_numpy(y),
        class_names=tuple(str(label) for label in range(num_classes)),
        node_attributes=torch.from_numpy(values),
    )


def attribute_sums(store: GraphStore) -> np.ndarray:
    """Sum of the attributes over the nodes of each graph, ``[G, A]``."""
    assert store.node_attributes is not None
    sums: np.ndarray = np.add.reduceat(store.node_attributes.numpy(), store.host_node_ptr[:-1].numpy())
    return sums


def forest_accuracy(store: GraphStore, train: Tensor, test: Tensor) -> float:
    """Accuracy of a random forest on attribute sums."""
    assert store.y is not None
    sums, y = attribute_sums(store), store.y.numpy()
    forest = RandomForestClassifier(200, random_state=0).fit(sums[train], y[train])
    return float(forest.score(sums[test], y[test]))


def as_published(config: RunConfig) -> RunConfig:
    """The default configuration without standardised attributes, with the residual of class capsules."""
    features = replace(config.features, standardise=False)
    return replace(config.with_model(class_residual=True), features=features)


def standardised(config: RunConfig) -> RunConfig:
    return replace(config, features=replace(config.features, standardise=True))


def with_model(config: RunConfig, **changes: Any) -> RunConfig:
    return config.with_model(**changes)


def with_training(config: RunConfig, **changes: Any) -> RunConfig:
    return config.with_training(**changes)


def weighted_margin(scores: Tensor, y: Tensor, *, class_weight: Tensor | None = None) -> Tensor:
    """The margin loss whose wrong classes weigh as much together as a single one."""
    weight = 0.5 / max(1, scores.size(-1) - 1)
    return margin_loss(scores, y, absent_weight=weight, class_weight=class_weight)


def scaled_cross_entropy(scores: Tensor, y: Tensor, *, class_weight: Tensor | None = None) -> Tensor:
    """Cross-entropy of ten times the lengths."""
    return cross_entropy(10 * scores, y, class_weight)


@dataclass(frozen=True)
class Change:
    """One row of the table: changes of the configuration, and possibly another loss."""

    name: str
    configure: tuple[Callable[[RunConfig], RunConfig], ...] = ()
    loss: Callable[..., Tensor] | None = None


NO_RESIDUAL = partial(with_model, class_residual=False)
CHANGES = (
    Change("none"),
    Change("attributes standardised", (standardised,)),
    Change("no residual of class capsules", (NO_RESIDUAL,)),
    Change("both (the default)", (standardised, NO_RESIDUAL)),
    Change("learning rate 0.003", (partial(with_training, learning_rate=0.003),)),
    Change("dropout 0.5", (partial(with_model, dropout=0.5),)),
    Change("no reconstruction", (partial(with_training, reconstruction_weight=0.0),)),
    Change("wrong classes weighted by 1 / (O − 1)", loss=weighted_margin),
    Change("cross-entropy of 10 × length", loss=scaled_cross_entropy),
)


def measure(store: GraphStore, change: Change, epochs: int) -> dict[str, Any]:
    """Trains with a change, and gives the accuracies of the last epoch."""
    config = as_published(load_preset("default")).with_training(epochs=epochs)
    for step in change.configure:
        config = step(config)
    began = time.perf_counter()
    with nullcontext() if change.loss is None else patch("graphcaps.nn.hgcn.margin_loss", change.loss):
        training = FinalTraining(store, config, device="cpu")
        *_, last = training.run()
    return {
        "change": change.name,
        "train_accuracy": last.train_accuracy[0],
        "validation_accuracy": last.validation_accuracy[0],
        "seconds": round(time.perf_counter() - began, 1),
    }


def rings(num_classes: int = 12, *, graphs_per_class: int = 40, seed: int = 0) -> GraphStore:
    """Random trees with one or two rings, whose size and number are the class; no labels and no attributes."""
    rng = random.Random(seed)
    graphs = []
    for index in range(num_classes * graphs_per_class):
        label, size = index % num_classes, rng.randint(8, 14)
        graph = nx.random_labeled_tree(size, seed=rng.randrange(2**31))
        for _ in range(1 + label // 6):
            first = len(graph)
            nx.add_cycle(graph, range(first, first + 3 + label % 6))
            graph.add_edge(first, rng.randrange(size))
        graph.graph["y"] = label
        graphs.append(graph)
    return from_networkx(graphs, name=f"rings-{num_classes}")


def measure_dropout(epochs: int) -> Iterator[dict[str, Any]]:
    """The default configuration with two values of dropout, on small sets of many classes."""
    small = partial(attribute_prototypes, num_constant=0, num_years=0)
    stores = {
        "30 classes, 4 attributes": small(30, graphs_per_class=10, num_attributes=4, noise=0.3),
        "20 classes, 16 attributes": small(20, graphs_per_class=20, num_attributes=16, noise=1.0),
        "10 classes, 4 attributes, much noise": small(10, graphs_per_class=30, num_attributes=4, noise=1.0),
        "12 classes of rings": rings(),
    }
    for name, store in stores.items():
        for dropout in (0.5, 0.1):
            config = load_preset("default").with_training(epochs=epochs).with_model(dropout=dropout)
            events = list(FinalTraining(store, config, device="cpu").run())
            best = min(events, key=lambda event: event.validation_loss[0])
            yield {
                "data": name,
                "graphs": len(store),
                "dropout": dropout,
                "epochs": epochs,
                "validation_accuracy_20": events[min(20, epochs) - 1].validation_accuracy[0],
                "validation_accuracy": events[-1].validation_accuracy[0],
                "lowest_validation_loss": best.validation_loss[0],
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--dropout", action="store_true", help="compare two values of dropout")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for result in measure_dropout(arguments.epochs) if arguments.dropout else ():
        rows.append(result)
        print(json.dumps(result, ensure_ascii=False), flush=True)
    for count in () if arguments.dropout else arguments.classes:
        store = attribute_prototypes(count)
        holdout = FinalTraining(store, load_preset("default"), device="cpu").holdout
        forest = forest_accuracy(store, holdout.train, holdout.validation)
        row: dict[str, Any] = {"change": "forest on attribute sums", "validation_accuracy": forest}
        for result in chain([row], (measure(store, change, arguments.epochs) for change in CHANGES)):
            rows.append({"classes": count, "epochs": arguments.epochs} | result)
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if arguments.out is not None:
        content = {"hardware": describe_hardware(), "rows": rows}
        arguments.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
