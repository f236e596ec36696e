"""The dispatch table: every entry names an existing Triton form of the same signature, and no form is left out."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import torch

import graphcaps.ops
from graphcaps.errors import ArgumentError
from graphcaps.ops._triton import dispatch
from graphcaps.ops._triton.dispatch import (
    TRITON_FORMS,
    TritonForm,
    kernels_available,
    select,
    supports,
    use_kernels,
    uses_reference,
)
from graphcaps.ops.batch_shard import BatchShard, use_shard

OPS = Path(graphcaps.ops.__file__).parent
TREES = {
    ".".join(path.relative_to(OPS).with_suffix("").parts): ast.parse(path.read_text("utf-8"))
    for path in sorted(OPS.rglob("*.py"))
    if path.name != "__init__.py"
}
TRITON = {name: tree for name, tree in TREES.items() if name.endswith("_triton")}


def _exported(tree: ast.Module) -> list[str]:
    """The names in ``__all__``."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    raise AssertionError("no __all__")


@cache
def _selected() -> dict[str, tuple[str, str]]:
    """Module and torch form of every call of ``select``, by operation."""
    calls = {}
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "select":
                operation, torch_form = node.args[:2]
                assert isinstance(operation, ast.Constant), f"{module}: line {node.lineno}"
                assert isinstance(torch_form, ast.Name), f"{module}: line {node.lineno}"
                assert operation.value not in calls, f"{operation.value} is selected at two places"
                calls[str(operation.value)] = (module, torch_form.id)
    return calls


def test_every_operation_of_the_table_is_selected_once() -> None:
    assert sorted(_selected()) == sorted(TRITON_FORMS)


@pytest.mark.parametrize("operation", sorted(TRITON_FORMS))
def test_an_entry_names_an_exported_function_and_states_its_condition(operation: str) -> None:
    form = TRITON_FORMS[operation]
    assert form.function in _exported(TRITON[form.module])
    functions = [node.name for node in TRITON[form.module].body if isinstance(node, ast.FunctionDef)]
    assert form.function in functions
    assert form.condition.__doc__


def test_an_entry_says_whether_it_needs_a_whole_batch() -> None:
    with pytest.raises(TypeError, match="whole_batch"):
        TritonForm("lengths.lengths_triton", "lengths")  # type: ignore[call-arg]


@pytest.mark.parametrize("module", sorted(TRITON))
def test_an_exported_name_is_in_the_table_or_used_by_another_module(module: str) -> None:
    used = {form.function for form in TRITON_FORMS.values() if form.module == module}
    for tree in TRITON.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == f"graphcaps.ops.{module}":
                used |= {alias.name for alias in node.names}
    assert set(_exported(TRITON[module])) <= used


def test_only_the_table_imports_triton_modules() -> None:
    """Elsewhere they are named as strings in the table, so that Triton stays optional and no cycle arises."""
    for module, tree in TREES.items():
        if module in TRITON:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").endswith("_triton"), f"{module}: line {node.lineno}"


@pytest.mark.parametrize("operation", sorted(TRITON_FORMS))
def test_both_forms_have_the_same_signature(operation: str, kernel_device: str) -> None:
    module, name = _selected()[operation]
    torch_form = getattr(import_module(f"graphcaps.ops.{module}"), name)
    triton_form = TRITON_FORMS[operation].load()
    assert callable(triton_form)
    signatures = [inspect.signature(form) for form in (torch_form, triton_form)]
    names = [[(p.name, p.kind) for p in signature.parameters.values()] for signature in signatures]
    assert names[0] == names[1]


def _torch_form(u: torch.Tensor) -> torch.Tensor:
    return u


def _reference_form(u: torch.Tensor) -> torch.Tensor:
    return u.clone()


@pytest.fixture
def _fresh_mode() -> Iterator[None]:
    """The mode of the process is read again after the test."""
    yield
    dispatch._mode_of_process.cache_clear()


@pytest.mark.usefixtures("_fresh_mode")
def test_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_installed", lambda: True)
    monkeypatch.delenv("GRAPHCAPS_KERNELS", raising=False)
    dispatch._mode_of_process.cache_clear()
    x = torch.ones(2, 3)
    assert not kernels_available(x)  # on a CPU
    with use_kernels("always"):
        assert kernels_available(x, None, torch.ones(2, dtype=torch.long))
        assert not kernels_available(x.double())
        with use_kernels("off"):
            assert not kernels_available(x)
            assert select("lengths", _torch_form, x) is _torch_form
        with use_kernels("reference"):
            assert uses_reference()
            assert not kernels_available(x)
            assert select("lengths", _torch_form, x) is _torch_form
            assert select("lengths", _torch_form, x, reference=_reference_form) is _reference_form
        assert kernels_available(x)
    assert not uses_reference()
    assert select("lengths", _torch_form, x, reference=_reference_form) is _torch_form
    monkeypatch.setenv("GRAPHCAPS_KERNELS", "always")
    dispatch._mode_of_process.cache_clear()
    assert kernels_available(x)
    monkeypatch.setenv("GRAPHCAPS_KERNELS", "sometimes")
    dispatch._mode_of_process.cache_clear()
    with pytest.raises(
        ArgumentError,
        match=r"'GRAPHCAPS_KERNELS' must be one of auto, off, always, reference, got 'sometimes'",
    ):
        kernels_available(x)
    monkeypatch.setattr(dispatch, "triton_installed", lambda: False)
    with use_kernels("always"):
        assert not kernels_available(x)


def test_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_installed", lambda: True)
    x = torch.ones(2, 3)
    with use_kernels("always"):
        assert supports("margin_loss", x, None, None)
        assert not supports("margin_loss", x, torch.ones(3), None)
        assert not supports("margin_loss", x, None, torch.ones(2))
        assert supports("activate", x, x)
        assert not supports("activate", torch.ones(1, dispatch.WIDEST_ACTIVATION + 1), x)
        assert not supports("segment_sum", torch.ones(2, 3, dtype=torch.long))
        assert not supports("layout_batch", torch.ones(2, dtype=torch.long))
        assert supports("dense_hop", x, torch.ones(2, 2))
        assert supports("dense_hop", x, torch.ones(2, 2, requires_grad=True))
        assert not supports("weighted_degrees", torch.ones(2, requires_grad=True))
        rows, weight = torch.zeros(2, dtype=torch.long), torch.ones(4)
        hop = x, torch.ones(3), rows, rows
        for training in (True, False):
            assert supports("normalised_hop", *hop, weight, training=training) == training
        assert not supports("normalised_hop", *hop, weight.double(), training=True)
        assert not supports("normalised_hop", *hop, weight.requires_grad_(), training=True)


def test_a_form_that_needs_a_whole_batch_does_not_run_on_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_installed", lambda: True)
    x = torch.ones(2, 3)
    shard = BatchShard(*torch.zeros(4, 2), num_ranks=2, total=torch.clone)
    with use_kernels("always"):
        assert supports("margin_loss", x, None, None)
        with use_shard(shard):
            assert not supports("margin_loss", x, None, None)
            assert select("margin_loss", _torch_form, x, None, None) is _torch_form
            assert supports("dense_hop", x, torch.ones(2, 2))
