"""Checks of the contract of classical models: what evaluation, prediction and files assume of every one.

Fits and predictions must agree bit by bit where nothing that the model reads has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.models.builder import build_classical
from graphcaps.models.classical import ClassicalModel, ValidationGraphs
from graphcaps.models.lookup import find_classical_model
from graphcaps.ops.edges import clean_edges
from graphcaps.testing.expectations import ContractError, expect, expect_equal
from graphcaps.testing.subject import (
    Subject,
    check_description,
    check_model_file,
    check_unknown_options,
    reorder_nodes,
)

__all__ = ["classical_checks"]

_CLASSES, _GRAPHS, _TRAIN = 3, 36, 28


@dataclass(frozen=True)
class _Classical(Subject):
    """A registered classical model under test."""

    @cached_property
    def kind(self) -> type[ClassicalModel]:
        return find_classical_model(self.name)

    @property
    def size_option(self) -> str | None:
        return self.kind.size_option

    def config(self, **options: object) -> RunConfig:
        arguments = self.arguments(**options)
        return RunConfig(model=self.name, model_arguments=arguments, features=self.kind.features())

    def configure(self, **options: object) -> ClassicalModel:
        return build_classical(self.config(**options), _CLASSES)

    def construct(self, **options: object) -> ClassicalModel:
        return self.kind(_CLASSES, **options)  # type: ignore[arg-type]

    def build(self, num_classes: int = _CLASSES, *, seed: int = 0, jobs: int = 1) -> ClassicalModel:
        return build_classical(self.config(), num_classes, seed=seed, jobs=jobs)

    def fit(
        self,
        store: GraphStore,
        train: NDArray[np.int64] | None = None,
        *,
        seed: int = 0,
        jobs: int = 1,
        validation: ValidationGraphs | None = None,
    ) -> ClassicalModel:
        """The model fitted to some graphs. (default: the first 28)"""
        train = np.arange(_TRAIN) if train is None else train
        model = self.build(seed=seed, jobs=jobs)
        model.fit(store, train, _classes(store)[train], validation=validation)
        return model

    def without_selection(self) -> _Classical:
        """The model with the last value of each option that a fit selects: of the subject's values, or the default."""
        values = {name: option.default for name, option in self.kind.options().items()} | dict(self.options)
        last = {name: (values[name][-1],) for name in self.kind.selected_options}
        return replace(self, options=dict(self.options) | last)


def _classes(store: GraphStore) -> NDArray[np.int64]:
    assert store.y is not None
    return store.y.numpy()


def _draw() -> GraphStore:
    """Random graphs whose density and labels depend on the class, with labels and attributes of nodes and edges.

    They also have SMILES that depend on the class, for models that read these; the SMILES are not those of the graphs.
    """
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(_GRAPHS) % _CLASSES
    sizes = torch.randint(3, 12, (_GRAPHS,), generator=generator)
    ptr = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    pairs = [
        torch.randint(first, end, (2, (1 + label) * (end - first)), generator=generator)
        for (first, end), label in zip(pairwise(ptr.tolist()), y.tolist(), strict=True)
    ]
    edges, N = torch.cat(pairs, 1), int(ptr[-1])
    node_class = y.repeat_interleave(sizes)
    labels = torch.stack([torch.randint(0, 2, (N,), generator=generator) + node_class, node_class % 2], 1)
    clean = clean_edges(edges[0], edges[1], N)
    return GraphStore.from_clean_edges(
        "checks",
        ptr,
        clean,
        y=y,
        class_names=tuple(str(label) for label in range(_CLASSES)),
        node_labels=labels,
        node_attributes=torch.randn(N, 2, generator=generator, dtype=torch.float64),
        smiles=tuple(f"{'C' * (1 + graph // _CLASSES)}{'ONS'[graph % _CLASSES]}" for graph in range(_GRAPHS)),
    )


def _without_edges(store: GraphStore) -> GraphStore:
    ptr = torch.zeros(store.num_nodes + 1, dtype=torch.long)
    return replace(store, edge_ptr=ptr, neighbours=torch.zeros(0, dtype=torch.int32))


def _everything() -> NDArray[np.int64]:
    return np.arange(_GRAPHS)


