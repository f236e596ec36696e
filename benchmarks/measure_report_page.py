"""Size of report pages and CPU time of ``graphcaps explain`` and of drawings, for docs/report.md.

    python -m benchmarks.measure_report_page --root DIR            # writes results/report-page.json

DIR holds MUTAG.zip, NCI1.zip and molecules/bace.csv. ``explain`` runs in a process of its own, whose CPU time counts
from the start of Python to the end. Models are trained for two epochs: sizes and explanations take the same with any
model, and counterfactuals, which take most of the time, a little less with one that is right more often. Drawings are
of random networks, in this process; a first one, which loads matplotlib, is not counted.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import networkx as nx

from benchmarks.bit_patterns import graphcaps
from benchmarks.measure_large_sets import cpu_seconds
from graphcaps import HGCNClassifier
from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.data import from_networkx
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.explanation import explain_store
from graphcaps.explanation.drawings import draw_explanation

RESULTS = Path(__file__).resolve().parents[1] / "results" / "report-page.json"
EPOCHS = 2
NETWORK_NODES, DEGREE = (1000, 5000), 4


def measure_page(name: str, source: list[str], graphs: int, folder: Path) -> dict[str, Any]:
    """Trains a model and explains all graphs on a page."""
    model, out = folder / f"{name}.safetensors", folder / f"{name}-report"
    graphcaps("train", *source, "--epochs", EPOCHS, "--device", "cpu", "--no-baseline", "--out", model)
    began = cpu_seconds()
    graphcaps("explain", model, *source, "--out", out)
    seconds = cpu_seconds() - began
    size = (out / "index.html").stat().st_size
    return {"name": name, "graphs": graphs, "mb": round(size / 1e6, 3), "cpu_seconds": round(seconds, 2)}


def measure_drawings(folder: Path) -> list[dict[str, Any]]:
    """CPU seconds of a picture by capsule, for each number of nodes and file format."""
    training = [nx.gnm_random_graph(12, 12 * DEGREE // 2, seed=seed) for seed in range(20)]
    model = HGCNClassifier(epochs=EPOCHS, device="cpu").fit(training, [0, 1] * 10).model_
    rows = []
    for nodes in (training[0].number_of_nodes(), *NETWORK_NODES):
        network = nx.gnm_random_graph(nodes, nodes * DEGREE // 2, seed=0)
        (explanation,) = explain_store(model, from_networkx([network]))
        for suffix in (".png", ".svg"):
            began = cpu_seconds()
            draw_explanation(explanation, folder / f"{nodes}{suffix}")
            rows.append(
                {"nodes": nodes, "format": suffix[1:], "cpu_seconds": round(cpu_seconds() - began, 2)}
            )
    return [row for row in rows if row["nodes"] in NETWORK_NODES]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    sources = {
        "MUTAG": ["MUTAG", "--root", str(arguments.root)],
        "BACE": [str(arguments.root / "molecules" / "bace.csv"), "--label", "Class"],
        "NCI1": ["NCI1", "--root", str(arguments.root)],
    }
    pages = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        drawings = measure_drawings(folder)
        for title, source in sources.items():
            pages.append(measure_page(title, source, num_graphs(source, arguments.root), folder))
            print(json.dumps(pages[-1]), flush=True)
    record = {
        "command": "python -m benchmarks.measure_report_page",
        "hardware": describe_hardware(),
        "versions": versions_and_commit(),
        "degree": DEGREE,
        "pages": pages,
        "drawings": drawings,
    }
    write_atomically(arguments.out, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def num_graphs(source: list[str], root: Path) -> int:
    """Number of graphs of a source."""
    options = {"label": source[2]} if source[1] == "--label" else {}
    return len(open_dataset(source[0], root, **options).store)


if __name__ == "__main__":
    main()
