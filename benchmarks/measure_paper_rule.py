"""C of the preset ``best`` in the paper's protocol: training on nine folds, the epoch chosen on test graphs.

    python -m benchmarks.measure_paper_rule --root DIR --fit-companion --out OUT
    python -m benchmarks.measure_paper_rule --root DIR --device cuda --jobs 5 --out OUT
    python -m benchmarks.measure_paper_rule --merge OUT

Ten folds × the members of the preset are trained on all folds but the test fold, for all epochs of the preset. After
every epoch the probabilities of the members are averaged, and mixed with those of the companion, which is fitted to the
same nine folds. The protocol has no validation graphs, so nothing is calibrated, and the weight of the committee is the
mean of those that validation graphs, or training graphs out of fold, chose in the held-out cells of the data set
(``results/reach/reach.json``). C is an upper bound, as that of the paper is.

``--fit-companion`` fits the companion alone into OUT/companions, for instance on a machine without a GPU; fits that lie
there are not repeated. OUT/paper-rule.json is written after every data set, and data sets in it are left out; none
starts that is expected to take longer than what is left of the budget. ``--merge`` adds them to ``results/reach``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from benchmarks.measure_context import BASE, candidate_config
from benchmarks.measure_reach import EXPECTED_SECONDS, ORDER, read_rows, write_lines
from benchmarks.measure_reach import RESULTS as REACH
from benchmarks.upper_bound import TestProbabilities, best_epoch
from graphcaps._io.provenance import versions_and_commit
from graphcaps.config import RunConfig
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.splits.folds import Folds
from graphcaps.data.store import GraphStore
from graphcaps.evaluation import CrossValidation
from graphcaps.evaluation.concurrent_trainings import run_concurrently
from graphcaps.inference.mixture import weighted_mean
from graphcaps.models.lookup import find_graph_model
from graphcaps.presets import load_preset
from graphcaps.training.classical_fit import fit_replica
from graphcaps.training.companion_weights import companion_configs
from graphcaps.training.device import choose_device
from graphcaps.training.replicas import Replica

RESULTS = REACH.with_name("paper-rule.json")
FOLDS = 10

Row = dict[str, Any]


def committee_weight(cells: Sequence[Row], dataset: str) -> float | None:
    """Mean weight of the committee in the held-out cells of a data set with the preset ``best``; ``None`` if none."""
    committee = load_preset("best").committee
    weights = [
        cell["weights"][0]
        for cell in cells
        if (cell["dataset"], cell["candidate"], cell["companion"], cell["members"])
        == (dataset, BASE, committee.companion, committee.members)
    ]
    return float(np.mean(weights)) if weights else None


def companion_probabilities(store: GraphStore, folds: Folds, folder: Path) -> list[np.ndarray]:
    """Probabilities of the test graphs of each fold by the companion, fitted to the other folds; kept in ``folder``."""
    path = folder / f"{store.name}.npz"
    if not path.exists():
        (config,) = companion_configs(load_preset("best").committee.companion, "hgcn", store, "paper_rule")
        found = {
            str(fold): fit_replica(store, config, _replica(folds, fold)).probabilities
            for fold in range(folds.num_folds)
        }
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, checksum=np.array(folds.checksum), **found)
    with np.load(path) as stored:
        assert str(stored["checksum"]) == folds.checksum, f"{path} is of other folds"
        return [stored[str(fold)] for fold in range(folds.num_folds)]


def _replica(folds: Folds, fold: int) -> Replica:
    split = folds.paper(fold)
    return Replica(split.train, torch.empty(0, dtype=torch.int64), split.test, fold=fold)


def measure(store: GraphStore, config: RunConfig, weight: float, options: argparse.Namespace) -> Row:
    """C of committee, mixture and single members of a data set; JSON-safe."""
    began = time.perf_counter()
    epochs = TestProbabilities(find_graph_model(config.model).scores)
    run = CrossValidation(
        store,
        config,
        folds=options.folds,
        seeds=options.members,
        protocol="paper",
        device=options.device,
        callbacks=[epochs],
    )
    beside = companion_probabilities(store, run.folds, options.out / "companions")
    ledger = run.run()
    assert store.y is not None
    y = store.y.cpu().numpy()
    committee, mixture, companion = [], [], []
    for fold, rows in enumerate(beside):
        graphs, q = epochs.graphs[fold], epochs.committee(fold)
        assert np.array_equal(graphs, run.folds.paper(fold).test.cpu().numpy())
        committee.append((q.argmax(-1) == y[graphs]).mean(-1))
        mixed = weighted_mean([q, rows[None]], [weight, 1 - weight])
        mixture.append((mixed.argmax(-1) == y[graphs]).mean(-1))
        companion.append(float((rows.argmax(-1) == y[graphs]).mean()))
    members = ledger.estimates["C"]
    return {
        "dataset": store.name,
        "members": options.members,
        "folds": options.folds,
        "epochs": run.config.training.epochs,
        "member_C": round(members.mean, 4),
        "C": best_epoch(committee),
        "mixture_C": best_epoch(mixture),
        "companion_accuracy": round(100 * float(np.mean(companion)), 4),
        "weight": round(weight, 4),
        "seconds": round(time.perf_counter() - began, 1),
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hardware": ledger.hardware,
        "versions": versions_and_commit(),
    }


def run_all(options: argparse.Namespace, began: float) -> None:
    """Measures data sets until the budget is over, and writes each at once."""
    path, lock = options.out / RESULTS.name, Lock()
    rows, cells = read_rows(path), read_rows(options.cells)
    config = candidate_config(BASE).with_training(epochs=options.epochs, precision=options.precision)
    done = {row["dataset"] for row in rows}
    missing = sorted(
        (name for name in options.sets if name not in done), key=lambda name: -EXPECTED_SECONDS.get(name, 0)
    )

    def run_one(name: str) -> None:
        left = options.budget - (time.monotonic() - began)
        if EXPECTED_SECONDS.get(name, 0) > left:
            print(f"{name}: not started, {left:.0f} s left", flush=True)
            return
        with lock:
            store = open_dataset(name, options.root).store
        if options.fit_companion:
            folds = CrossValidation(store, config, folds=options.folds, protocol="paper").folds
            companion_probabilities(store, folds, options.out / "companions")
            print(f"{name}: companion fitted", flush=True)
            return
        weight = committee_weight(cells, name)
        if weight is None:
            print(f"{name}: not started, no weight is stored in {options.cells}", flush=True)
            return
        row = measure(store, config, weight, options)
        with lock:
            rows.append(row)
            write_lines(path, sorted(rows, key=lambda each: str(each["dataset"])))
        print(f"{name}: {row['seconds']} s", flush=True)

    jobs = [partial(run_one, name) for name in missing]
    list(run_concurrently(jobs, options.jobs, choose_device(options.device)))


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(ORDER), help="data sets; default: all eleven")
    parser.add_argument("--root", type=Path, help="folder with the zips of the data sets")
    parser.add_argument("--cells", type=Path, default=REACH, help="held-out cells, whose weights are taken")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--precision", default="tf32", help="float32, tf32 or bf16; only a GPU has the last two"
    )
    parser.add_argument("--members", type=int, default=load_preset("best").committee.members)
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--epochs", type=int, default=load_preset("best").training.epochs)
    parser.add_argument("--fit-companion", action="store_true", help="train no network")
    parser.add_argument("--jobs", type=int, default=1, help="concurrent data sets on a GPU")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--out", type=Path, default=RESULTS.parent)
    parser.add_argument("--merge", type=Path, help="add the data sets of this folder to --out; train nothing")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    began = time.monotonic()
    options = parse(words)
    if options.merge is None:
        run_all(options, began)
        return
    path = options.out / RESULTS.name
    found = {row["dataset"]: row for row in [*read_rows(options.merge / RESULTS.name), *read_rows(path)]}
    write_lines(path, [found[name] for name in sorted(found)])


if __name__ == "__main__":
    main()
