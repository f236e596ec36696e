"""Import directions, import cycles, declared dependencies and unique module names."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "graphcaps"
MODULES = sorted(PACKAGE.rglob("*.py"))

CORE = {
    *("torch", "torch_geometric", "numpy", "scipy", "sklearn", "networkx", "threadpoolctl"),
    *("typer", "rich", "safetensors", "matplotlib", "platformdirs"),
}
# Triton comes with torch where there is a GPU; only these modules name it, and they are imported late.
TRITON = re.compile(r"graphcaps\.ops\.(_triton\.\w+|\w+\.\w+_triton)")
# Packages of the extra "serve"; only these modules name them, and graphcaps.serve imports them on first use.
SERVE_EXTRA = {"fastapi", "starlette", "pydantic", "python_multipart", "uvicorn", "h11"}
SERVE_MODULES = {
    f"graphcaps.serve.{name}"
    for name in ("app", "connections", "request_body", "schema", "server", "uploads")
}
BASE = {"types", "memo", "errors", "registry", "config", "metrics", "profiling", "_io"}
# What each part may import besides itself; "base" stands for the modules above.
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "chemistry": {"base"},
    "ops": {"base"},
    "nn": {"base", "ops"},
    "models": {"base", "chemistry", "ops", "nn", "data"},
    "data": {"base", "chemistry", "ops"},
    "presets": {"base", "chemistry", "ops", "nn", "models", "data"},
    "inference": {"base", "chemistry", "ops", "nn", "models", "data"},
    "explanation": {"base", "chemistry", "ops", "nn", "models", "data", "inference"},
    "training": {"base", "chemistry", "ops", "nn", "models", "data", "inference"},
    "evaluation": {"base", "chemistry", "ops", "nn", "models", "data", "inference", "training"},
    "reproduction": {
        "base",
        "chemistry",
        "ops",
        "nn",
        "models",
        "data",
        "inference",
        "training",
        "evaluation",
        "presets",
    },
}
ALLOWED["execution"] = {*ALLOWED["training"], "training"}
ALLOWED["evaluation"].add("execution")
ALLOWED["reproduction"].add("execution")
ALLOWED["bench"] = {*ALLOWED["reproduction"], "reproduction"}
ALLOWED["comparison"] = {*ALLOWED["bench"], "explanation"}
ALLOWED["search"] = {*ALLOWED["reproduction"], "explanation"} - {"reproduction"}
LIBRARY = {*ALLOWED, "estimator", "serve", "testing"}
ALLOWED |= dict.fromkeys(("estimator", "serve", "testing", "graphcaps"), LIBRARY)
ALLOWED |= {"cli": {*LIBRARY, "graphcaps"}, "__main__": {"cli"}}
# Methods for convenience, which call a function of a module that imports theirs. Their imports, when they are called,
# count neither for directions nor for cycles.
CONVENIENCE_METHODS = {
    "graphcaps.inference.fitted_model": ("FittedModel.explain", "FittedModel.save", "FittedModel.export")
}
# Training receives stores and batches; it opens no data files.
OPENS_FILES = ("graphcaps.data.readers", "graphcaps.data.datasets")


def part_of(module: str) -> str:
    """``data`` of ``graphcaps.data.store``, ``base`` of ``graphcaps.errors``, ``graphcaps`` of itself."""
    names = module.split(".")
    return "graphcaps" if len(names) == 1 else "base" if names[1] in BASE else names[1]


def parse_module(source: str, module: str) -> ast.Module:
    """The syntax tree of a module without its convenience methods."""
    tree, exempt = ast.parse(source), CONVENIENCE_METHODS.get(module, ())
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            owner.body = [
                node
                for node in owner.body
                if not (isinstance(node, ast.FunctionDef) and f"{owner.name}.{node.name}" in exempt)
            ]
    return tree


def imported_modules(tree: ast.AST, module: str) -> list[str]:
    """Full names of all modules that a file imports, late imports included."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: relative import in line {node.lineno}"
            base = node.module or ""
            # `from graphcaps import data` imports graphcaps.data
            if base == "graphcaps":
                names += [base if a.name.startswith("_") else f"{base}.{a.name}" for a in node.names]
            else:
                names.append(base)
    return names


def wrong_imports(source: str, module: str) -> list[str]:
    """A message for each import of ``module`` that is not allowed."""
    part, wrong = part_of(module), []
    for name in imported_modules(parse_module(source, module), module):
        top = name.partition(".")[0]
        if top != "graphcaps":
            if top == "triton" and TRITON.fullmatch(module):
                continue
            if top in SERVE_EXTRA and module in SERVE_MODULES:
                continue
            if top not in CORE and top not in sys.stdlib_module_names:
                wrong.append(f"{module} imports {name}, which is not in the core list")
            continue
        target = part_of(name)
        if name == "graphcaps" and part in ("cli", "data", "base"):
            continue  # the version
        if target != part and target not in ALLOWED.get(part, set()):
            wrong.append(f"{module} imports {name}, against the direction of imports")
        if part == "training" and name.startswith(OPENS_FILES):
            wrong.append(f"{module} imports {name}, but training opens no data files")
    return wrong


def module_name(path: Path) -> str:
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_follow_the_allowed_directions(path):
    assert wrong_imports(path.read_text("utf-8"), module_name(path)) == []


