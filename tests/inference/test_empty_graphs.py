"""Predictions for graphs without nodes: the class prior, named; and no effect on the other predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import graphcaps
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.inference.applicability import NO_NODES, TrainingProfile
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.predictions import predict_store
from graphcaps.training.final_training import train_final
from tests.graphs import with_empty_graphs

TRAINING = TrainConfig(epochs=2, batch_size=8, learning_rate=0.01)
CONFIGS = {
    "hgcn": RunConfig(
        model="hgcn",
        model_arguments={"capsule_dim": 8, "num_capsules": (4, 3), "num_factors": 2},
        training=TRAINING,
    ),
    "gin": RunConfig(model="gin", model_arguments={"hidden": 8}, training=TRAINING),
}
EMPTY = store_from_graphs([GraphArrays(0, torch.empty(2, 0, dtype=torch.long))] * 2)


@pytest.fixture(scope="module")
def models() -> dict[str, FittedModel]:
    """Models of 18 graphs and seven without nodes of class 1, which is the most frequent one."""
    store, _ = with_empty_graphs(planted_parts(num_graphs=18), [3, *[0] * 17, 4], y=1)
    return {name: train_final(store, config, device="cpu").model for name, config in CONFIGS.items()}


counts = st.lists(st.integers(0, 2), min_size=10, max_size=10).filter(any)


@pytest.mark.parametrize("name", CONFIGS)
@given(inserted=counts)
@settings(max_examples=10)
def test_other_graphs_are_predicted_bit_by_bit(models, name: str, inserted: list[int]) -> None:
    model = models[name]
    plain = planted_parts(num_graphs=9, seed=1)
    store, kept = with_empty_graphs(plain, inserted)
    assert torch.equal(model.scores(store)[kept], model.scores(plain))
    p = model.predict_proba(store)
    assert (p[kept] == model.predict_proba(plain)).all()
    assert (p[store.empty_graphs.tolist()] == model.class_prior).all()
    assert set(model.predict(store)[store.empty_graphs.tolist()]) == {model.class_names[1]}
    predictions, expected = predict_store(model, store), predict_store(model, plain)
    assert [predictions.out_of_distribution[g] for g in kept] == list(expected.out_of_distribution)
    assert {predictions.out_of_distribution[g] for g in store.empty_graphs} == {NO_NODES}
    assert not predictions.num_failed
    assert np.array_equal(predictions.probabilities, p)


def test_scores_and_embeddings(models) -> None:
    store, kept = with_empty_graphs(planted_parts(num_graphs=9), [1, *[0] * 8, 2])
    hgcn, gin = models["hgcn"], models["gin"]
    assert not hgcn.scores(store)[store.empty_graphs].any()
    assert torch.equal(hgcn.scores(EMPTY), torch.zeros(2, 3))
    prior = torch.from_numpy(gin.class_prior).float()
    assert torch.allclose(gin.scores(EMPTY).softmax(-1), prior.expand(2, -1))
    for level, width in ((0, 4 * 8), (1, 3 * 8), (-1, 3 * 8)):
        rows = hgcn.embed(store, level=level)
        assert rows.shape == (12, width)
        assert not rows[store.empty_graphs].any()
        assert torch.equal(rows[kept], hgcn.embed(planted_parts(num_graphs=9), level=level))
        assert hgcn.embed(EMPTY, level=level).shape == (2, width)


@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_but_graphs_without_nodes(models, name: str) -> None:
    model = models[name]
    for graphs in (EMPTY, [nx.Graph(), nx.Graph()], [Data(), Data()]):
        assert (model.predict_proba(graphs) == model.class_prior).all()
        assert model.predict(graphs).tolist() == [model.class_names[1]] * 2
        assert model.out_of_distribution(graphs) == (NO_NODES, NO_NODES)
    rows = list(predict_store(model, EMPTY).rows())
    assert rows[0]["out_of_distribution"] == NO_NODES
    assert rows[0]["class"] == model.class_names[1]


def test_the_prior(models, tmp_path: Path) -> None:
    model = models["hgcn"]
    assert model.training["class_counts"] == {"ring-star": 6, "ring-clique": 13, "ring-ladder": 6}
    assert model.class_prior.tolist() == [6 / 25, 13 / 25, 6 / 25]
    model.save(tmp_path / "m.safetensors")
    assert graphcaps.load(tmp_path / "m.safetensors").class_prior.tolist() == model.class_prior.tolist()
    for training in (
        {},
        {"class_counts": {}},
        {"class_counts": {"ring-star": "many"}},
        {"class_counts": [1]},
    ):
        assert replace(model, training=training).class_prior.tolist() == [1 / 3] * 3


def test_a_model_without_a_profile_names_them_too(models) -> None:
    model = replace(models["hgcn"], profile=None)
    store, _ = with_empty_graphs(planted_parts(num_graphs=3), [0, 1, 0, 0])
    assert predict_store(model, store).out_of_distribution == ("", NO_NODES, "", "")
    assert predict_store(model, planted_parts(num_graphs=3)).out_of_distribution is None


def test_the_profile_is_that_of_graphs_with_nodes() -> None:
    plain = planted_parts(num_graphs=30)
    store, kept = with_empty_graphs(plain, [2, *[0] * 30])
    profile = TrainingProfile.from_store(store)
    assert profile == TrainingProfile.from_store(plain)
    assert np.isinf(profile.scores(store)[:2]).all()
    assert (profile.scores(store)[kept] == profile.scores(plain)).all()
    with pytest.raises(graphcaps.GraphcapsError, match="'store' must hold at least one graph with nodes"):
        TrainingProfile.from_store(EMPTY)
