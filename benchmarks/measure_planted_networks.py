"""Held-out accuracy of HGCN and GIN on planted-parts, and agreement of capsules with the planted parts.

    python -m benchmarks.measure_planted_networks --seeds 5 --out results/planted_networks.json

Ten stratified folds × seeds are trained together per level and model. For HGCN one more model per seed is trained on
nine tenths of the graphs. On the other tenth, the strongest capsule of every node is compared with its planted kind and
part.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import normalized_mutual_info_score

from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.evaluation import cross_validate
from graphcaps.explanation import explain_store
from graphcaps.presets import load_preset
from graphcaps.training.final_training import FinalTraining

PRESETS = {"HGCN": "planted-parts", "GIN": "planted-parts-gin"}
LEVELS = ("easy", "medium", "hard")


def agreement(store: GraphStore, config: RunConfig, seed: int, device: str) -> dict[str, float]:
    """Agreement of the strongest capsule with the planted parts, and the accuracy, on the validation set."""
    training = FinalTraining(store, config, seed=seed, device=device)
    for _ in training.run():
        pass
    fitted = training.result().model
    validation = store[training.holdout.validation]
    explanations = explain_store(fitted, validation)
    capsule = explanations.capsule.numpy()
    bounds = validation.node_ptr.tolist()
    spans = [slice(a, b) for a, b in pairwise(bounds)]
    truth = {key: value.numpy() for key, value in validation.truth.items()}
    assert validation.y is not None
    return {
        "nmi_kinds": float(
            np.mean([normalized_mutual_info_score(truth["kind"][s], capsule[s]) for s in spans])
        ),
        "nmi_parts": float(
            np.mean([normalized_mutual_info_score(truth["part"][s], capsule[s]) for s in spans])
        ),
        "nmi_kinds_all_nodes": float(normalized_mutual_info_score(truth["kind"], capsule)),
        "accuracy": float((explanations.class_scores.argmax(-1) == validation.y).double().mean()),
    }


def measure(level: str, model: str, seeds: int, device: str) -> dict[str, Any]:
    from graphcaps.data.datasets.planted_parts import planted_parts

    store = planted_parts(level)  # type: ignore[arg-type]
    config = load_preset(PRESETS[model])
    ledger = cross_validate(store, config, seeds=seeds, protocol="held-out", device=device)
    estimate = ledger.held_out
    assert estimate is not None
    row: dict[str, Any] = {
        "level": level,
        "model": model,
        "protocol": "held-out",
        "seeds": seeds,
        "accuracy": round(estimate.mean, 1),
        "std_folds": None if estimate.std_folds is None else round(estimate.std_folds, 1),
        "std_seeds": None if estimate.std_seeds is None else round(estimate.std_seeds, 1),
        "seconds": round(ledger.seconds, 1),
        "config": config.as_dict(),
    }
    if model == "HGCN":
        agreements = [agreement(store, config, seed, device) for seed in range(seeds)]
        for name in agreements[0]:
            key = "validation_accuracy" if name == "accuracy" else name
            row[key] = round(float(np.mean([one[name] for one in agreements])), 3)
    return row


def main() -> None:
    from graphcaps.training.device import choose_device

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=LEVELS)
    parser.add_argument("--models", nargs="+", choices=tuple(PRESETS), default=tuple(PRESETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    for level in arguments.levels:
        for model in arguments.models:
            row = measure(level, model, arguments.seeds, arguments.device)
            rows.append(row)
            shown = {name: value for name, value in row.items() if name != "config"}
            print(json.dumps(shown), flush=True)
            if arguments.out is not None:
                command = f"python -m benchmarks.measure_planted_networks --seeds {arguments.seeds}"
                hardware = describe_hardware(choose_device(arguments.device))
                report = {
                    "command": command,
                    "hardware": hardware,
                    "versions": versions_and_commit(),
                    "rows": rows,
                }
                arguments.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
