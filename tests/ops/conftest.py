"""Fixtures shared by the tests of operations: the device on which kernels run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphcaps.ops._triton.dispatch import triton_installed
from tests.ops.launch_checker import check_launches


@pytest.fixture
def kernel_device(monkeypatch: pytest.MonkeyPatch) -> str:
    """The GPU, or the CPU under Triton's interpreter; skips where there is no Triton.

    The interpreter refuses launches that would go wrong on a GPU (:mod:`tests.ops.launch_checker`).
    """
    if not triton_installed():
        pytest.skip("Triton is not installed: pip install triton")
    if torch.cuda.is_available():
        return "cuda"
    _loops_to_loaded_bounds(monkeypatch)
    _products_of_bfloat16(monkeypatch)
    _fewer_steps_per_operation(monkeypatch)
    check_launches(monkeypatch)
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
    called it before; the table of numpy's types, built for every number; and shapes with the names of their types.
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

    _known_shapes(monkeypatch)
    monkeypatch.setattr(interpreter, "_patch_lang", patched)
    monkeypatch.setattr(interpreter, "_get_np_dtype", known_type)


def _known_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds the shape of a type and of a tensor once for all of the same sizes; nothing changes them."""
    from triton.language import core, semantic

    broadcast = semantic.TritonSemantic.broadcast_impl_value
    block_type, shapes, tensors = core.block_type.__init__, dict[Any, Any](), dict[Any, Any]()

    def new_block_type(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple(size.value if isinstance(size, core.constexpr) else size for size in shape)
        key = (element_ty.name, sizes)
        if key not in shapes:
            block_type(self, element_ty, shape)
            shapes[key] = self.shape, self.numel, self.name
        self.element_ty = element_ty
        self.shape, self.numel, self.name = shapes[key]

    def new_tensor(self: Any, handle: Any, type: Any) -> None:
        sizes = tuple(type.shape.values) if type.is_block() else ()
        if sizes not in tensors:
            count = core.constexpr(math.prod(sizes))
            tensors[sizes] = count, core.tuple([core.constexpr(size) for size in sizes])
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.numel, self.shape = tensors[sizes]

    def to_one_shape(self: Any, lhs: Any, rhs: Any) -> Any:
        return (lhs, rhs) if lhs.shape is rhs.shape else broadcast(self, lhs, rhs)

    monkeypatch.setattr(semantic.TritonSemantic, "broadcast_impl_value", to_one_shape)
    monkeypatch.setattr(core.block_type, "__init__", new_block_type)
    monkeypatch.setattr(core.tensor, "__init__", new_tensor)