def _expect_probabilities(values: NDArray[np.float64], graphs: int, what: str) -> None:
    shape = (graphs, _CLASSES)
    expect(values.shape == shape, f"{what} must have the shape {shape}, got {values.shape}")
    expect(values.dtype == np.float64, f"{what} must be float64, got {values.dtype}")
    expect(bool(((values >= 0) & (values <= 1)).all()), f"{what} must be from 0 to 1")
    expect_equal(values.sum(-1), np.ones(graphs), f"the sum of {what} of a graph")


# ---------------------------------------------------------------------- the checks
def _check_description(subject: _Classical) -> None:
    """What all models say of themselves, and scores that are probabilities."""
    check_description(subject)
    expect(subject.kind.scores == "probabilities", "scores must be 'probabilities'")


def _check_probabilities(subject: _Classical) -> None:
    """Probabilities have a row per graph, a column per class, and sum to one."""
    store = _draw()
    model = subject.fit(store)
    _expect_probabilities(model.predict_proba(store, _everything()), _GRAPHS, "the probabilities")
    none = model.predict_proba(store, np.zeros(0, np.int64))
    expect(none.shape == (0, _CLASSES), f"no graphs must give the shape (0, {_CLASSES}), got {none.shape}")


def _check_determinism(subject: _Classical) -> None:
    """A seed gives the same probabilities, with any number of threads, also if the model was fitted before."""
    store = _draw()
    expected = subject.fit(store, seed=3).predict_proba(store, _everything())
    for jobs in (1, 2):
        again = subject.fit(store, seed=3, jobs=jobs).predict_proba(store, _everything())
        expect_equal(again, expected, f"the probabilities of a second fit, with jobs={jobs},", 0)
    model = subject.fit(store, np.arange(5, _GRAPHS), seed=3)
    model.fit(store, np.arange(_TRAIN), _classes(store)[:_TRAIN])
    expect_equal(model.predict_proba(store, _everything()), expected, "a fit after another one", 0)
    rest = np.arange(_TRAIN, _GRAPHS)
    validation = ValidationGraphs(rest, _classes(store)[rest])
    seeds = [subject.fit(store, seed=seed, validation=validation).state() for seed in (3, 4)]
    same = all(torch.equal(seeds[0][name], seeds[1].get(name, torch.empty(0))) for name in seeds[0])
    expect(same != subject.kind.uses_seed, "'uses_seed' must say whether a fit depends on the seed")


def _check_node_order(subject: _Classical) -> None:
    """The order of nodes changes neither the fit nor the predictions."""
    store = _draw()
    other, _ = reorder_nodes(store)
    expected = subject.fit(store).predict_proba(store, _everything())
    expect_equal(subject.fit(store).predict_proba(other, _everything()), expected, "other node orders", 0)
    expect_equal(
        subject.fit(other).predict_proba(store, _everything()), expected, "a fit to other node orders", 0
    )


def _check_graph_order(subject: _Classical) -> None:
    """The place of a graph in the store, and graphs that are not in the training set, do not matter."""
    store = _draw()
    train, rest = np.arange(_TRAIN), np.arange(_TRAIN, _GRAPHS)
    expected = subject.fit(store, train).predict_proba(store, rest)
    order = torch.randperm(_GRAPHS, generator=torch.Generator().manual_seed(2))
    moved, place = store[order], order.argsort().numpy()
    actual = subject.fit(moved, place[train]).predict_proba(moved, place[rest])
    expect_equal(actual, expected, "the probabilities in a store of another order", 0)
    alone = subject.fit(store[torch.arange(_TRAIN)], train)
    expect_equal(alone.predict_proba(store, rest), expected, "a fit to a store without other graphs", 0)


def _check_batch(subject: _Classical) -> None:
    """A graph is predicted alike alone and beside others."""
    store = _draw()
    model = subject.fit(store)
    together = model.predict_proba(store, _everything())
    alone = [model.predict_proba(store[graph], np.zeros(1, np.int64)) for graph in range(_GRAPHS)]
    expect_equal(np.concatenate(alone), together, "the probabilities of a graph alone and beside others", 0)


