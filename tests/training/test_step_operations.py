"""The number of operations of a training step on a CPU, whatever the load of the machine is.

A step of a small model takes as long as its operations are many: this is the guard of its speed.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graphcaps.config import TrainConfig
from graphcaps.nn import HGCN, GraphModel
from graphcaps.training import Replica, Trainer, stack_replicas
from graphcaps.types import LossOptions
from tests.graphs import with_kinds
from tests.ops.test_written_gradients import small_store

MOST_OPERATIONS = {"fused": 360, "layers": 590}
"""Of a step of the default model and its part of the epoch, views of tensors included; torch 2.13 counts 344 and 564.
In the first, each array of numpy that becomes a tensor counts as two; the operations of numpy are not counted."""


class Counter(TorchDispatchMode):
    """Counts the operations that torch dispatches, those of the backward pass included."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("form", MOST_OPERATIONS)
def test_a_step_has_few_operations(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if form == "layers":
        monkeypatch.setattr(HGCN, "training_function", GraphModel.training_function)
    store = small_store([9, 12, 20, 7, 5, 11, 13, 8])
    x = torch.rand(store.num_nodes, 5)
    replica = Replica(torch.arange(8), torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))
    config = TrainConfig(epochs=3, batch_size=2, weight_decay=0.001)
    model = stack_replicas(
        lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), dropout=0.5, lead=lead), [replica]
    )
    trainer = Trainer(model, store, x, [replica], config)
    trainer.run_epoch()
    counter = Counter()
    with counter:
        trainer.run_epoch()
    steps = len(replica.train) // config.batch_size
    assert counter.count / steps <= MOST_OPERATIONS[form]


class Largest(TorchDispatchMode):
    """The number of elements of the largest new tensor; views of others are none."""

    size = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if not function.is_view:
            tensors = [
                each for each in torch.utils._pytree.tree_leaves(result) if isinstance(each, torch.Tensor)
            ]
            self.size = max(self.size, *(each.numel() for each in tensors), 0)
        return result


@pytest.mark.parametrize(
    "options",
    [{}, {"edge_kinds": (3,)}, {"context": "gin"}, {"context": "gated"}, {"trunk": "sage"}, {"trunk": "gat"}],
    ids=str,
)
def test_a_step_makes_no_tensor_of_the_size_of_the_store(options: dict[str, Any]) -> None:
    """The time of a step must not grow with the number of graphs that it does not read."""
    store = small_store([6] * 3000)
    store = with_kinds(store, options["edge_kinds"]) if "edge_kinds" in options else store
    x = torch.rand(store.num_nodes, 3)
    model = HGCN(3, 2, capsule_dim=8, num_capsules=(4,), **options)
    batch = store.batch(x, torch.tensor([5, 2900, 17]))
    largest = Largest()
    with largest:
        model.training_function()(batch, LossOptions()).backward()
    assert largest.size < store.num_nodes // 4
