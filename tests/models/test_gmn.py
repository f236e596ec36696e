"""GMN against the same network on padded batches with torch-geometric's MemPooling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import MemPooling
from torch_geometric.utils import to_dense_batch

import graphcaps
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.precompute import precompute
from graphcaps.errors import ArgumentError
from graphcaps.models.gmn import GMN
from graphcaps.nn.memory_network import MemoryNetwork
from graphcaps.registry import DatasetSize
from graphcaps.training.final_training import train_final
from graphcaps.types import ModelOutput
from tests.graphs import assert_equal, random_graphs
from tests.small_models import planted

_OPTIONS: dict[str, Any] = {
    "hidden": 8,
    "position_channels": 3,
    "walk_columns": 6,
    "num_keys": (4, 2),
    "heads": 2,
    "divergence_weight": 0.3,
    "dropout": 0.0,
}


def copy_memories(model: MemoryNetwork) -> list[MemPooling]:
    """torch-geometric's layers with the weights of the model's."""
    layers = []
    for own in model.memories:
        heads, keys, channels = own.keys.shape  # type: ignore[union-attr]
        layer = MemPooling(channels, own.linear.weight.size(-1), heads, keys).double()  # type: ignore[union-attr]
        with torch.no_grad():
            layer.k.copy_(own.keys)  # type: ignore[arg-type]
            layer.conv.weight.copy_(own.merge.reshape(1, -1, 1, 1))  # type: ignore[operator, union-attr]
            layer.lin.weight.copy_(own.linear.weight.mT)  # type: ignore[union-attr]
        layers.append(layer)
    return layers


def run_memories(
    model: MemoryNetwork, layers: list[MemPooling], q: Tensor, batch: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits and mean divergence of queries on padded batches."""
    q, mask = to_dense_batch(q, batch)
    divergence = torch.zeros((), dtype=torch.float64)
    for number, layer in enumerate(layers):
        q, assignment = layer(q, mask=mask if number == 0 else None)
        divergence = divergence + MemPooling.kl_loss(assignment)
        q = nn.functional.leaky_relu(q, 0.2)
    return q.mean(1) @ model.head.weight + model.head.bias, divergence  # type: ignore[operator]


def test_equals_torch_geometric() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 5, 4], classes=3)
    model = GMN(5, 3, key_gradient="all", **_OPTIONS).double()
    store = precompute(graphs.as_store(), model.precomputation, dtype=torch.float64)
    batch = store.batch(graphs.x)
    assert batch.columns is not None
    layers = copy_memories(model)

    columns = nn.functional.batch_norm(torch.cat([graphs.x, batch.columns], -1), None, None, training=True)
    x, walks = columns.split([5, 6], -1)

    def leaky(rows: Tensor, linear: Any) -> Tensor:
        return nn.functional.leaky_relu(rows @ linear.weight + linear.bias, 0.2)

    q = torch.cat([leaky(leaky(x, model.first), model.second), leaky(walks, model.position)], -1)
    scores, divergence = run_memories(model, layers, q, graphs.batch)
    expected = nn.functional.cross_entropy(scores, graphs.y) + 0.3 * divergence

    output = model.forward_batch(batch)
    terms = model.loss(output, graphs.y)
    assert_equal(output.class_scores, scores, "logits")
    assert_equal(terms.terms["divergence"], divergence, "divergence")
    assert_equal(terms.total, expected, "loss")
    names = ["first.weight", "second.weight", "position.weight", "head.weight"]
    inner = [model.get_parameter(name) for name in names]
    ours = torch.autograd.grad(terms.total, [*inner, *(memory.keys for memory in model.memories)])  # type: ignore[misc]
    theirs = torch.autograd.grad(expected, [*inner, *(layer.k for layer in layers)])
    for name, actual, wanted in zip([*names, "keys 1", "keys 2"], ours, theirs, strict=True):
        assert float(wanted.abs().max()) > 1e-6
        assert_equal(actual, wanted, f"gradient of {name}")


def test_loss_of_scores_alone_is_the_cross_entropy() -> None:
    model = GMN(5, 2, **_OPTIONS).double()
    graphs = random_graphs([3, 4])
    output = model(graphs.x, graphs.edge_index, graphs.batch)
    alone = model.loss(ModelOutput(output.class_scores), graphs.y)
    assert set(alone.terms) == {"cross-entropy"}
    assert_equal(alone.total, model.loss(output, graphs.y).terms["cross-entropy"])


def test_from_training_to_predictions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    store = planted()
    config = RunConfig(
        model="gmn", model_arguments={"hidden": 8}, training=TrainConfig(epochs=1, batch_size=16)
    )
    model = train_final(store, config, seed=0).model
    assert model.model.walk_columns == int(store.sizes.max())
    model.save(tmp_path / "model.safetensors")
    loaded = graphcaps.load(tmp_path / "model.safetensors")
    probabilities = loaded.predict_proba(store)
    assert np.array_equal(probabilities, model.predict_proba(store))
    assert np.allclose(loaded.predict_proba(store[[3]]), probabilities[3], atol=1e-6)


def test_number_of_columns_follows_from_the_largest_graph() -> None:
    rule = GMN.data_options["walk_columns"].rule
    assert [rule(DatasetSize(counts, 2)) for counts in ((1,), (9, 37), (10, 3000))] == [1, 37, 128]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 1}, "'hidden' must be at least 2, got 1"),
        ({"walk_columns": 0}, "'walk_columns' must be at least 1, got 0"),
        ({"step_probability": 1.0}, "'step_probability' must be at least 0 and below 1, got 1.0"),
        ({"num_keys": (3, 0)}, "'num_keys' must name at least one number, each at least 1, got"),
        ({"num_keys": ()}, "'num_keys' must name at least one number, each at least 1, got"),
        ({"divergence_weight": -1.0}, "'divergence_weight' must be at least 0, got -1.0"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^GMN: {message}"):
        GMN(5, 2, **options)
