"""Agreement of capsules with planted parts: plain HGCN, the option ``parts``, and k-means.

    python -m benchmarks.measure_part_agreement --out results/parts.json

Seed s tests on fold s of ten stratified folds. One ninth of the other graphs is the validation set, which selects the
epoch by the margin loss, as ``graphcaps train`` does; the planted parts are not used for training. All numbers are of
the test graphs. ``nmi`` is computed within each graph and averaged, with the scaffold as a kind of its own;
``nmi_planted`` excludes the nodes of the scaffold. Other rows of the file are kept.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from torch import Tensor

from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.config import RunConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.explanation import explain_store
from graphcaps.nn import HGCN
from graphcaps.presets import load_preset
from graphcaps.training.final_training import train_final

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "HGCN": ("planted-parts", {}),
    "HGCN, as many capsules as kinds": ("planted-parts", {"num_capsules": "kinds"}),
    "parts='blocks', weight 0": ("planted-parts-blocks", {"num_capsules": "kinds", "parts_weight": 0.0}),
    "parts='blocks'": ("planted-parts-blocks", {"num_capsules": "kinds"}),
    "parts='blocks', 8 capsules": ("planted-parts-blocks", {"num_capsules": (8,)}),
}


def agreement(store: GraphStore, partition: np.ndarray) -> dict[str, float]:
    """Agreement of a partition of the nodes with the planted kinds."""
    kind = store.truth["kind"].numpy()
    spans = [np.arange(a, b) for a, b in pairwise(store.node_ptr.tolist())]
    inside = [rows[kind[rows] > 0] for rows in spans]
    planted = np.concatenate(inside)

    def nmi(rows: np.ndarray) -> float:
        return float(normalized_mutual_info_score(kind[rows], partition[rows]))

    return {
        "nmi": float(np.mean([nmi(rows) for rows in spans])),
        "nmi_all": float(normalized_mutual_info_score(kind, partition)),
        "ari": float(np.mean([adjusted_rand_score(kind[rows], partition[rows]) for rows in spans])),
        "nmi_planted": float(np.mean([nmi(rows) for rows in inside])),
        "nmi_all_planted": nmi(planted),
    }


def k_means(train: Tensor, test: Tensor, clusters: int) -> np.ndarray:
    """Clusters of the test rows, fitted on the training rows."""
    fitted = KMeans(clusters, n_init=10, random_state=0).fit(train.double().numpy())
    return np.asarray(fitted.predict(test.double().numpy()))


@torch.no_grad()
def primary(network: HGCN, store: GraphStore, x: Tensor) -> Tensor:
    """Primary capsules of all nodes."""
    chosen = torch.arange(len(store)).split(64)
    return torch.cat([network.eval().forward_batch(store.batch(x, part)).primary for part in chosen])


def configuration(model: str, kinds: int) -> RunConfig:
    """The configuration of a model, with as many capsules as kinds where it says so."""
    preset, changed = MODELS[model]
    config = load_preset(preset)
    arguments = {
        name: (kinds,) if value == "kinds" else value
        for name, value in (config.model_arguments | changed).items()
    }
    return replace(config, model_arguments=arguments)


def measure(store: GraphStore, config: RunConfig, seed: int, device: str) -> dict[str, Any]:
    """Trains one model, and evaluates it and k-means on the graphs of fold ``seed``."""
    assert store.y is not None
    in_test = stratified_folds(store.y).assignment == seed
    train, test = store[(~in_test).nonzero().squeeze(-1)], store[in_test.nonzero().squeeze(-1)]
    result = train_final(train, config, seed=seed, validation=1 / 9, device=device)
    network = result.model.model
    assert isinstance(network, HGCN)
    assert test.y is not None
    train_rows = encode_graphs(train, result.model.recipe).x
    test_rows = encode_graphs(test, result.model.recipe).x
    explanation = explain_store(result.model, test)
    kinds = int(store.truth["kind"].unique().numel())
    capsules = k_means(primary(network, train, train_rows), primary(network, test, test_rows), kinds)
    return {
        "seed": seed,
        "accuracy": 100 * float((explanation.class_scores.argmax(-1) == test.y).double().mean()),
        **agreement(test, explanation.capsule.numpy()),
        "capsules_used": int(explanation.capsule.unique().numel()),
        "epoch": result.epoch,
        "k-means on primary capsules": agreement(test, capsules),
        "k-means on input features": agreement(test, k_means(train_rows, test_rows, kinds)),
    }


def mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, also of nested values."""
    return {
        name: mean([row[name] for row in rows])
        if isinstance(value, dict)
        else float(np.mean([row[name] for row in rows]))
        for name, value in rows[0].items()
        if name not in ("seed", "epoch")
    }


def rounded(value: Any) -> Any:
    """All floats to four digits."""
    if isinstance(value, dict):
        return {name: rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--level", choices=("easy", "medium", "hard"), default="easy")
    parser.add_argument("--draw", type=int, default=0, help="seed of the data set; the published one is 0")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    store = planted_parts(arguments.level, seed=arguments.draw)
    kinds = int(store.truth["kind"].unique().numel())
    for model in arguments.models:
        config = configuration(model, kinds)
        rows = [measure(store, config, seed, arguments.device) for seed in range(arguments.seeds)]
        row = rounded(
            {
                "level": arguments.level,
                "draw": arguments.draw,
                "model": model,
                "mean": mean(rows),
                "seeds": rows,
                "config": config.as_dict(),
                "hardware": describe_hardware(arguments.device),
                "versions": versions_and_commit(),
            }
        )
        print(json.dumps({name: row[name] for name in ("level", "draw", "model", "mean")}), flush=True)
        if arguments.out is not None:
            add(arguments.out, row)


def add(path: Path, row: dict[str, Any]) -> None:
    """Writes a row into the file; one of the same level, draw and model is replaced."""
    key = ("level", "draw", "model")
    rows = json.loads(path.read_text("utf-8"))["rows"] if path.exists() else []
    rows = [one for one in rows if any(one[name] != row[name] for name in key)] + [row]
    rows.sort(key=lambda one: (one["level"], one["draw"], list(MODELS).index(one["model"])))
    report = {"command": "python -m benchmarks.measure_part_agreement --out results/parts.json", "rows": rows}
    path.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
