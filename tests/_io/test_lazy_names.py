"""Names that packages import on first use."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphcaps._io.lazy_names import lazy_names

PACKAGES = ["graphcaps", "graphcaps.data", "graphcaps.ops", "graphcaps.serve", "graphcaps.training"]


def checked_names(package: ModuleType) -> dict[str, str]:
    """Names that type checkers read, and the module that each comes from."""
    tree = ast.parse(Path(str(package.__file__)).read_text("utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node)]
    nodes = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in nodes for alias in node.names}


@pytest.mark.parametrize("package", PACKAGES)
def test_python_and_type_checkers_find_the_same_names(package: str) -> None:
    module = importlib.import_module(package)
    checked = checked_names(module)
    for name, origin in checked.items():
        value = module.__getattr__(name)
        assert not isinstance(value, ModuleType)
        assert value is getattr(importlib.import_module(origin), name)
    assert checked.keys() <= set(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_dir_lists_all_names_before_they_are_used(package: str) -> None:
    code = f"import {package} as package; print(*dir(package))"
    listed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert listed.split() == sorted(importlib.import_module(package).__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_another_name_is_an_attribute_error(package: str) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=rf"^module '{package}' has no attribute 'nothing'$"):
        _ = module.nothing


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package with a lazy name and a lazy module."""
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("__all__ = ['b', 'module', 'a']\n")
    (folder / "module.py").write_text("a = object()\nb = object()\n")
    monkeypatch.syspath_prepend(tmp_path)
    package: Any = importlib.import_module("lazy_package")
    package.__getattr__, package.__dir__ = lazy_names(
        "lazy_package", {"lazy_package.module": ["a", "b"]}, submodules=["module"]
    )
    yield package
    for name in ("lazy_package", "lazy_package.module"):
        sys.modules.pop(name, None)


def test_a_name_is_imported_once_and_kept(package: Any) -> None:
    assert dir(package) == ["a", "b", "module"]
    assert "lazy_package.module" not in sys.modules
    value = package.a
    assert value is sys.modules["lazy_package.module"].a
    assert vars(package)["a"] is value
    assert "b" not in vars(package)


def test_a_module_is_imported_on_first_use(package: Any) -> None:
    assert package.module is sys.modules["lazy_package.module"]


def test_the_package_is_imported_without_torch_and_typing() -> None:
    code = (
        "import sys; before = {*sys.modules}; import graphcaps; new = {*sys.modules} - before;"
        "assert not new & {'torch', 'numpy', 'typing', 'collections.abc'}, new"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=True, env={"PYTHONPATH": _sources()})


def test_a_function_with_the_name_of_its_module_is_the_function() -> None:
    code = "import graphcaps.ops.squash, graphcaps.ops as ops; assert callable(ops.squash)"
    subprocess.run([sys.executable, "-c", code], check=True)


def _sources() -> str:
    return str(Path(str(importlib.import_module("graphcaps").__file__)).parents[1])
