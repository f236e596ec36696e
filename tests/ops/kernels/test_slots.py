"""Slots of a batch in one kernel are those of the index arithmetic in torch."""

import pytest
import torch

from graphcaps.data.assemble import _slots
from graphcaps.ops.kernels import kernels_wanted

PTR = torch.tensor([0, 3, 5, 9, 10, 16, 149])
NAMES = ("ptr", "index", "node", "first")


@pytest.mark.parametrize(
    "graphs",
    [
        [[4, -1, 0, 2], [1, 1, 3, -1], [-1, -1, -1, -1]],
        [[5], [0]],
        [[0, 1, 2, 3, 4, 5, -1, -1, -1, 0, 1, 2, 3, 4, 5, 1, 2, -1]],
        [-1, 2, 2, 5],
    ],
    ids=["padding", "one", "many", "no lead"],
)
@pytest.mark.parametrize("spare", [0, 1, 70])
def test_slots_equal_torch(kernel_device: str, graphs: list[list[int]], spare: int) -> None:
    from graphcaps.ops.kernels.slots import slots

    chosen = torch.tensor(graphs)
    sizes = PTR.diff()[chosen.clamp_min(0)].masked_fill(chosen < 0, 0)
    V = int(sizes.sum(-1).max()) + spare
    with kernels_wanted("off"):
        expected = _slots(PTR, chosen, V)
    found = slots(PTR.to(kernel_device), chosen.to(kernel_device), V)
    for name, one, other in zip(NAMES, found, expected, strict=True):
        assert torch.equal(one.cpu(), other), name
