"""Graphs that stay on the host give the same batches, and the same training, as graphs on the device."""

import pytest
import torch

from graphcaps.training import Trainer, pick_replica, stack_replicas
from graphcaps.training import streaming as module
from graphcaps.training.streaming import StreamedStore, batch_source, dataset_bytes, move_to_device
from tests.graphs import assert_equal
from tests.training.test_trainer import CONFIG, _graphs, _maker, _replicas, _scores


def test_a_streamed_batch_is_a_resident_batch() -> None:
    graphs = _graphs()
    store = graphs.as_store()
    chosen = torch.tensor([[7, 3, 44, -1], [3, 0, -1, -1]])
    here, there = (source.batch(graphs.x, chosen) for source in (store, StreamedStore(store, store.device)))
    for name in ("ptr", "index"):
        assert torch.equal(getattr(here.segments, name), getattr(there.segments, name)), name
    assert torch.equal(here.x, there.x)
    assert torch.equal(here.y, there.y)  # type: ignore[arg-type]
    model = stack_replicas(_maker("hgcn", 0.0), _replicas()[:2], torch.float64).eval()
    scores = [model.forward_batch(batch).class_scores for batch in (here, there)]  # type: ignore[operator]
    assert_equal(scores[0], scores[1], "scores", 1e-12)


def test_a_streamed_training_is_a_resident_one(monkeypatch: pytest.MonkeyPatch) -> None:
    replicas, graphs = _replicas(), _graphs()
    trained = []
    for streamed in (False, True):
        model = stack_replicas(_maker("hgcn", 0.3), replicas, torch.float64)
        store = graphs.as_store()
        with monkeypatch.context() as patch:
            if streamed:
                for name in ("graphcaps.training.trainer", "graphcaps.training.evaluator"):
                    patch.setattr(f"{name}.batch_source", StreamedStore)
            trainer = Trainer(model, store, graphs.x, replicas, CONFIG)
            events = list(trainer.run())
        trained.append((pick_replica(trainer.model, _maker("hgcn", 0.3), 1), events))
    assert_equal(_scores(trained[0][0]), _scores(trained[1][0]), "scores", 1e-12)
    assert [e.validation_loss for e in trained[0][1]] == [e.validation_loss for e in trained[1][1]]


def test_what_is_too_large_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = _graphs()
    store = graphs.as_store()
    size = dataset_bytes(store, graphs.x)
    assert size > graphs.x.numel() * 8
    device = torch.device("meta")  # stands for a GPU
    monkeypatch.setattr(module, "total_memory", lambda _: 2 * size - 1)
    kept, x = move_to_device(store, graphs.x, device)
    assert kept is store
    assert x is graphs.x
    assert isinstance(batch_source(kept, device), StreamedStore)
    moved: list[object] = []
    monkeypatch.setattr(module, "total_memory", lambda _: 2 * size + 1)
    monkeypatch.setattr(type(store), "to", lambda self, where: moved.append(where) or self)
    assert move_to_device(store, graphs.x, device)[1].device == device
    assert moved == [device]
