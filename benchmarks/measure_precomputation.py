"""CPU seconds of what models compute of each graph before a training, on the paper's data sets.

    python -m benchmarks.measure_precomputation --root DIR     # writes results/precomputation.json

The options are those of ``--preset published``. Each computation runs in one thread and without the cache. The file is
written after every data set; those in it are left out. ``make pages`` writes the table of docs/models.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.data import truncate_nodes
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.precompute import compute_structure
from graphcaps.data.store import GraphStore
from graphcaps.models.builder import model_factory, precomputation_of
from graphcaps.presets import load_preset
from graphcaps.reproduction.published import paper_datasets
from graphcaps.training.auto_config import resolve_config

RESULTS = Path(__file__).resolve().parents[1] / "results" / "precomputation.json"
MODELS = ("cliquepool", "eigenpool", "haarpool", "gmn", "pscn")


def measure(store: GraphStore, model: str) -> float:
    """CPU seconds of the precomputation of a model for all graphs."""
    config = resolve_config(load_preset("published", store.name, model), store)
    needed = precomputation_of(model_factory(config, 1, store.num_classes))
    assert needed is not None
    limit = config.features.max_nodes
    graphs = store if limit is None else truncate_nodes(store, limit).store
    began = time.process_time()
    compute_structure(graphs, needed)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="folder to look in first for the data sets")
    parser.add_argument("--sets", nargs="+", default=list(paper_datasets()))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = json.loads(options.out.read_text("utf-8")) if options.out.exists() else []
    for name in options.sets:
        if any(row["dataset"] == name for row in rows):
            continue
        store = load_dataset(name, options.root)
        seconds = {model: round(measure(store, model), 2) for model in MODELS}
        rows.append(
            {
                "dataset": name,
                "cpu_seconds": seconds,
                "hardware": describe_hardware(),
                "versions": versions_and_commit(),
            }
        )
        write_atomically(options.out, "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
        print(f"{name}: {seconds}", flush=True)


if __name__ == "__main__":
    main()
