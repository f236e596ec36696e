"""Fixtures shared by the tests of operations: the device on which kernels run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphcaps.ops._triton.dispatch import triton_installed


@pytest.fixture
def kernel_device(monkeypatch: pytest.MonkeyPatch) -> str:
    """The GPU, or the CPU under Triton's interpreter; skips where there is no Triton."""
    if not triton_installed():
        pytest.skip("Triton is not installed: pip install triton")
    if torch.cuda.is_available():
        return "cuda"
    _loops_to_loaded_bounds(monkeypatch)
    _products_of_bfloat16(monkeypatch)
    return "cpu"


def _loops_to_loaded_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6 interprets a scalar as an array of one number, which numpy 2.4 does not accept as a loop bound."""
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)


def _products_of_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6 stores bfloat16 as integers under the interpreter, and would multiply those."""
    from triton import language as tl
    from triton.runtime import interpreter

    original = interpreter.InterpreterBuilder.create_dot

    def opened(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        numbers = (handle.data.astype("uint32") << 16).view("float32")
        return interpreter.TensorHandle(numbers, tl.float32)

    def patched(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return original(self, opened(a), opened(b), *rest)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", patched)
