"""The layout of a batch by the kernel equals that by index arithmetic in torch."""

from __future__ import annotations

import pytest
import torch

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.batch_layout.layout import layout_batch

PTR = torch.tensor([0, 3, 5, 9, 10, 16, 349])
CLASSES = torch.tensor([1, 0, 2, 2, 0, 1])
NAMES = ("graphs", "ptr", "index", "node", "first", "mask", "graph_mask", "y", "active")
CASES = {
    "padding": [[4, -1, 0, 2], [1, 1, 3, -1], [-1, -1, -1, -1]],
    "one": [[5], [0]],
    "many": [[0, 1, 2, 3, 4, 5, -1, -1, -1, 0, 1, 2, 3, 4, 5, 1, 2, -1]],
    "no lead": [-1, 2, 2, 5],
}


@pytest.mark.parametrize("graphs", list(CASES.values()), ids=list(CASES))
@pytest.mark.parametrize("spare", [0, 1, 370])
def test_layout_equals_torch(kernel_device: str, graphs: list[list[int]], spare: int) -> None:
    from graphcaps.ops.batch_layout import layout_triton

    chosen = torch.tensor(graphs)
    sizes = PTR.diff()[chosen.clamp_min(0)].masked_fill(chosen < 0, 0)
    V = int(sizes.sum(-1).max()) + spare
    with use_kernels("off"):
        expected = layout_batch(PTR, chosen, V, classes=CLASSES)
    actual = layout_triton.layout_batch(
        PTR.to(kernel_device), chosen.to(kernel_device), V, classes=CLASSES.to(kernel_device)
    )
    for name in NAMES:
        assert torch.equal(getattr(actual, name).cpu(), getattr(expected, name)), name


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_cursor_advances_through_the_order(kernel_device: str, step: int) -> None:
    from graphcaps.ops.batch_layout import layout_triton

    order = torch.tensor([[4, 1, 0, 2, 3, 3, -1, -1], [0, -1, 1, 2, -1, -1, -1, -1]])
    chosen = order[:, 2 * step : 2 * step + 2]
    cursor = torch.tensor(step, device=kernel_device)
    ptr = PTR.to(kernel_device)
    actual = layout_triton.layout_batch(ptr, order.to(kernel_device), 12, cursor=cursor, batch_size=2)
    with use_kernels("off"):
        reference = layout_batch(PTR, order, 12, cursor=cursor.cpu(), batch_size=2)
        expected = layout_batch(PTR, chosen, 12)
    assert actual.y is None
    for name in NAMES:
        if name != "y":
            assert torch.equal(getattr(actual, name).cpu(), getattr(expected, name)), name
            assert torch.equal(getattr(reference, name), getattr(expected, name)), name
