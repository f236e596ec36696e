"""Structure of the lowest capsules on unseen graphs: plain HGCN and ``parts="blocks"``.

    python -m benchmarks.measure_parts --seeds 5 --out results/part-structure.json

Takes at most ``--graphs`` graphs of each data set, trains on two thirds of them with the preset of the graphs
("molecules" or "default"; narrower, shorter, at a higher learning rate: ``TRAINING`` and ``--epochs``), and measures on
the rest. The validation set, 15 % of the training graphs, selects the epoch by margin loss; neither known parts nor
reasons are used for training. Models of one data set and seed are trained in turn, and ``seconds`` is processor time of
the whole training, precomputation included. Other rows of the file are kept.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.config import RunConfig
from graphcaps.data import load_dataset
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.explanation import explain_store
from graphcaps.explanation.agreement import capsule_usage, partition_agreement
from graphcaps.explanation.node_groups import find_groups
from graphcaps.explanation.truth_metrics import group_agreement, partition_shape, score_auc
from graphcaps.presets import load_preset
from graphcaps.training.final_training import train_final

DATASETS = (
    *("benzene", "fluoride-carbonyl", "nitro-or-amine", "ba-2motifs", "planted-parts"),
    *("MUTAG", "PTC_MR", "PROTEINS", "IMDB-BINARY"),
)
MODELS = ("plain", "blocks")
TRAINING = {"learning_rate": 0.003, "batch_size": 16}
_FOLDS_OF_TEST = 3  # of ten


def sample(store: GraphStore, count: int) -> GraphStore:
    """At most ``count`` graphs, always the same ones."""
    order = torch.randperm(len(store), generator=torch.Generator().manual_seed(7))
    return store[order[:count].sort().values]


def configuration(store: GraphStore, model: str, epochs: int, width: int) -> RunConfig:
    """The preset of the graphs with the settings of this study."""
    config = load_preset("default" if store.featurizer is None else "molecules")
    config = replace(
        config, dataset=store.name, by_data=tuple(name for name in config.by_data if name != "batch_size")
    )
    config = config.with_model(capsule_dim=width)
    if model != "plain":
        config = config.with_model(parts=model)
    return config.with_training(epochs=epochs, halve_every=max(1, epochs // 2), **TRAINING)


def parts_per_graph(capsule: Tensor, store: GraphStore) -> np.ndarray:
    """Number of capsules with a node of each graph."""
    return np.array([capsule[a:b].unique().numel() for a, b in pairwise(store.node_ptr.tolist())])


def three_to_seven(counts: np.ndarray) -> float | None:
    """Fraction of the numbers that are between 3 and 7; ``None`` without any."""
    return float(((counts >= 3) & (counts <= 7)).mean()) if counts.size else None


def contained(capsule: Tensor, store: GraphStore) -> float:
    """Fraction of the graphs with a deciding group in which every such group lies in one capsule."""
    reason, found = store.truth["reason"], []
    for a, b in pairwise(store.node_ptr.tolist()):
        groups = [number for number in reason[a:b].unique().tolist() if number >= 0]
        if groups:
            found.append(all(capsule[a:b][reason[a:b] == number].unique().numel() == 1 for number in groups))
    return float(np.mean(found))


def measure(store: GraphStore, config: RunConfig, seed: int) -> dict[str, Any]:
    """Trains one model and measures it on the graphs of three folds."""
    assert store.y is not None
    fold = torch.as_tensor(np.asarray(stratified_folds(store.y).assignment))
    in_test = fold // _FOLDS_OF_TEST == seed % _FOLDS_OF_TEST
    train, test = store[(~in_test).nonzero().squeeze(-1)], store[in_test.nonzero().squeeze(-1)]
    assert test.y is not None
    started = time.process_time()
    result = train_final(train, config, seed=seed, validation=0.15, device="cpu")
    seconds = time.process_time() - started
    explanation = explain_store(result.model, test, unseen="ignore")
    capsule, counts = explanation.capsule, parts_per_graph(explanation.capsule, test)
    groups = np.bincount(find_groups(explanation).graph, minlength=len(test))
    small = ((test.sizes >= 10) & (test.sizes <= 30)).numpy()
    row: dict[str, Any] = {
        "seed": seed,
        "accuracy": 100 * float((explanation.class_scores.argmax(-1) == test.y).double().mean()),
        "validation_loss": result.training["validation_loss"],
        "parts_per_graph": float(counts.mean()),
        "three_to_seven": three_to_seven(counts[small]),
        "groups_per_graph": float(groups.mean()),
        "three_to_seven_groups": three_to_seven(groups[small]),
        "connected": partition_shape(capsule, test).connected,
        "entropy": capsule_usage(explanation.assignments[0], capsule, test.node_ptr)["entropy"],
        "seconds": seconds,
    }
    if "reason" in test.truth:
        agreement = group_agreement(capsule, test.truth["reason"], test)
        assert agreement is not None
        deciding = test.truth["reason"] >= 0
        row |= {
            "in_one_capsule": contained(capsule, test),
            "group_recall": agreement.graph_recall,
            "auc": score_auc(explanation.node_scores, deciding, test.node_ptr),
        }
    if "kind" in test.truth:
        agreed = partition_agreement(capsule, test.truth["kind"], test.node_ptr)
        row |= {"nmi": agreed["nmi"], "nmi_all": agreed["nmi_all"]}
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


def mean(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Means over seeds of the numbers that all of them have."""
    names = [name for name, value in rows[0].items() if value is not None and name != "seed"]
    return {name: round(float(np.mean([row[name] for row in rows])), 4) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--graphs", type=int, default=240)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.datasets:
        store = sample(load_dataset(name), arguments.graphs)
        results: dict[str, list[dict[str, Any]]] = {model: [] for model in arguments.models}
        for seed in range(arguments.seeds):
            for model in arguments.models:
                config = configuration(store, model, arguments.epochs, arguments.width)
                results[model].append(measure(store, config, seed))
                print(json.dumps({"dataset": name, "model": model} | results[model][-1]), flush=True)
        for model, rows in results.items():
            if arguments.out is not None:
                add(
                    arguments.out,
                    {
                        "dataset": name,
                        "model": model,
                        "graphs": len(store),
                        "mean": mean(rows),
                        "seeds": rows,
                        "config": configuration(store, model, arguments.epochs, arguments.width).as_dict(),
                        "hardware": describe_hardware("cpu"),
                        "versions": versions_and_commit(),
                    },
                )


def add(path: Path, row: dict[str, Any]) -> None:
    """Writes a row into the file; one of the same data set and model is replaced."""
    key = ("dataset", "model")
    rows = json.loads(path.read_text("utf-8"))["rows"] if path.exists() else []
    rows = [one for one in rows if any(one[name] != row[name] for name in key)] + [row]
    rows.sort(key=lambda one: (DATASETS.index(one["dataset"]), MODELS.index(one["model"])))
    report = {
        "command": "python -m benchmarks.measure_parts --seeds 5 --out results/part-structure.json",
        "rows": rows,
    }
    path.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
