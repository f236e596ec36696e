"""Do capsules agree with the planted kinds of parts? Plain HGCN, the option ``parts``, and k-means.

    python -m benchmarks.measure_part_agreement --out results/parts.json

Seed s takes fold s of the ten stratified folds as test graphs. The other nine train: a ninth of them chooses the
epoch by the margin loss of the classes, as ``graphcaps train`` does, and the truth about parts plays no role. All
figures are of the test graphs. ``nmi`` is inside a graph, mean over graphs, with the scaffold as a kind of its own;
``nmi_planted`` leaves the nodes of the scaffold out. Rows that are in the file already are kept, unless they are
measured again.
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


def agreement(store: GraphStore, found: np.ndarray) -> dict[str, float]:
    """Agreement of a number per node with the planted kinds."""
    kind = store.truth["kind"].numpy()
    spans = [np.arange(a, b) for a, b in pairwise(store.node_ptr.tolist())]
    inside = [rows[kind[rows] > 0] for rows in spans]
    planted = np.concatenate(inside)

    def nmi(rows: np.ndarray) -> float:
        return float(normalized_mutual_info_score(kind[rows], found[rows]))

    return {
        "nmi": float(np.mean([nmi(rows) for rows in spans])),
        "nmi_all": float(normalized_mutual_info_score(kind, found)),
        "ari": float(np.mean([adjusted_rand_score(kind[rows], found[rows]) for rows in spans])),
        "nmi_planted": float(np.mean([nmi(rows) for rows in inside])),
        "nmi_all_planted": nmi(planted),
    }


def k_means(known: Tensor, unseen: Tensor, clusters: int) -> np.ndarray:
    """Clusters of rows, fitted on the training graphs."""
    fitted = KMeans(clusters, n_init=10, random_state=0).fit(known.double().numpy())
    return np.asarray(fitted.predict(unseen.double().numpy()))


@torch.no_grad()
def primary(network: HGCN, store: GraphStore, x: Tensor) -> Tensor:
    """Primary capsules of all nodes."""
    chosen = torch.arange(len(store)).split(64)
    return torch.cat([network.eval().forward_batch(store.batch(x, part)).primary for part in chosen])


def configuration(model: str, kinds: int) -> RunConfig:
    preset, changed = MODELS[model]
    config = load_preset(preset)
    arguments = {
        name: (kinds,) if value == "kinds" else value
        for name, value in (config.model_arguments | changed).items()
    }
    return replace(config, model_arguments=arguments)


def measure(store: GraphStore, config: RunConfig, seed: int, device: str) -> dict[str, Any]:
    """Trains one model and scores it, and k-means beside it, on the graphs of fold ``seed``."""
    assert store.y is not None
    test = stratified_folds(store.y).assignment == seed
    known, unseen = store[(~test).nonzero().squeeze(-1)], store[test.nonzero().squeeze(-1)]
    result = train_final(known, config, seed=seed, validation=1 / 9, device=device)
    network = result.model.model
    assert isinstance(network, HGCN)
    assert unseen.y is not None
    rows_known = encode_graphs(known, result.model.recipe).x
    rows = encode_graphs(unseen, result.model.recipe).x
    found = explain_store(result.model, unseen)
    kinds = int(store.truth["kind"].unique().numel())
    capsules = k_means(primary(network, known, rows_known), primary(network, unseen, rows), kinds)
    return {
        "seed": seed,
        "accuracy": 100 * float((found.class_scores.argmax(-1) == unseen.y).double().mean()),
        **agreement(unseen, found.capsule.numpy()),
        "capsules_used": int(found.capsule.unique().numel()),
        "epoch": result.epoch,
        "k-means on primary capsules": agreement(unseen, capsules),
        "k-means on input features": agreement(unseen, k_means(rows_known, rows, kinds)),
    }


def mean(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, of nested figures too."""
    return {
        name: mean([one[name] for one in found])
        if isinstance(value, dict)
        else float(np.mean([one[name] for one in found]))
        for name, value in found[0].items()
        if name not in ("seed", "epoch")
    }


def rounded(value: Any) -> Any:
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
    parser.add_argument("--draw", type=int, default=0, help="seed of the draw; the frozen set is 0")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    store = planted_parts(wanted.level, seed=wanted.draw)
    kinds = int(store.truth["kind"].unique().numel())
    for model in wanted.models:
        config = configuration(model, kinds)
        found = [measure(store, config, seed, wanted.device) for seed in range(wanted.seeds)]
        row = rounded(
            {
                "level": wanted.level,
                "draw": wanted.draw,
                "model": model,
                "mean": mean(found),
                "seeds": found,
                "config": config.as_dict(),
                "hardware": describe_hardware(wanted.device),
                "versions": versions_and_commit(),
            }
        )
        print(json.dumps({name: row[name] for name in ("level", "draw", "model", "mean")}), flush=True)
        if wanted.out is not None:
            add(wanted.out, row)


def add(path: Path, row: dict[str, Any]) -> None:
    """Puts a row into the file, in the place of an earlier one of the same name."""
    key = ("level", "draw", "model")
    rows = json.loads(path.read_text("utf-8"))["rows"] if path.exists() else []
    rows = [one for one in rows if any(one[name] != row[name] for name in key)] + [row]
    rows.sort(key=lambda one: (one["level"], one["draw"], list(MODELS).index(one["model"])))
    report = {"command": "python -m benchmarks.measure_part_agreement --out results/parts.json", "rows": rows}
    path.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
