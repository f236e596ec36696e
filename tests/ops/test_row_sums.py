"""Sums of rows by an index: values, gradients, and what ``torch.compile`` makes of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.ops.row_sums import select_rows, sum_rows

ROWS, GRAPHS = 40, 8
INDEX = torch.tensor([2, 0, 2, 3, 2])


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def graph_and_node_sums() -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Sums over the rows of each graph, and rows plus the sum over their neighbours, as GIN computes them."""
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randint(ROWS, (2, 90), generator=generator)
    graph = torch.arange(ROWS) // (ROWS // GRAPHS)

    def compute(x: Tensor) -> tuple[Tensor, Tensor]:
        nodes = x + sum_rows(select_rows(x, source), target, ROWS)
        return sum_rows(x, graph, GRAPHS), nodes

    return compute


def values_and_gradient(compute: Callable[[Tensor], tuple[Tensor, Tensor]]) -> list[Tensor]:
    x = torch.rand(ROWS, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    graphs, nodes = compute(x)
    (graphs.square().sum() + nodes.square().sum()).backward()
    assert x.grad is not None
    return [graphs.detach(), nodes.detach(), x.grad]


def test_sums_and_rows_of_an_example() -> None:
    rows = torch.tensor([[1.0, 10], [2, 20], [3, 30], [4, 40], [5, 50]])
    assert sum_rows(rows, INDEX, 5).tolist() == [[2, 20], [0, 0], [9, 90], [4, 40], [0, 0]]
    assert select_rows(rows, INDEX)[:, 0].tolist() == [3, 1, 3, 4, 3]


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 3, 2), (5, 0)], ids=str)
def test_the_operators_satisfy_the_checks_of_torch(shape: tuple[int, ...]) -> None:
    rows = torch.rand(shape).requires_grad_()
    torch.library.opcheck(torch.ops.graphcaps.sum_rows, (rows, INDEX, 4))
    torch.library.opcheck(torch.ops.graphcaps.select_rows, (rows, INDEX))


def test_the_operators_equal_what_runs_without_a_compiler() -> None:
    operators = torch.ops.graphcaps
    for function, operator, arguments in (
        (sum_rows, operators.sum_rows, (INDEX, 4)),
        (select_rows, operators.select_rows, (INDEX,)),
    ):
        results: list[list[Tensor]] = []
        for call in (function, operator):
            rows = torch.arange(10.0).reshape(5, 2).requires_grad_()
            result = call(rows, *arguments)  # type: ignore[operator]
            result.square().sum().backward()
            assert rows.grad is not None
            results.append([result.detach(), rows.grad])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_code_calls_the_operators_in_both_passes() -> None:
    """No sum by an index is left to a compiler, also not in the gradient."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    called: list[str] = []

    def record(module: torch.fx.GraphModule, _: Any) -> Any:
        called.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return make_boxed_func(module.forward)

    expected = values_and_gradient(graph_and_node_sums())
    backend = aot_autograd(fw_compiler=record, bw_compiler=record)
    found = values_and_gradient(torch.compile(graph_and_node_sums(), backend=backend))
    torch.testing.assert_close(found, expected)
    # Two sums forward and one backward; rows are taken once forward and once for each sum backward.
    assert sum("graphcaps.sum_rows" in name for name in called) == 3
    assert sum("graphcaps.select_rows" in name for name in called) == 3
    assert not any("index" in name or "scatter" in name for name in called)


@pytest.mark.slow  # starts the C++ compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore")  # inductor warns of its own code
def test_inductor_computes_the_same_sums() -> None:
    compute = graph_and_node_sums()
    compiled = torch.compile(compute, backend="inductor")
    x = torch.rand(ROWS, 5)
    torch.testing.assert_close(compiled(x), compute(x))
    torch.testing.assert_close(values_and_gradient(compiled), values_and_gradient(compute))
