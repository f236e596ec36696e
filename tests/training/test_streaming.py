"""Graphs streamed from host memory give the same batches and training as graphs on the device."""

import pytest
import torch

from graphcaps.ops.propagation.propagation import edge_list
from graphcaps.training import Trainer, pick_replica, stack_replicas
from graphcaps.training import streaming as module
from graphcaps.training.streaming import StreamedStore, batch_source, dataset_bytes, move_to_device
from tests.graphs import assert_equal, with_kinds, with_weights
from tests.training.test_trainer import CONFIG, _graphs, _maker, _replicas, _scores


def test_a_streamed_batch_equals_a_resident_one() -> None:
    graphs = _graphs()
    store = with_kinds(graphs.as_store(), (3, 2))
    chosen = torch.tensor([[7, 3, 12, -1], [3, 0, -1, -1]])
    resident, streamed = (
        source.batch(graphs.x, chosen) for source in (store, StreamedStore(store, store.device))
    )
    for name in ("ptr", "index"):
        assert torch.equal(getattr(resident.segments, name), getattr(streamed.segments, name)), name
    assert torch.equal(resident.x, streamed.x)
    assert torch.equal(resident.y, streamed.y)  # type: ignore[arg-type]
    kinds = [edge_list(batch.edges).kind for batch in (resident, streamed)]
    assert torch.equal(kinds[0], kinds[1])  # type: ignore[arg-type]
    model = stack_replicas(_maker("hgcn", 0.0), _replicas()[:2], torch.float64).eval()
    scores = [model.forward_batch(batch).class_scores for batch in (resident, streamed)]  # type: ignore[operator]
    assert_equal(scores[0], scores[1], "scores", 1e-12)


def test_a_streamed_batch_costs_what_its_graphs_have(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = _graphs()
    store = graphs.as_store()
    source = StreamedStore(store, store.device)
    checked: list[int] = []
    check = type(store)._check_edges
    monkeypatch.setattr(type(store), "_check_edges", lambda self: (checked.append(len(self)), check(self))[1])
    for step in range(5):
        source.batch(graphs.x, torch.tensor([[step, step + 1]]))
    assert checked
    assert max(checked) == 2  # never the whole store


def test_streamed_training_equals_resident_training(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_data_larger_than_half_the_memory_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(type(store), "to", lambda self, device: moved.append(device) or self)
    assert move_to_device(store, graphs.x, device)[1].device == device
    assert moved == [device]


def test_weights_on_the_device_have_the_type_of_the_features() -> None:
    graphs = _graphs()
    store = with_weights(graphs.as_store(), torch.float64)
    moved, _ = move_to_device(store, graphs.x.float(), torch.device("meta"))  # stands for a GPU
    assert moved.edge_weight is not None
    assert moved.edge_weight.dtype == torch.float32
    kept, _ = move_to_device(store, graphs.x.float(), torch.device("cpu"))
    assert kept is store
