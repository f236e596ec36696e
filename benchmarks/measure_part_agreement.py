"""Agreement of capsules with planted parts: plain HGCN, the option ``parts``, k-means, and groups from the edges.

    python -m benchmarks.measure_part_agreement --out results/parts.json
    python -m benchmarks.measure_part_agreement --models "parts='blocks', best of 8" --device cuda --budget 540 \\
        --out results/parts.json

Seed s tests on fold s of ten stratified folds. One ninth of the other graphs is the validation set, which selects the
epoch by the margin loss, as ``graphcaps train`` does; the planted parts are not used for training. All numbers are of
the test graphs. ``nmi`` is computed within each graph and averaged, with the scaffold as a kind of its own;
``nmi_planted`` excludes the nodes of the scaffold. Groups need no model: they are what HGCN assigns to capsules as a
whole, and they have no kind that could be compared over all graphs. "Best of 8" has eight restarts (``graphcaps train
--restarts 8``) with the seeds s to s + 7, of which the loss of parts on the validation graphs chooses one. Other rows
of the file are kept. A row is written with the seeds that begin within ``--budget`` seconds; a later run with the same
settings adds the others.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
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
from graphcaps.explanation.model_inputs import unwrap_members
from graphcaps.nn import HGCN
from graphcaps.ops.structure.modularity_groups import modularity_groups
from graphcaps.presets import load_preset
from graphcaps.training.final_training import train_final
from graphcaps.training.holdout import split_holdout

GROUPS = "groups from the edges, no model"
RESTARTS = 8
BEST = f"parts='blocks', best of {RESTARTS}"
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "HGCN": ("planted-parts", {}),
    "HGCN, as many capsules as kinds": ("planted-parts", {"num_capsules": "kinds"}),
    "parts='blocks', weight 0": ("planted-parts-blocks", {"num_capsules": "kinds", "parts_weight": 0.0}),
    "parts='blocks'": ("planted-parts-blocks", {"num_capsules": "kinds"}),
    "parts='blocks', 8 capsules": ("planted-parts-blocks", {"num_capsules": (8,)}),
    BEST: ("planted-parts-blocks", {"num_capsules": "kinds"}),
}


ROWS = (GROUPS, *MODELS)


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


def store_groups(store: GraphStore) -> np.ndarray:
    """The group of each node by :func:`modularity_groups`, which needs every edge once."""
    source, target = store.entry_rows()
    once = source < target
    return modularity_groups(source[once].numpy(), target[once].numpy(), store.node_graph.numpy())


def measure_groups(store: GraphStore, seed: int) -> dict[str, Any]:
    """Agreement of the groups that :func:`modularity_groups` finds, within the graphs of fold ``seed``."""
    assert store.y is not None
    test = store[(stratified_folds(store.y).assignment == seed).nonzero().squeeze(-1)]
    values = agreement(test, store_groups(test))
    return {"seed": seed} | {name: value for name, value in values.items() if "all" not in name}


def measure(
    store: GraphStore, config: RunConfig, seed: int, device: str, restarts: int = 1
) -> dict[str, Any]:
    """Trains a model, the best of several restarts, and evaluates it and k-means on fold ``seed``."""
    assert store.y is not None
    in_test = stratified_folds(store.y).assignment == seed
    train, test = store[(~in_test).nonzero().squeeze(-1)], store[in_test.nonzero().squeeze(-1)]
    assert train.y is not None
    chosen = split_holdout(train, train.y, None, 1 / 9, seed).validation
    result = train_final(train, config, seed=seed, validation=chosen, device=device, restarts=restarts)
    recipe = result.model.recipe
    (network,) = (each.cpu() for each in unwrap_members(result.model))
    assert test.y is not None
    train_rows = encode_graphs(train, recipe).x
    test_rows = encode_graphs(test, recipe).x
    explanation = explain_store(network, test, x=test_rows)
    kinds = int(store.truth["kind"].unique().numel())
    capsules = k_means(primary(network, train, train_rows), primary(network, test, test_rows), kinds)
    return {
        "seed": seed,
        "accuracy": 100 * float((explanation.class_scores.argmax(-1) == test.y).double().mean()),
        **agreement(test, explanation.capsule.numpy()),
        "capsules_used": int(explanation.capsule.unique().numel()),
        "epoch": result.epoch,
        "restarts": result.model.training.get("restarts"),
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
        if name not in ("seed", "epoch", "restarts", "parts_losses")  # the last is of earlier rows
    }


def rounded(value: Any) -> Any:
    """All floats to four digits."""
    if isinstance(value, dict):
        return {name: rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return round(value, 4) if isinstance(value, float) else value


def main(words: Sequence[str] | None = None) -> None:
    began = time.monotonic()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--level", choices=("easy", "medium", "hard"), default="easy")
    parser.add_argument("--draw", type=int, default=0, help="seed of the data set; the published one is 0")
    parser.add_argument("--models", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, help="instead of those of the preset")
    parser.add_argument("--graphs", type=int, help="size of the data set; the published one has 360")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(words)
    store = planted_parts(arguments.level, seed=arguments.draw, num_graphs=arguments.graphs)
    kinds = int(store.truth["kind"].unique().numel())
    for model in arguments.models:
        trained = None
        if model != GROUPS:
            trained = configuration(model, kinds).with_training(epochs=arguments.epochs)
        settings = {} if trained is None else trained.as_dict()
        rows = finished(arguments.out, arguments.level, arguments.draw, model, settings)
        restarts, before = RESTARTS if model == BEST else 1, len(rows)
        for seed in range(before, arguments.seeds):
            if time.monotonic() - began > arguments.budget:
                break
            rows.append(
                measure_groups(store, seed)
                if trained is None
                else measure(store, trained, seed, arguments.device, restarts)
            )
            print(json.dumps({"model": model} | rounded(rows[-1])), flush=True)
        if len(rows) == before:
            continue
        row = rounded(
            {
                "level": arguments.level,
                "draw": arguments.draw,
                "model": model,
                "mean": mean(rows),
                "seeds": rows,
                "config": settings,
                "hardware": describe_hardware(arguments.device),
                "versions": versions_and_commit(),
            }
        )
        print(json.dumps({name: row[name] for name in ("level", "draw", "model", "mean")}), flush=True)
        if arguments.out is not None:
            add(arguments.out, row)


def finished(
    path: Path | None, level: str, draw: int, model: str, settings: dict[str, Any]
) -> list[dict[str, Any]]:
    """The seeds that the file has of a model with these settings, if an earlier run was ended by its budget."""
    rows = json.loads(path.read_text("utf-8"))["rows"] if path is not None and path.exists() else []
    settings = json.loads(json.dumps(settings))
    for row in rows:
        if (row["level"], row["draw"], row["model"], row["config"]) == (level, draw, model, settings):
            seeds: list[dict[str, Any]] = row["seeds"]
            return seeds
    return []


def add(path: Path, row: dict[str, Any]) -> None:
    """Writes a row into the file; one of the same level, draw and model is replaced."""
    key = ("level", "draw", "model")
    rows = json.loads(path.read_text("utf-8"))["rows"] if path.exists() else []
    rows = [one for one in rows if any(one[name] != row[name] for name in key)] + [row]
    rows.sort(key=lambda one: (one["level"], one["draw"], ROWS.index(one["model"])))
    report = {"command": "python -m benchmarks.measure_part_agreement --out results/parts.json", "rows": rows}
    path.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
