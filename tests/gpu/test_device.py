"""GPU results equal CPU results in float64: values, gradients and trainings."""

from typing import Any

import pytest
import torch

from graphcaps.config import TrainConfig
from graphcaps.data import FeatureRecipe, encode_graphs, planted_parts
from graphcaps.models.gin import GIN
from graphcaps.nn import HGCN
from graphcaps.ops import edge_table, reconstruction_loss, route
from graphcaps.training import Replica, Trainer, stack_replicas
from graphcaps.types import Segments
from tests.graphs import assert_equal, random_graphs, with_kinds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

EDGE_KINDS = (3, 2)
MODELS: dict[str, Any] = {
    "hgcn": lambda lead: HGCN(5, 2, capsule_dim=16, num_capsules=(6,), dropout=0.3, lead=lead),
    "hgcn, deep": lambda lead: HGCN(5, 2, capsule_dim=16, num_capsules=(6, 3), residual_nodes=70, lead=lead),
    "hgcn, paper": lambda lead: HGCN(5, 2, capsule_dim=16, num_capsules=(6,), formulation="paper", lead=lead),
    "hgcn, gat": lambda lead: HGCN(5, 2, capsule_dim=16, num_capsules=(6,), trunk="gat", lead=lead),
    "hgcn, context": lambda lead: HGCN(
        5, 2, capsule_dim=16, num_capsules=(6,), context="residual", context_layers=2, lead=lead
    ),
    "hgcn, edge labels": lambda lead: HGCN(
        5, 2, capsule_dim=16, num_capsules=(6,), context="residual", edge_kinds=EDGE_KINDS, lead=lead
    ),
    "gin": lambda lead: GIN(5, 2, hidden=16, lead=lead),
}


@pytest.mark.parametrize("indices", [None, [[0, 1, 3], [4, 2, -1]]], ids=["one model", "replicas"])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_model_equals_cpu(make: Any, indices: list[list[int]] | None) -> None:
    graphs = random_graphs([7, 70, 1, 33, 12])
    lead = () if indices is None else (2,)
    results = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        model = make(lead).double().to(device)
        store = with_kinds(graphs.as_store(), EDGE_KINDS).to(device)
        batch = store.batch(graphs.x.to(device), None if indices is None else torch.tensor(indices))
        output = model.forward_batch(batch, batch.y)
        model.loss(output, batch.y).total.sum().backward()
        gradients = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
        results.append(
            {"scores": output.class_scores.cpu()} | gradients | {n: b.cpu() for n, b in model.named_buffers()}
        )
    for name, value in results[0].items():
        if value.is_floating_point():
            assert_equal(results[1][name], value, name)
        else:
            assert torch.equal(results[1][name], value), name


def test_ops_without_sizes_on_the_host_equal_cpu() -> None:
    graphs = random_graphs([7, 500, 1, 65])
    h, weight, bias = (torch.randn(*shape, dtype=torch.float64) for shape in ((573, 6), (4, 6, 5), (4, 5)))
    batch = graphs.batch
    z = torch.rand(573, 6, dtype=torch.float64) * 0.5
    results = []
    for device in ("cpu", "cuda"):
        routing = route(*(t.to(device) for t in (h, weight, bias, batch)), 3, num_graphs=4)
        segments = Segments.from_index(batch.to(device), 4)
        table = edge_table(graphs.edge_index.to(device), 573)
        leaf = z.to(device).detach().clone().requires_grad_()
        loss = reconstruction_loss(leaf, table, segments)
        loss.backward()
        results.append([t.cpu() for t in (routing.capsules, routing.assignment, loss.detach(), leaf.grad)])
    for one, two in zip(*results, strict=True):
        assert_equal(two, one)


def test_training_with_dropout_equals_cpu() -> None:
    store = planted_parts(num_graphs=30)
    prepared = encode_graphs(store, FeatureRecipe(degree_onehot=10), dtype=torch.float64)
    indices = torch.arange(30)
    replicas = [Replica(indices[:20], indices[20:25], indices[25:], fold=f) for f in range(3)]

    def make(lead: tuple[int, ...]) -> HGCN:
        width = prepared.recipe.num_columns
        return HGCN(width, 3, capsule_dim=16, num_capsules=(4,), dropout=0.3, lead=lead)

    runs = []
    for device in ("cpu", "cuda"):
        model = stack_replicas(make, replicas, torch.float64).to(device)
        trainer = Trainer(
            model, store.to(device), prepared.x.to(device), replicas, TrainConfig(epochs=4, batch_size=7)
        )
        runs.append(list(trainer.run()))
    for one, two in zip(*runs, strict=True):
        assert two.train_loss == pytest.approx(one.train_loss, abs=1e-8)
        assert two.validation_loss == pytest.approx(one.validation_loss, abs=1e-8)
        assert two.test_accuracy == one.test_accuracy
