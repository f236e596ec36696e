"""Fixtures shared by the tests of operations: the device on which kernels run."""

from __future__ import annotations

from dataclasses import replace
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
    _fewer_steps_per_operation(monkeypatch)
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


def _fewer_steps_per_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what Triton 3.6 repeats for every interpreted operation, more than half of its time; values are equal.

    These are a test of every sum and product of 32-bit integers for overflow, which needs larger tensors than tests
    have; the replacement of the language by interpreted functions in every call of a function, also if the kernel has
    called it before; and the table of numpy's types, built for every number.
    """
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    monkeypatch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))
    patch_lang, numpy_type = interpreter._patch_lang, interpreter._get_np_dtype
    scopes: dict[int, Any] = {}

    class AllScopes:
        """What a kernel and the functions that it calls have replaced, each module once, until the kernel ends."""

        def restore(self) -> None:
            for scope in reversed(scopes.values()):
                scope.restore()
            scopes.clear()

    def patched(fn: Any) -> AllScopes:
        if id(fn.__globals__) not in scopes:
            scopes[id(fn.__globals__)] = patch_lang(fn)
        return AllScopes()

    types: dict[str, Any] = {}

    def known_type(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in types:
            types[name] = numpy_type(dtype)
        return types[name]

    monkeypatch.setattr(interpreter, "_patch_lang", patched)
    monkeypatch.setattr(interpreter, "_get_np_dtype", known_type)
