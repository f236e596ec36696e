"""Cost of reading the paper's eleven data sets and of their input features, and what a node limit removes.

    python -m benchmarks.measure_data_sets --root DIR          # writes results/data-sets.json

Features are those of the paper's presets. Times are CPU seconds of one thread, the best of three runs; a data set is
parsed once, with an empty cache. ``make pages`` writes the tables of docs/features.md and the sentence of docs/data.md.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.data.datasets.cache import cache_contents
from graphcaps.data.datasets.loading import find_dataset, load_dataset
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.features.truncate import truncate_nodes
from graphcaps.data.store import GraphStore
from graphcaps.presets import load_preset
from graphcaps.reproduction.published import paper_datasets
from graphcaps.training.peak_memory import PeakMemory

RESULTS = Path(__file__).resolve().parents[1] / "results" / "data-sets.json"
NODE_LIMIT = 1000  # of the released program
REPEATS = 3


def cpu_seconds(function: Callable[[], object]) -> float:
    """CPU time of a call."""
    began = time.process_time()
    function()
    return time.process_time() - began


def measure_reading(name: str, root: Path | None) -> dict[str, Any]:
    """CPU seconds to parse a data set and to read its cache file; their sizes, and the memory of the process."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, {"GRAPHCAPS_CACHE": folder}),
        zipfile.ZipFile(find_dataset(name, root)) as archive,
    ):
        with PeakMemory(torch.device("cpu")) as peak:
            parse = cpu_seconds(lambda: load_dataset(name, root))
        cached = min(cpu_seconds(lambda: load_dataset(name, root)) for _ in range(REPEATS))
        return {
            "text_mb": round(sum(entry.file_size for entry in archive.infolist()) / 1e6, 2),
            "parse_seconds": round(parse, 3),
            "peak_mb": None if peak.bytes is None else round(peak.bytes / 1e6),
            "cached_seconds": round(cached, 4),
            "cache_mb": round(cache_contents().bytes / 1e6, 2),
        }


def measure_features(store: GraphStore) -> dict[str, Any]:
    """Columns, CPU seconds and size of the input features."""
    settings = load_preset("paper", store.name).features
    recipe = FeatureRecipe(degree_onehot=settings.degree_onehot, propagation=settings.propagation)
    seconds = min(cpu_seconds(lambda: recipe.fit(store).apply(store)) for _ in range(REPEATS))
    fitted = recipe.fit(store)
    x = fitted.apply(store)
    values = fitted.label_values[0] if fitted.label_values else ()
    return {
        "attributes": fitted.num_attributes,
        "label_columns": len(values),
        "label_range": [min(values), max(values)] if values else None,
        "labels_seen": 0 if store.node_labels is None else store.node_labels[:, 0].unique().numel(),
        "base_columns": fitted.num_base_columns,
        "columns": x.size(1),
        "seconds": round(seconds, 4),
        "mb": round(x.numel() * x.element_size() / 1e6, 2),
    }


def measure_limit(store: GraphStore) -> dict[str, int]:
    """What the node limit removes."""
    limited = truncate_nodes(store, NODE_LIMIT)
    return {
        "graphs": limited.truncated_graphs,
        "nodes": limited.removed_nodes,
        "edges": limited.removed_edges,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="folder to look in first for the data sets, as zip files")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in paper_datasets():
        reading = measure_reading(name, arguments.root)
        store = load_dataset(name, arguments.root)
        sizes = {"graphs": len(store), "nodes": store.num_nodes, "edges": store.num_edges}
        rows.append(
            {"name": name}
            | sizes
            | {"reading": reading, "features": measure_features(store), "limit": measure_limit(store)}
        )
        print(json.dumps(rows[-1]), flush=True)
    command = "python -m benchmarks.measure_data_sets"
    record = {
        "command": command,
        "hardware": describe_hardware(),
        "versions": versions_and_commit(),
        "node_limit": NODE_LIMIT,
        "rows": rows,
    }
    write_atomically(arguments.out, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