def import_targets(tree: ast.Module, modules: dict[str, ast.Module]) -> set[str]:
    """Modules of the package that a file imports anywhere, in functions and under TYPE_CHECKING too.

    ``from package import name`` counts as an import of the module that the package takes ``name`` from, so that
    re-exports in an ``__init__`` do not count as modules.
    """
    targets = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names if alias.name in modules}
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                origin = (
                    submodule if submodule in modules else reexports(modules[node.module]).get(alias.name)
                )
                targets.add(origin or node.module)
    return targets


@cache
def reexports(tree: ast.Module) -> dict[str, str]:
    """Names that a module imports from other modules, and the module that each comes from."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: str(node.module) for node in nodes for alias in node.names}


def import_cycles(modules: dict[str, str], packages: set[str]) -> list[list[str]]:
    """Groups of modules that import each other, packages' ``__init__`` files and convenience methods aside.

    Args:
        modules (dict): Source text of each module by its full name.
        packages (set): Names of those that are an ``__init__`` file.
    """
    trees = {module: parse_module(source, module) for module, source in modules.items()}
    graph = nx.DiGraph()
    for module, tree in trees.items():
        if module not in packages:
            targets = import_targets(tree, trees) - packages - {module}
            graph.add_edges_from((module, target) for target in targets)
    groups = nx.strongly_connected_components(graph)
    return sorted(sorted(group) for group in groups if len(group) > 1)


def test_modules_do_not_import_each_other_in_cycles():
    modules = {module_name(path): path.read_text("utf-8") for path in MODULES}
    packages = {module_name(path) for path in MODULES if path.name == "__init__.py"}
    assert import_cycles(modules, packages) == []


@pytest.mark.parametrize(
    "back",
    [
        "from graphcaps.a import x",
        "def late():\n    from graphcaps.a import x",
        "if TYPE_CHECKING:\n    import graphcaps.a",
        "from graphcaps.package import x",
    ],
)
def test_an_import_cycle_is_caught(back):
    modules = {
        "graphcaps": "",
        "graphcaps.package": "if TYPE_CHECKING:\n    from graphcaps.a import x",
        "graphcaps.a": "from graphcaps import b",
        "graphcaps.b": back,
    }
    assert import_cycles(modules, {"graphcaps", "graphcaps.package"}) == [["graphcaps.a", "graphcaps.b"]]
    modules["graphcaps.b"] = "from graphcaps.package import y"
    assert import_cycles(modules, {"graphcaps", "graphcaps.package"}) == []


@pytest.mark.parametrize("path", [path for path in MODULES if module_name(path) in CONVENIENCE_METHODS])
def test_the_convenience_methods_exist(path):
    classes = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.ClassDef)]
    methods = {
        f"{owner.name}.{node.name}"
        for owner in classes
        for node in owner.body
        if isinstance(node, ast.FunctionDef)
    }
    assert {*CONVENIENCE_METHODS[module_name(path)]} <= methods


def test_no_two_modules_share_a_name():
    names = [path.stem for path in MODULES if path.name != "__init__.py"]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
    assert "utils" not in names


def test_every_module_belongs_to_a_known_part():
    assert {part_of(module_name(path)) for path in MODULES} <= {*ALLOWED}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("graphcaps.ops.routing.route", "from graphcaps.nn.hgcn import HGCN"),
        ("graphcaps.ops.routing.route", "import graphcaps.data.store"),
        ("graphcaps.errors", "from graphcaps.ops import edges"),
        ("graphcaps.data.store", "def late():\n    from graphcaps.nn import HGCN"),
        ("graphcaps.nn.hgcn", "from graphcaps import data"),
        ("graphcaps.nn.hgcn", "from graphcaps.cli.main import main"),
        ("graphcaps.training.trainer", "from graphcaps.data.readers.tu import read_tu"),
        ("graphcaps.training.trainer", "from graphcaps.evaluation import ledger"),
        ("graphcaps.explanation.explanation", "from graphcaps.training import fit"),
        ("graphcaps.inference.predictions", "from graphcaps.explanation import explain"),
        (
            "graphcaps.inference.fitted_model",
            "class FittedModel:\n    def predict(self):\n        from graphcaps.explanation import explain",
        ),
        ("graphcaps.serve.app", "from graphcaps.cli import main"),
        ("graphcaps.serve.worker", "import fastapi"),
        ("graphcaps.serve.worker_pool", "import uvicorn"),
        ("graphcaps.data.readers.molecules", "import rdkit.Chem"),
        ("graphcaps.chemistry.rdkit_tasks", "from graphcaps.data.store import GraphStore"),
        ("graphcaps.estimator", "import pandas"),
    ],
)
def test_a_wrong_import_is_caught(module, line):
    assert len(wrong_imports(line, module)) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("graphcaps.nn.hgcn", "from graphcaps.ops import route"),
        ("graphcaps.training.trainer", "from graphcaps.data.store import GraphStore"),
        ("graphcaps.explanation.explainer", "from graphcaps.inference.fitted_model import FittedModel"),
        (
            "graphcaps.inference.fitted_model",
            "class FittedModel:\n    def explain(self):\n        from graphcaps.explanation import explain",
        ),
        ("graphcaps.cli.data", "from graphcaps.data.datasets.loading import load_dataset"),
        ("graphcaps.serve.schema", "from pydantic import BaseModel"),
        ("graphcaps.data.datasets.cache", "from graphcaps import __version__"),
        ("graphcaps.reproduction.plan", "import tomllib, torch\nfrom graphcaps.evaluation import ledger"),
    ],
)
def test_an_allowed_import_is_accepted(module, line):
    assert wrong_imports(line, module) == []
