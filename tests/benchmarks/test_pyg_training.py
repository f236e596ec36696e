"""Baselines of torch-geometric: the graphs that they read, that they learn, and that a broken one is caught."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from benchmarks.baselines import PygTraining, pyg_graphs

from graphcaps.bench import CheckError
from graphcaps.errors import ArgumentError, ShapeError
from tests.graphs import Graphs, random_graphs

KINDS = ["gin", "diffpool", "sagpool"]
TRAIN, TEST = torch.arange(2, 12), torch.tensor([0, 1])


def _graphs(largest: int = 20) -> Graphs:
    return random_graphs([9, 12, 5, largest, 2, 8, 7, 11, 6, 10, 4, 13], channels=4, seed=1)


def _training(kind: str, graphs: Graphs | None = None, **arguments: Any) -> PygTraining:
    graphs = graphs or _graphs()
    options: dict[str, Any] = {"batch_size": 4, "learning_rate": 0.005} | arguments
    return PygTraining(kind, graphs.as_store(), graphs.x.float(), TRAIN, TEST, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a_baseline_checks_itself_and_learns(kind: str) -> None:
    training = _training(kind)
    assert training.name == f"torch-geometric {kind}"
    with pytest.raises(CheckError, match=r"call check\(\) before epoch\(\)"):
        training.epoch()
    before, order = copy.deepcopy(training.model.state_dict()), training.order.get_state()
    training.check()
    for name, tensor in training.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert torch.equal(training.order.get_state(), order)
    losses = []
    for _ in range(12):
        assert training.epoch() in (0.0, 0.5, 1.0)
        losses.append(training.train_loss)
    assert sum(losses[-3:]) < sum(losses[:3])
    assert any(not torch.equal(tensor, before[name]) for name, tensor in training.model.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_of_a_batch_do_not_mix(kind: str) -> None:
    """Padding and neighbours in the batch change no graph's logits."""
    from torch_geometric.data import Batch

    training = _training(kind)
    graphs = training.train_graphs[:4]
    model = training.model.double().eval()
    together = [graph.clone() for graph in graphs]
    for graph in together:
        graph.x = graph.x.double()
    logits = model(Batch.from_data_list(together))[0]
    for number, graph in enumerate(together):
        alone = model(Batch.from_data_list([graph]))[0]
        torch.testing.assert_close(alone[0], logits[number], rtol=0, atol=1e-9)


def test_graphs_are_those_of_the_store() -> None:
    graphs = _graphs()
    indices = torch.tensor([3, 0])
    made = pyg_graphs(graphs.as_store(), graphs.x, indices)
    for g, data in zip(indices.tolist(), made, strict=True):
        one = graphs.one(g)
        assert torch.equal(data.x, one.x)
        assert int(data.y) == int(one.y)
        assert int(data.number) == g
        assert set(map(tuple, data.edge_index.T.tolist())) == set(map(tuple, one.edge_index.T.tolist()))
    with pytest.raises(ShapeError, match="one row per node"):
        pyg_graphs(graphs.as_store(), graphs.x[1:], indices)


@pytest.mark.parametrize(("kind", "num_skipped"), [("gin", 0), ("diffpool", 1), ("sagpool", 0)])
def test_diffpool_leaves_out_large_graphs(kind: str, num_skipped: int) -> None:
    training = _training(kind, _graphs(largest=151))
    assert training.num_skipped == num_skipped
    assert len(training.train) == 10 - num_skipped
    training.check()
    if kind == "diffpool":
        clusters = [layer.out_channels for layer in training.model.assign]
        assert clusters == [38, 10]


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_seen_twice_is_caught(kind: str) -> None:
    training = _training(kind)
    training.train_graphs[1] = training.train_graphs[0]
    with pytest.raises(CheckError, match="must visit each of 10 training graphs once"):
        training.check()
    assert not training.checked


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_does_not_learn_is_caught(kind: str) -> None:
    training = _training(kind, learning_rate=0.0)
    with pytest.raises(CheckError, match="the loss of eight graphs must fall"):
        training.check()


def test_wrong_logits_are_caught() -> None:
    training = _training("gin")
    training.model.outer = torch.nn.Linear(128, 3)
    with pytest.raises(CheckError, match=r"must give finite logits \[8, 2\], got \[8, 3\]"):
        training.check()


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'kind' must be one of gin, diffpool, sagpool, got 'gcn'"):
        _training("gcn")
