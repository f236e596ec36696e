"""What the option ``parts`` of HGCN has to satisfy: replicas, and the order of nodes."""

from collections.abc import Callable

import torch
from torch import Tensor

from graphcaps.nn import HGCN
from graphcaps.types import GraphBatch, HGCNOutput
from tests.graphs import Graphs, assert_equal, random_graphs

MakeBatch = Callable[[Graphs, Tensor], GraphBatch]
"""Makes a batch of the chosen graphs."""


def losses_and_gradients(model: HGCN, batch: GraphBatch) -> tuple[HGCNOutput, Tensor, dict[str, Tensor]]:
    """Output, loss and gradients of a step."""
    model.zero_grad()
    output = model.forward_batch(batch, batch.y)
    assert batch.y is not None
    total = model.loss(output, batch.y).total
    total.sum().backward()
    return output, total, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def check_replicas(stacked: HGCN, singles: list[HGCN], make_batch: MakeBatch) -> None:
    """Compares each of three replicas, of which the last has a smaller batch, with a model of its own."""
    graphs, indices = random_graphs([7, 40, 1, 12, 33, 5]), [[0, 1, 3], [5, 4, 2], [3, 0, -1]]
    state = stacked.state_dict()
    for f, single in enumerate(singles):
        for name, value in single.state_dict().items():
            state[name][f].copy_(value)
    together = losses_and_gradients(stacked, make_batch(graphs, torch.tensor(indices)))
    assert together[1].shape == (3,)
    for f, single in enumerate(singles):
        batch = make_batch(graphs, torch.tensor([g for g in indices[f] if g >= 0]))
        _, total, gradients = losses_and_gradients(single, batch)
        assert_equal(together[1][f], total, f"loss of replica {f}")
        for name, gradient in gradients.items():
            assert_equal(together[2][name][f], gradient, f"{name} of replica {f}")
        for name, value in single.state_dict().items():
            assert_equal(stacked.state_dict()[name][f].double(), value.double(), name)


def check_node_order(model: HGCN, make_batch: MakeBatch) -> None:
    """Compares a step on graphs whose nodes are listed in another order."""
    graphs = random_graphs([7, 12, 4])
    permutations = [torch.randperm(n, generator=torch.Generator().manual_seed(n)) for n in (7, 12, 4)]
    order = torch.cat([permutations[0], permutations[1] + 7, permutations[2] + 19])
    permuted = Graphs(graphs.x[order], order.argsort()[graphs.edge_index], graphs.batch, graphs.y)
    bare, other = (
        losses_and_gradients(model, make_batch(one, torch.arange(3))) for one in (graphs, permuted)
    )
    assert_equal(other[0].levels[0].assignment, bare[0].levels[0].assignment[order], "assignment")
    assert_equal(other[1], bare[1], "loss")
    for name, gradient in bare[2].items():
        assert_equal(other[2][name], gradient, name)
