"""Kernels that start before the one before them has ended, for GPUs that are not there."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import graphcaps.ops
from graphcaps.ops._triton import kernel as module
from graphcaps.ops._triton.kernel import _Kernel, await_inputs, kernel
from tests.ops._triton.stub_driver import StubDriver

SOURCES = sorted(
    path
    for path in Path(graphcaps.ops.__path__[0]).rglob("*.py")
    if "import triton" in path.read_text("utf-8") and path.name not in ("kernel.py", "precompilation.py")
)


def _double(x, out, N: tl.constexpr):
    """Twice a number."""
    await_inputs()
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) * 2)


@pytest.fixture
def capability(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    """A driver of a GPU of this compute capability; kernels are compiled for it, and not launched."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    before = driver._active
    driver.set_active(StubDriver(GPUTarget("cuda", request.param, 32)))  # type: ignore[no-untyped-call]
    module._starts_early.cache_clear()
    yield request.param
    driver._active = before
    module._starts_early.cache_clear()


@pytest.mark.parametrize("capability", [80, 90, 100], indirect=True)
@pytest.mark.parametrize("overlaps", [True, False])
def test_a_kernel_waits_before_it_reads(
    capability: int, overlaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OVERLAPS", overlaps)
    monkeypatch.setattr(
        sys.modules[__name__], "await_inputs", JITFunction(await_inputs.fn)
    )  # not that of the interpreter
    compiled = _Kernel(_double)[(1,)](torch.ones(16), torch.ones(16), N=16)
    assert compiled.metadata.launch_pdl == (overlaps and capability >= 90)
    code = compiled.asm["ptx"]
    if capability < 90:
        assert "griddepcontrol" not in code
    else:
        assert code.index("griddepcontrol.wait") < code.index("ld.global")


def test_the_interpreter_runs_the_same_kernel(kernel_device: str) -> None:
    x, out = torch.arange(16.0, device=kernel_device), torch.empty(16, device=kernel_device)
    kernel(_double)[(1,)](x, out, N=16)
    assert torch.equal(out, 2 * x)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_all_kernels_wait_first(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    launched = {
        node.func.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id.endswith("_kernel")
    }
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    decorated = [
        node
        for node in functions
        if any(ast.unparse(each).split("(")[0] == "kernel" for each in node.decorator_list)
    ]
    names = {node.name for node in decorated}
    assert launched <= names
    assert names == {node.name for node in functions if node.name.endswith("_kernel")}
    for node in decorated:
        first = node.body[ast.get_docstring(node) is not None]
        assert ast.unparse(first) == "await_inputs()", node.name