def _check_absent_class(subject: _Classical) -> None:
    """A class without training graphs keeps its column, and a single class is predicted for all graphs."""
    store = _draw()
    for label in range(_CLASSES):
        present = np.flatnonzero(_classes(store) != label)
        values = subject.fit(store, present).predict_proba(store, _everything())
        _expect_probabilities(values, _GRAPHS, f"the probabilities without class {label} in training")
        expect(
            bool((values.argmax(-1) != label).all()), "a class without training graphs must not be predicted"
        )
        alone = np.flatnonzero(_classes(store) == label)
        values = subject.fit(store, alone).predict_proba(store, _everything())
        _expect_probabilities(values, _GRAPHS, f"the probabilities with class {label} alone in training")
        expect(bool((values.argmax(-1) == label).all()), "the only class in training must be predicted")


def _check_sample_weight(subject: _Classical) -> None:
    """Weights enter the fit: of two classes of the same graph, the one that weighs more becomes more probable.

    Every graph is in the training set with its class and with another one: a model that separates all graphs, as trees
    with pure leaves do, has to follow the weights.
    """
    store = _draw()
    own = _classes(store)[:_TRAIN]
    train, y = np.tile(np.arange(_TRAIN), 2), np.concatenate([own, (own + 1) % _CLASSES])
    expected = subject.build()
    expected.fit(store, train, y)
    model = subject.build()
    model.fit(store, train, y, np.where(y == 0, 20.0, 1.0))
    values = model.predict_proba(store, _everything())
    _expect_probabilities(values, _GRAPHS, "the probabilities after a weighted fit")
    unweighted = expected.predict_proba(store, _everything())[:, 0].mean()
    expect(values[:, 0].mean() > unweighted, "a class whose graphs weigh more must become more probable")


def _check_validation(subject: _Classical) -> None:
    """Validation graphs are not fitted; only a model that selects options reads them.

    The selection is left out, and of two classes the calibration of the probabilities changes no prediction.
    """
    store, rest = _draw(), np.arange(_TRAIN, _GRAPHS)
    train = np.flatnonzero(_classes(store)[:_TRAIN] < 2)
    fixed = subject.without_selection()
    expected = fixed.fit(store, train).predict_proba(store, _everything())
    for shift in (0, 1):
        graphs = ValidationGraphs(rest, (_classes(store)[rest] + shift) % 2)
        values = fixed.fit(store, train, validation=graphs).predict_proba(store, _everything())
        if subject.kind.selected_options:
            _expect_probabilities(values, _GRAPHS, "the probabilities with validation graphs")
            expect(
                np.array_equal(values.argmax(-1), expected.argmax(-1)), "validation graphs must not be fitted"
            )
        else:
            expect_equal(values, expected, "no option is selected: those with validation graphs", 0)


def _check_few_graphs(subject: _Classical) -> None:
    """Two training graphs are enough."""
    store = _draw()
    values = subject.fit(store, np.arange(2)).predict_proba(store, _everything())
    _expect_probabilities(values, _GRAPHS, "the probabilities after a fit to two graphs")


def _check_new_graphs(subject: _Classical) -> None:
    """Unseen labels and graphs without edges, nodes, or labels and attributes are fitted and predicted."""
    store = _draw()
    assert store.node_labels is not None
    unseen = replace(store, node_labels=store.node_labels + 1000)
    values = subject.fit(store).predict_proba(unseen, _everything())
    _expect_probabilities(values, _GRAPHS, "the probabilities of graphs with unseen labels")
    bare = _without_edges(store)
    values = subject.fit(bare).predict_proba(store, _everything())
    _expect_probabilities(values, _GRAPHS, "the probabilities after a fit to graphs without edges")
    values = subject.fit(store).predict_proba(bare, _everything())
    _expect_probabilities(values, _GRAPHS, "the probabilities of graphs without edges")
    assert store.y is not None
    assert store.smiles is not None
    nodeless = replace(
        store,
        node_ptr=torch.cat([store.node_ptr, store.node_ptr[-1:]]),
        y=torch.cat([store.y, store.y[:1]]),
        smiles=(*store.smiles, ""),
    )
    values = subject.fit(nodeless, np.array([_GRAPHS, *range(_TRAIN)])).predict_proba(
        nodeless, np.array([_GRAPHS])
    )
    _expect_probabilities(values, 1, "the probabilities of a graph without nodes")
    for each, what in ((store, "edges alone"), (bare, "neither edges nor labels")):
        blank = replace(each, node_labels=None, node_attributes=None)
        values = subject.fit(blank).predict_proba(blank, _everything())
        _expect_probabilities(values, _GRAPHS, f"the probabilities of graphs with {what}")


