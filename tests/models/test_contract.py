"""The model contract, on every registered model: ``pytest -k gin`` selects one of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from graphcaps.models import list_models
from graphcaps.testing import model_checks

# Models of packages that happen to be installed beside graphcaps are left to the tests of those packages.
MODELS = [model.name for model in list_models() if model.package == "graphcaps"]
# Options that change how a model computes, beyond the sizes of its layers.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "hgcn, paper": ("hgcn", {"formulation": "paper"}),
    "hgcn, features as capsules": ("hgcn", {"disentangle": False}),
    "hgcn, no decoder": ("hgcn", {"reconstruction": False}),
    "hgcn, two levels": ("hgcn", {"num_capsules": (4, 3), "residual_nodes": 12}),
    "hgcn, gin trunk": ("hgcn", {"trunk": "gin"}),
    "hgcn, sage trunk": ("hgcn", {"trunk": "sage", "trunk_layers": 2}),
    "hgcn, gat trunk": ("hgcn", {"trunk": "gat"}),
    "hgcn, parts": ("hgcn", {"parts": "blocks"}),
    "hgcn, context": ("hgcn", {"context": "gated"}),
    "hgcn, edge labels": ("hgcn", {"edge_kinds": (3, 2)}),
    "hgcn, context and edge labels": (
        "hgcn",
        {"context": "gin", "context_jumping": True, "edge_kinds": (3, 2)},
    ),
    "hgcn, gat trunk and edge labels": ("hgcn", {"trunk": "gat", "edge_kinds": (3, 2)}),
    "hgcn, gine trunk and edge labels": ("hgcn", {"trunk": "gine", "edge_kinds": (3, 2)}),
    "gin, trained epsilon": ("gin", {"train_epsilon": True}),
    "mlp, sums of inputs": ("mlp", {"node_layers": 0}),
    "asap, attention dropout": ("asap", {"attention_dropout": 0.3, "ratio": 0.8}),
    "memgnn, edge labels": ("memgnn", {"edge_kinds": (3, 2), "num_keys": (4, 3)}),
    "sagpool, global": ("sagpool", {"variant": "global"}),
    "ecfp-forest, counts": ("ecfp-forest", {"counts": True}),
}
# A fit selects one of nine pairs of options; 30 to 42 by default.
_COSTS, _ITERATIONS = (0.1, 10.0, 1000.0), (0, 2, 5)
SELECTED: dict[str, dict[str, Any]] = {
    "awe": {"gamma": (1.0, 100.0, 10000.0), "C": _COSTS},
    "gk": {"gamma": (0.01, 1.0, 100.0), "C": _COSTS},
    **{name: {"iterations": _ITERATIONS, "C": _COSTS} for name in ("dgk", "wl", "wl-oa")},
}
NEEDS_RDKIT = {"ecfp-forest"}
WITHOUT_RDKIT = pytest.mark.skipif(find_spec("rdkit") is None, reason="needs the extra 'chem'")
CHECKS = [
    pytest.param(check, id=f"{title}-{name}", marks=[WITHOUT_RDKIT] if model in NEEDS_RDKIT else [])
    for title, (model, options) in (
        {name: (name, SELECTED.get(name, {})) for name in MODELS} | VARIANTS
    ).items()
    for name, check in model_checks(model, options).items()
]


@pytest.mark.parametrize("check", CHECKS)
def test_model_satisfies_the_contract(check: Callable[[], None]) -> None:
    check()
