"""Imports point one way, the core needs only its stated packages, and files stay short."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "graphcaps"
MODULES = sorted(PACKAGE.rglob("*.py"))

CORE = {
    *("torch", "torch_geometric", "numpy", "scipy", "sklearn", "networkx"),
    *("typer", "rich", "safetensors", "matplotlib"),
}
# Triton comes with torch where there is a GPU; only these modules may name it, and they are imported late.
KERNELS = "graphcaps.ops.kernels."
BASE = {
    *("types", "shapes", "feature_rows"),
    *("errors", "registry", "imports", "files", "sealed", "versions"),
}
# What each part may import besides itself; "base" is the modules above.
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "ops": {"base"},
    "nn": {"base", "ops"},
    "baselines": {"base", "ops", "nn"},
    "data": {"base", "ops"},
    "engine": {"base", "ops", "nn", "baselines", "data"},
    "probability": {"base"},
    "unlike": {"base", "data"},
    "fitted": {
        *("base", "ops", "nn", "baselines", "data", "engine", "model_file", "explanation"),
        *("probability", "unlike", "export"),
    },
    "model_file": {"base", "ops", "nn", "baselines", "data", "engine", "fitted", "probability", "unlike"},
    "export": {"base", "ops", "nn", "data", "fitted"},
    "evaluation": {
        *("base", "ops", "nn", "baselines", "data", "engine", "fitted", "model_file"),
        *("probability", "unlike"),
    },
    "paper": {"base", "ops", "nn", "baselines", "data", "engine", "evaluation", "fitted", "model_file"},
    "explanation": {"base", "ops", "nn", "data"},
    "bench": {"base", "ops", "nn", "baselines", "data", "engine", "evaluation", "paper"},
}
LIBRARY = {*ALLOWED, "estimator", "prediction", "serve"}
ALLOWED |= dict.fromkeys(("estimator", "prediction", "serve", "graphcaps"), LIBRARY)
ALLOWED |= {"cli": {*LIBRARY, "graphcaps"}, "__main__": {"cli"}}
# The engine receives stores and batches; it never opens files.
ENGINE_DATA = {
    *("graphcaps.data.assemble", "graphcaps.data.store", "graphcaps.data.features"),
    "graphcaps.data.feature_table",
}


def part_of(module: str) -> str:
    """``data`` of ``graphcaps.data.store``, ``base`` of ``graphcaps.errors``, ``graphcaps`` of itself."""
    names = module.split(".")
    return "graphcaps" if len(names) == 1 else "base" if names[1] in BASE else names[1]


def imported(tree: ast.AST, module: str) -> list[str]:
    """Full names of all modules that a file imports, anywhere in it."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: relative import in line {node.lineno}"
            base = node.module or ""
            # `from graphcaps import data` imports graphcaps.data
            if base == "graphcaps":
                found += [base if a.name.startswith("_") else f"{base}.{a.name}" for a in node.names]
            else:
                found.append(base)
    return found


def wrong_imports(source: str, module: str) -> list[str]:
    """What is wrong with the imports of ``module``."""
    part, wrong = part_of(module), []
    for name in imported(ast.parse(source), module):
        top = name.partition(".")[0]
        if top != "graphcaps":
            if top == "triton" and module.startswith(KERNELS):
                continue
            if top not in CORE and top not in sys.stdlib_module_names:
                wrong.append(f"{module} imports {name}, which is not in the core list")
            continue
        target = part_of(name)
        if name == "graphcaps" and part in ("cli", "data", "base"):
            continue  # the version
        if target != part and target not in ALLOWED.get(part, set()):
            wrong.append(f"{module} imports {name}, against the direction of imports")
        if part == "engine" and target == "data" and name not in ENGINE_DATA:
            wrong.append(f"{module} imports {name}, but the engine opens no files")
    return wrong


def module_name(path: Path) -> str:
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_one_way(path):
    assert wrong_imports(path.read_text("utf-8"), module_name(path)) == []


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_files_stay_short(path):
    lines = len(path.read_text("utf-8").splitlines())
    assert lines <= 300, f"{module_name(path)} has {lines} lines: split it"
    assert path.name != "utils.py"


def test_every_module_belongs_to_a_known_part():
    assert {part_of(module_name(path)) for path in MODULES} <= {*ALLOWED}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("graphcaps.ops.route", "from graphcaps.nn.hgcn import HGCN"),
        ("graphcaps.ops.route", "import graphcaps.data.store"),
        ("graphcaps.errors", "from graphcaps.ops import edges"),
        ("graphcaps.data.store", "def late():\n    from graphcaps.nn import HGCN"),
        ("graphcaps.nn.hgcn", "from graphcaps import data"),
        ("graphcaps.nn.hgcn", "from graphcaps.cli.main import main"),
        ("graphcaps.engine.fit", "from graphcaps.data.tu import read_tu"),
        ("graphcaps.engine.fit", "from graphcaps.evaluation import ledger"),
        ("graphcaps.explanation.tree", "from graphcaps.engine import fit"),
        ("graphcaps.serve.app", "from graphcaps.cli import main"),
        ("graphcaps.data.molecules", "import rdkit.Chem"),
        ("graphcaps.estimator", "import pandas"),
    ],
)
def test_a_wrong_import_is_caught(module, line):
    assert len(wrong_imports(line, module)) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("graphcaps.nn.hgcn", "from graphcaps.ops import route"),
        ("graphcaps.engine.fit", "from graphcaps.data.store import GraphStore"),
        ("graphcaps.cli.data", "from graphcaps.data.datasets import load_dataset"),
        ("graphcaps.data.cache", "from graphcaps import __version__"),
        ("graphcaps.paper.reproduce", "import tomllib, torch\nfrom graphcaps.evaluation import ledger"),
    ],
)
def test_a_right_import_is_not(module, line):
    assert wrong_imports(line, module) == []