def _check_inputs(subject: _Classical) -> None:
    """What ``inputs`` does not name is not read, and what it names is."""
    store = _draw()
    # Labels that say nothing about the class: with others, a model may separate the graphs by them alone.
    labels = torch.randint(0, 3, (store.num_nodes, 2), generator=torch.Generator().manual_seed(1))
    store = replace(store, node_labels=labels)
    assert store.node_attributes is not None
    assert store.smiles is not None
    edge_labels = (
        store.neighbours.long() + torch.arange(store.num_nodes).repeat_interleave(store.degree)
    ) % 2
    changed = {
        "node_labels": replace(store, node_labels=labels.flip(0)),
        "node_attributes": replace(store, node_attributes=store.node_attributes.flip(0)),
        "edge_labels": replace(store, edge_labels=edge_labels[:, None]),
        "edges": _without_edges(store),
        "smiles": replace(store, smiles=store.smiles[::-1]),
    }
    subject = subject.without_selection()  # a value that does not read an input may be selected
    expected = subject.fit(store).predict_proba(store, _everything())
    for name, other in changed.items():
        values = subject.fit(other).predict_proba(other, _everything())
        if name in subject.kind.inputs:
            expect(not np.array_equal(values, expected), f"'{name}' is in inputs, but changes nothing")
        else:
            expect_equal(
                values, expected, f"'{name}' is not in inputs: the probabilities with other values", 0
            )


def _check_state(subject: _Classical) -> None:
    """The state is a copy in plain arrays that gives the same probabilities; others are refused."""
    store = _draw()
    model = subject.fit(store)
    expected = model.predict_proba(store, _everything())
    state = model.state()
    expect(bool(state), "the state must have at least one array")
    expect(all(isinstance(value, Tensor) for value in state.values()), "the state must hold tensors")
    model.fit(store, np.arange(4), _classes(store)[:4])
    restored = subject.build()
    restored.load_state(state)
    expect_equal(
        restored.predict_proba(store, _everything()), expected, "the probabilities of a loaded state", 0
    )
    refused: tuple[tuple[int, Mapping[str, Tensor], str], ...] = (
        (_CLASSES + 1, state, "of another number of classes"),
        (_CLASSES, {}, "without arrays"),
        (_CLASSES, state | {"no_such_array": torch.zeros(1)}, "with an unknown array"),
    )
    for num_classes, other, what in refused:
        try:
            subject.build(num_classes).load_state(other)
        except ArgumentError:
            continue
        raise ContractError(f"a state {what} must be refused with an ArgumentError")


def _check_file(subject: _Classical) -> None:
    """A model file gives the probabilities of the model that was saved, bit for bit."""
    store, config = _draw(), subject.config()
    recipe = FeatureRecipe.from_config(config.features).fit(store)
    check_model_file(FittedModel(subject.fit(store), config, recipe, store.class_names), store)


_CHECKS: dict[str, Callable[[_Classical], None]] = {
    "description": _check_description,
    "unknown-options": check_unknown_options,
    "probabilities": _check_probabilities,
    "determinism": _check_determinism,
    "node-order": _check_node_order,
    "graph-order": _check_graph_order,
    "batch": _check_batch,
    "absent-class": _check_absent_class,
    "sample-weight": _check_sample_weight,
    "validation": _check_validation,
    "few-graphs": _check_few_graphs,
    "new-graphs": _check_new_graphs,
    "inputs": _check_inputs,
    "state": _check_state,
    "file": _check_file,
}


def classical_checks(name: str, options: Mapping[str, object] | None = None) -> dict[str, Callable[[], None]]:
    """The checks of a registered classical model by their names, as in :func:`graphcaps.testing.model_checks`."""
    subject = _Classical(name, options or {})
    return {check: partial(function, subject) for check, function in _CHECKS.items()}
