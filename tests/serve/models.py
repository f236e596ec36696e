"""Small models to serve, and graphs to send them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from graphcaps.data import GraphStore, to_networkx
from graphcaps.inference.fitted_model import FittedModel
from tests.small_models import train_small

SMILES = ("CCO", "CCN", "CCC", "CCCO", "c1ccccc1", "c1ccccc1O", "c1ccncc1", "Cc1ccccc1N")


@cache
def molecule_model() -> FittedModel:
    """HGCN on a few molecules: aromatic, or not."""
    pytest.importorskip("rdkit", reason="rdkit is not installed: pip install 'graphcaps[chem]'")
    from graphcaps.data.readers.molecules import from_smiles

    classes = ["aromatic" if "c1" in text else "open" for text in SMILES]
    return train_small(from_smiles(SMILES * 2, classes * 2, name="molecules"), epochs=10)


def node_link(store: GraphStore, graph: int) -> dict[str, Any]:
    """A graph of a store in node-link JSON."""
    network = to_networkx(store, graph)
    nodes = [{"id": node, **entry} for node, entry in network.nodes(data=True)]
    links = [{"source": a, "target": b} for a, b in network.edges()]
    return json.loads(json.dumps({"nodes": nodes, "links": links}))


def saved(fitted: FittedModel, folder: Path, name: str) -> Path:
    path = folder / f"{name}.safetensors"
    fitted.save(path)
    return path
