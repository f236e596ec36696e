"""The simple model beside a training: which one, on which graphs, and in which words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import graphcaps
from graphcaps.config import RunConfig
from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.splits.folds import Split
from graphcaps.data.splits.groups import resolve_split
from graphcaps.data.store import GraphStore
from graphcaps.metrics import class_metrics
from graphcaps.models.wl_forest import WLForest
from graphcaps.training.baseline import Baseline, baseline_model, fit_baseline
from graphcaps.training.final_training import FinalTraining


@pytest.fixture(scope="module")
def graphs() -> GraphStore:
    return planted_parts(num_graphs=60)


def test_test_graphs_are_scored_by_a_forest_on_the_training_graphs(graphs: GraphStore) -> None:
    split = Split(torch.arange(0, 40), torch.arange(40, 50), torch.arange(50, 60))
    result = fit_baseline(graphs, seed=3, split=split)
    assert graphs.y is not None
    forest = WLForest(graphs.num_classes, trees=100, seed=3)
    forest.fit(graphs, np.arange(40), graphs.y.numpy()[:40])
    expected = class_metrics(graphs.y.numpy()[50:], forest.predict_proba(graphs, np.arange(50, 60)))
    largest = graphs.y[:40].bincount().argmax()
    majority = float((graphs.y[50:] == largest).double().mean())
    # Three classes: no ROC-AUC.
    assert result == Baseline("wl-forest", "test", 10, expected["accuracy"], None, majority)


def test_without_test_graphs_the_validation_graphs_of_the_training_are_scored(graphs: GraphStore) -> None:
    training = FinalTraining(graphs, RunConfig(), seed=5, validation=0.2, device="cpu")
    result = fit_baseline(graphs, seed=5, validation=0.2)
    assert graphs.y is not None
    train, validation = training.holdout.train.numpy(), training.holdout.validation.numpy()
    forest = WLForest(graphs.num_classes, trees=100, seed=5)
    forest.fit(graphs, train, graphs.y.numpy()[train])
    predicted = forest.predict_proba(graphs, validation).argmax(1)
    assert result is not None
    assert (result.part, result.graphs) == ("validation", len(validation))
    assert result.accuracy == (predicted == graphs.y.numpy()[validation]).mean()
    assert fit_baseline(graphs, validation=0) is None


def test_molecules_are_compared_with_fingerprints() -> None:
    pytest.importorskip("rdkit")
    store = graphcaps.load_dataset(Path(__file__).parents[2] / "examples" / "molecules.csv", label="kind")
    assert baseline_model(store) == "ecfp-forest"
    assert baseline_model(replace(store, smiles=None)) == "wl-forest"
    result = fit_baseline(store, split=resolve_split("scaffold", store))
    assert result is not None
    assert result.model == "ecfp-forest"
    assert result.accuracy > 0.8
    assert result.roc_auc is not None
    assert result.sentence == (
        f"ecfp-forest on the same split: test accuracy {100 * result.accuracy:.1f} %, ROC-AUC {result.roc_auc:.3f}; "
        f"largest class: {100 * result.majority:.1f} %"
    )


def test_attributes_are_read() -> None:
    """Rings of 20 classes that differ in one attribute only: for colours they are all the same graph."""
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    drawn = [
        GraphArrays(3, ring, graph % 20, node_attributes=torch.full((3, 1), float(graph % 20)))
        for graph in range(200)
    ]
    store = store_from_graphs(drawn, "rings")
    assert baseline_model(store) == "features-trees"
    assert baseline_model(replace(store, node_attributes=None)) == "wl-forest"
    result = fit_baseline(store)
    assert result is not None
    assert (result.model, result.part) == ("features-trees", "validation")
    assert result.accuracy > 0.99
    assert result.majority == 0.05


def test_the_sentence_without_roc_auc() -> None:
    assert Baseline("wl-forest", "validation", 10, 0.5, None, 0.4).sentence == (
        "wl-forest on the same graphs: validation accuracy 50.0 %; largest class: 40.0 %"
    )
