"""Trains candidates for the preset ``molecules`` and compares their validation losses.

    python -m benchmarks.molecule_arrays DIR --root FOLDER --datasets bace bbbp --featurizers standard elements
    python -m benchmarks.measure_molecule_candidates DIR --device cuda --precision tf32 --seeds 2

DIR holds the arrays of the first command; FOLDER the CSV files. Every candidate is trained on the ten scaffold splits
of BACE and BBBP and on the ten folds of MUTAG and PTC_MR, whose molecules have bond labels too, and judged by the
validation loss of the epoch that it selects. This program does not read test graphs. Rows of the same candidate, data
set and number of seeds in ``--out`` are replaced.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import graphcaps
from benchmarks.measure_molecules import read_rows, write_table
from benchmarks.molecule_arrays import load_molecules
from graphcaps._io.provenance import describe_hardware
from graphcaps.config import RunConfig
from graphcaps.presets import load_preset
from graphcaps.training.device import choose_device

OUT = Path("results/molecules/candidates.csv")
COLUMNS = ("candidate", "dataset", "seeds", "validation_loss", "epoch", "seconds", "hardware", "date")
SCAFFOLD, FOLDS = ("bace", "bbbp"), ("MUTAG", "PTC_MR")
START = {"weight_decay": 0.0003}  # of the preset "default"; the preset "molecules" has what was selected

CANDIDATES: dict[str, dict[str, Any]] = {
    "elements": {"featurizer": "elements", **START},
    "atoms": START,
    "atoms, bond counts": {"edge_labels": "counts", **START},
    "atoms, bond messages": {"edge_labels": "messages", **START},
    "atoms, bond counts and messages": {"edge_labels": "both", **START},
    "atoms, context 2": {"context": "residual", **START},
    "atoms, bond messages, context 2": {"edge_labels": "messages", "context": "residual", **START},
    "atoms, bond messages, dropout 0.5": {"edge_labels": "messages", "dropout": 0.5, **START},
    "elements, decay 0.001": {"featurizer": "elements", "weight_decay": 0.001},
    "atoms, decay 0.001": {"weight_decay": 0.001},
    "atoms, bond messages, decay 0.001": {"edge_labels": "messages", "weight_decay": 0.001},
    "atoms, bond counts and messages, decay 0.001": {"edge_labels": "both", "weight_decay": 0.001},
    "atoms, bond messages, decay 0.003": {"edge_labels": "messages", "weight_decay": 0.003},
    "atoms, bond messages, decay 0.001, context 2": {
        "edge_labels": "messages",
        "weight_decay": 0.001,
        "context": "residual",
    },
    "atoms, bond messages, decay 0.001, dropout 0.5": {
        "edge_labels": "messages",
        "weight_decay": 0.001,
        "dropout": 0.5,
    },
    "atoms, bond messages, decay 0.001, propagation 1": {
        "edge_labels": "messages",
        "weight_decay": 0.001,
        "propagation": 1,
    },
    "atoms, bond messages, decay 0.001, length 64": {
        "edge_labels": "messages",
        "weight_decay": 0.001,
        "capsule_dim": 64,
    },
    "atoms, bond messages, decay 0.001, mean of 30 epochs": {
        "edge_labels": "messages",
        "weight_decay": 0.001,
        "average_epochs": 30,
    },
    "atoms, bond messages, decay 0.001, rate 0.0005": {
        "edge_labels": "messages",
        "weight_decay": 0.001,
        "learning_rate": 0.0005,
    },
    "atoms, bond messages, decay 0.001, no reconstruction": {
        "edge_labels": "messages",
        "weight_decay": 0.001,
        "reconstruction_weight": 0.0,
    },
    "atoms, bond messages, decay 0.001, one iteration": {
        "edge_labels": "messages",
        "weight_decay": 0.001,
        "routing_iterations": 1,
    },
    "atoms, bond messages, decay 0.001, separate squash": {
        "edge_labels": "messages",
        "weight_decay": 0.001,
        "factor_squash": "separate",
    },
}
"""Values of each candidate; all others are those of the preset ``molecules``, without edge labels and context."""

_FEATURES = ("edge_labels", "propagation")
_TRAINING = ("weight_decay", "average_epochs", "learning_rate", "reconstruction_weight")


def candidate_config(values: dict[str, Any], precision: str) -> RunConfig:
    """The preset ``molecules`` with the values of a candidate."""
    config = load_preset("molecules")
    features = {"edge_labels": None, **{key: values[key] for key in _FEATURES if key in values}}
    training = {key: values[key] for key in _TRAINING if key in values}
    model = {key: value for key, value in values.items() if key not in (*_FEATURES, *_TRAINING, "featurizer")}
    return replace(
        config,
        model_arguments={**config.model_arguments, "context": "none", **model},
        features=replace(config.features, **features),
        training=replace(config.training, precision=precision, **training),
        by_data=tuple(name for name in config.by_data if name not in model),
    )


def measure(
    name: str, candidate: str, arrays: Path, root: str | None, options: argparse.Namespace
) -> dict[str, str]:
    """The row of a candidate on a data set."""
    values = CANDIDATES[candidate]
    splits = None
    if name in SCAFFOLD:
        molecules = load_molecules(arrays / f"{name}-{values.get('featurizer', 'standard')}.npz")
        store, splits = molecules.store, molecules.splits
    else:
        store = graphcaps.load_dataset(name, root=root)
    config = candidate_config(values, options.precision)
    ledger = graphcaps.cross_validate(
        store, config, split=splits, seeds=options.seeds, device=options.device, variant=candidate
    )
    criterion = np.concatenate([record.curves.criterion for record in ledger.of("held-out")])  # [F, E]
    return {
        "candidate": candidate,
        "dataset": name,
        "seeds": str(options.seeds),
        "validation_loss": f"{criterion.min(1).mean():.5f}",
        "epoch": f"{np.median(criterion.argmin(1) + 1):.0f}",
        "seconds": f"{ledger.seconds:.1f}",
        "hardware": describe_hardware(choose_device(options.device, "measure_molecule_candidates")),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def add_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Writes the rows into a file, in place of those of the same candidate, data set and number of seeds."""
    table = {(row["candidate"], row["dataset"], row["seeds"]): row for row in [*read_rows(path), *rows]}
    write_table(path, COLUMNS, list(table.values()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arrays", type=Path, help="folder of benchmarks.molecule_arrays")
    parser.add_argument("--root", help="folder with MUTAG.zip and PTC_MR.zip")
    parser.add_argument("--datasets", nargs="+", choices=[*SCAFFOLD, *FOLDS], default=[*SCAFFOLD])
    parser.add_argument("--candidates", nargs="+", choices=[*CANDIDATES], default=[*CANDIDATES])
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    for candidate in options.candidates:
        for name in options.datasets:
            if name in FOLDS and "featurizer" in CANDIDATES[candidate]:
                continue  # no SMILES
            row = measure(name, candidate, options.arrays, options.root, options)
            add_rows(options.out, [row])
            print(f"{name:7} {candidate:50} {row['validation_loss']} ({row['seconds']} s)", flush=True)


if __name__ == "__main__":
    main()
