"""The default configuration on many classes and on attributes of very different scale (docs/estimator.md)."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from benchmarks.measure_many_classes import (
    LARGEST_SCALE,
    SMALLEST_SCALE,
    attribute_prototypes,
    forest_accuracy,
)

from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.presets import load_preset
from graphcaps.training.final_training import make_training, train_final

CLASSES = 50


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return attribute_prototypes(CLASSES, graphs_per_class=16)


@pytest.fixture(scope="module")
def split(store: GraphStore) -> Split:
    """Of each class four test graphs, one validation graph and eleven training graphs."""
    assert store.y is not None
    order = store.y.sort(stable=True).indices.reshape(CLASSES, -1)
    parts = (order[:, 5:], order[:, 4:5], order[:, :4])
    train, validation, test = (part.reshape(-1).sort().values for part in parts)
    return Split(train, validation, test, "by class")


def test_the_generated_graphs_are_as_described(store: GraphStore, split: Split) -> None:
    attributes = store.node_attributes
    assert attributes is not None
    deviation = attributes.std(0)
    assert float(deviation[deviation > 0].min()) < 30 * SMALLEST_SCALE
    assert float(deviation.max()) > LARGEST_SCALE / 30
    assert int((deviation == 0).sum()) == 4
    assert float(attributes[:, :4].mean()) == pytest.approx(2000, abs=1)
    assert store.sizes.min() == 2
    assert store.sizes.max() == 6
    assert store.num_classes == CLASSES
    assert forest_accuracy(store, split.train, split.test) > 0.95


@pytest.mark.slow
def test_fifty_classes_are_learned(store: GraphStore, split: Split) -> None:
    """Fails if attributes are not standardised, or if class capsules keep their residual."""
    config = load_preset("default").with_training(epochs=10)
    result = train_final(store, config, split=split, device="cpu")
    assert result.training["test_accuracy"] >= 0.95


def test_an_attribute_that_is_not_a_number_is_named(store: GraphStore) -> None:
    attributes = store.node_attributes
    assert attributes is not None
    broken = attributes.clone()
    broken[int(store.node_ptr[3]) + 1, 5] = torch.nan
    with pytest.raises(
        ArgumentError, match=r"graph 3 of .*: attribute 5 of node 1 is nan, which is not a fin"
    ):
        make_training(
            dataclasses.replace(store, node_attributes=broken), load_preset("default"), device="cpu"
        )
