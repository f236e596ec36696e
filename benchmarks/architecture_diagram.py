"""Draws the packages of graphcaps and who imports whom, read from the source files.

    python benchmarks/architecture_diagram.py            # writes docs/images/layers.svg
    python benchmarks/architecture_diagram.py --check    # fails if the picture does not match the imports

Imports inside functions count like all others, except in FittedModel.explain (``CONVENIENCE_METHODS`` in
tests/test_imports.py). An arrow is left out where a longer path already implies it.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "graphcaps"
PICTURE = ROOT / "docs" / "images" / "layers.svg"
BASE = "base"
# What each package is for, below its name.
ROLES = {
    BASE: "types · errors · config · registry · _io",
    "chemistry": "guarded calls of RDKit",
    "ops": "pure functions, kernels",
    "data": "stores, readers, splits",
    "nn": "layers, HGCN",
    "models": "other systems",
    "explanation": "traces, scores, drawings",
    "inference": "model file, predictions",
    "training": "one loop for F replicas",
    "execution": "cells, here or on a cluster",
    "evaluation": "cross-validation, records",
    "presets": "configurations",
    "reproduction": "the paper's tables",
    "search": "hyper-parameter search",
    "comparison": "models on the same folds",
    "bench": "speed of this machine",
    "testing": "checks of models",
    "estimator": "scikit-learn classifier",
    "serve": "HTTP server",
    "cli": "command line",
}
_CONVENIENCE = ("inference", "explanation")  # FittedModel.explain
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 196, 50, 26, 44, 20


def package_of(module: str) -> str:
    part = module.split(".")[1] if "." in module else ""
    return part if part in ROLES else BASE


def import_graph() -> nx.DiGraph:
    """Packages, with an edge from importer to imported."""
    graph = nx.DiGraph()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if len(parts) == 2 and parts[1] in ("__init__", "__main__"):
            continue  # the public names and the entry point join everything
        source = package_of(".".join(parts))
        graph.add_node(source)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                target = package_of(name)
                if name.startswith("graphcaps.") and target != source and (source, target) != _CONVENIENCE:
                    graph.add_edge(source, target)
    return graph


def layers(graph: nx.DiGraph) -> list[list[str]]:
    """Packages from top to bottom; each stands above everything it imports."""
    depth: dict[str, int] = {}
    for name in reversed(list(nx.lexicographical_topological_sort(graph))):
        depth[name] = 1 + max((depth[target] for target in graph.successors(name)), default=-1)
    return [
        sorted(name for name in depth if depth[name] == level) for level in range(max(depth.values()), -1, -1)
    ]


def draw(graph: nx.DiGraph) -> str:
    rows = layers(graph)
    widest = max(map(len, rows))
    width = 2 * _MARGIN + widest * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + len(rows) * (_HEIGHT + _GAP_Y) - _GAP_Y
    corner: dict[str, tuple[float, float]] = {}
    for level, row in enumerate(rows):
        left = (width - len(row) * (_WIDTH + _GAP_X) + _GAP_X) / 2
        for column, name in enumerate(row):
            corner[name] = left + column * (_WIDTH + _GAP_X), _MARGIN + level * (_HEIGHT + _GAP_Y)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        'aria-label="Packages of graphcaps from the command line at the top to the base at the bottom; '
        'arrows point to what a package imports." font-family="DejaVu Sans, Arial, sans-serif">',
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#6e7781"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    for source, target in sorted(nx.transitive_reduction(graph).edges):
        (x1, y1), (x2, y2) = corner[source], corner[target]
        start, end = (x1 + _WIDTH / 2, y1 + _HEIGHT), (x2 + _WIDTH / 2, y2 - 2)
        bend = (end[1] - start[1]) / 2
        lines.append(
            f'<path d="M{start[0]:.0f},{start[1]:.0f} C{start[0]:.0f},{start[1] + bend:.0f} '
            f'{end[0]:.0f},{end[1] - bend:.0f} {end[0]:.0f},{end[1]:.0f}" fill="none" stroke="#6e7781" '
            'stroke-width="1.3" marker-end="url(#head)"/>'
        )
    for name, (x, y) in sorted(corner.items()):
        lines.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#ddf4ff" '
            'stroke="#0969da"/>'
            f'<text x="{x + _WIDTH / 2:.0f}" y="{y + 21:.0f}" text-anchor="middle" font-size="14" font-weight="bold" '
            f'fill="#1b1f24">{name}</text>'
            f'<text x="{x + _WIDTH / 2:.0f}" y="{y + 39:.0f}" text-anchor="middle" '
            f'font-size="{8.5 if name == BASE else 11}" fill="#57606a">{ROLES[name]}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    options = parser.parse_args()
    picture = draw(import_graph())
    if options.check:
        current = PICTURE.exists() and PICTURE.read_text("utf-8") == picture
        print("docs/images/layers.svg " + ("is current." if current else "does not match the imports."))
        sys.exit(not current)
    PICTURE.write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
