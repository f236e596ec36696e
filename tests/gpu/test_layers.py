"""Replica layers on a GPU: captured steps equal eager steps, and results equal those on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphcaps import load_dataset
from graphcaps.config import TrainConfig
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.models import GraphModel
from graphcaps.nn import (
    GraphLayer,
    ReplicaGCNConv,
    ReplicaGINConv,
    ReplicaLinear,
    ReplicaMLP,
    ReplicaSAGEConv,
    cross_entropy,
    max_pool,
    mean_pool,
    sum_pool,
    top_k,
)
from graphcaps.ops import clear_padding
from graphcaps.training import Replica, Trainer, stack_replicas
from graphcaps.training.trainer import StepMode
from graphcaps.types import GraphBatch, LossOptions, LossTerms, ModelOutput
from tests.graphs import assert_equal, random_graphs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


class AllLayers(GraphModel):
    """Every convolution, top-k by ratio and by number, and all poolings."""

    scores = "logits"
    reference = "none"

    def __init__(self, in_channels: int, num_classes: int, *, lead: tuple[int, ...] = ()) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        self.gcn = ReplicaGCNConv(in_channels, 16, lead=lead)
        self.gin = ReplicaGINConv(
            ReplicaMLP([16, 16, 16], dropout=0.2, plain_last=False, lead=lead), train_epsilon=True
        )
        self.sage = ReplicaSAGEConv(16, 16, lead=lead)
        self.score = ReplicaLinear(16, 1, lead=lead)
        self.head = ReplicaMLP([16 * 4, 16, num_classes], dropout=0.2, lead=lead)

    def reset_parameters(self) -> None:
        for part in (self.gcn, self.gin, self.sage, self.score, self.head):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        edges, segments = batch.edges, batch.segments
        x = clear_padding(batch.x, segments)
        for layer in (self.gcn, self.gin, self.sage):
            x = layer(x, edges, segments).relu()
        score = self.score(x).squeeze(-1)
        half, three = top_k(score, segments, ratio=0.5), top_k(score, segments, k=3)
        pooled = [sum_pool(x, segments), mean_pool(x, segments)]
        for best in (half, three):
            kept = best.select(x) * best.score.tanh().unsqueeze(-1)
            pooled.append(max_pool(kept, best.segments))
        return ModelOutput(self.head(torch.cat(pooled, -1), segments.graph_mask))

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        loss = cross_entropy(output.class_scores, y, options.class_weight, options.graph_weight)
        return LossTerms(loss, {"cross-entropy": loss})

    @property
    def capturable(self) -> bool:
        return True


def _trainer(step_mode: StepMode, device: str = "cuda") -> Trainer:
    store = load_dataset("planted-parts")[:200]
    encoded = encode_graphs(store, FeatureRecipe())
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    parts = order.chunk(4)
    replicas = [
        Replica(torch.cat([parts[f], parts[f - 1]])[: 90 - 7 * f], parts[f - 2], parts[f - 3], seed=f, fold=f)
        for f in range(4)
    ]
    model = stack_replicas(
        lambda lead: AllLayers(encoded.x.size(-1), store.num_classes, lead=lead), replicas
    ).to(device)
    config = TrainConfig(epochs=3, batch_size=16, learning_rate=0.002)
    return Trainer(model, store.to(device), encoded.x.to(device), replicas, config, step_mode=step_mode)


def test_captured_steps_equal_eager_steps() -> None:
    captured, bucketed = _trainer("captured"), _trainer("bucketed")
    assert captured.captured
    one, two = list(captured.run()), list(bucketed.run())
    assert [event.train_loss for event in one] == [event.train_loss for event in two]
    state = bucketed.state()
    assert all(torch.equal(value, state[name]) for name, value in captured.state().items())
    cpu = _trainer("eager", "cpu").run_epoch()
    assert one[0].train_loss == pytest.approx(cpu.train_loss, abs=2e-3)


LAYERS: dict[str, Callable[[], GraphLayer[Tensor]]] = {
    "gcn": lambda: ReplicaGCNConv(5, 7, lead=(3,)),
    "gin": lambda: ReplicaGINConv(ReplicaMLP([5, 8, 7], lead=(3,))),
    "sage": lambda: ReplicaSAGEConv(5, 7, lead=(3,)),
}


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients_equal_those_on_a_cpu(name: str) -> None:
    """Kernels in float32 against torch in float64; poolings and top-k after the layer, without synchronisation."""
    graphs = random_graphs([7, 40, 1, 12, 33, 5])
    results = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        store = graphs.as_store().to(device)
        batch = store.batch(graphs.x.to(device, dtype), torch.tensor([[0, 1, 3], [5, 4, 2], [3, 0, -1]]))
        torch.manual_seed(0)
        layer = LAYERS[name]().to(device, dtype)
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        try:
            x = layer(batch.x, batch.edges, batch.segments)
            best = top_k(x[..., 0], batch.segments, ratio=0.5)
            pools = [pool(x, batch.segments) for pool in (sum_pool, mean_pool, max_pool)]
            pools.append(sum_pool(best.select(x) * best.score.unsqueeze(-1), best.segments))
            torch.cat(pools, -1).sin().sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        gradients = [parameter.grad for parameter in layer.parameters()]
        results.append(
            [tensor.detach().cpu().double() for tensor in (*pools, *gradients) if tensor is not None]
        )
        assert best.segments.ptr.tolist() == [[0, 4, 24, 30], [0, 3, 20, 21], [0, 6, 10, 10]]
    for ours, expected in zip(results[1], results[0], strict=True):
        assert_equal(ours, expected, name, 2e-4)
