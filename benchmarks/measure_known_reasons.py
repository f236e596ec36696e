"""Explanations on data sets with known reasons: every method, on HGCN and on GIN, and simple classifiers.

    python -m benchmarks.measure_known_reasons --out results/known-reasons.json
    python -m benchmarks.measure_known_reasons --graphs 1000 --epochs 100 --sample 10 --out results/known-reasons.json
    python -m benchmarks.measure_known_reasons --merge FILE [FILE2 …] --out results/known-reasons.json

Seed s tests on fold s of ten stratified folds. One ninth of the other graphs is the validation set, which selects the
epoch, as ``graphcaps train`` does. All numbers are of the test graphs, which the model has not seen; the truth is not
used for training. A row of the file is a data set, a model and a seed; rows that are in it with the same settings are
not measured again, and others are kept, so that an interrupted run goes on; no row begins after ``--budget`` seconds.
Classical models have an accuracy only.
Agreement between seeds is a row with the seed −1, of a run that trains all seeds; it is over the test folds of all
seeds together, each of which is new to one of the models.

Molecules are read from the cache of the package. A machine without RDKit needs a copy of the cache folder, written by
``graphcaps data info benzene`` and named by ``GRAPHCAPS_CACHE``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.config import RunConfig
from graphcaps.data import load_dataset
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.explanation import evaluate_explanations, explanation_stability
from graphcaps.explanation.explainer import class_scores, explain_encoded
from graphcaps.explanation.explanation_metrics import METHODS, applicable_methods
from graphcaps.explanation.model_inputs import encode_for_model, unwrap_network
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.models.lookup import find_model, is_classical
from graphcaps.nn import HGCN
from graphcaps.presets.model_presets import preset_of_graphs, replace_model
from graphcaps.training.final_training import train_final

__all__ = [
    "MODELS",
    "SETS",
    "Settings",
    "add_rows",
    "configuration",
    "measure",
    "read_rows",
    "time_explanations",
]

SETS = ("ba-2motifs", "ba-multishapes", "benzene", "fluoride-carbonyl", "nitro-or-amine", "planted-parts")
MODELS = ("majority", "features-trees", "wl-forest", "gin", "hgcn")
STABLE = ("gradient", "integrated-gradients")
"""Methods whose node scores are compared between seeds, beside the capsules."""
REPEATS = 5
"""Repetitions of the timing; the median counts."""

Settings = dict[str, Any]
_KEY = ("dataset", "model", "seed", "settings")


def configuration(store: GraphStore, model: str, settings: Settings) -> RunConfig:
    """The preset of the graphs for HGCN, and the same training for other networks, with the settings that are given."""
    if is_classical(model):
        return RunConfig(dataset=store.name, model=model)
    config = preset_of_graphs(store)
    if model != config.model:
        config = replace_model(config, model)
    width = find_model(model).width_option
    if settings["width"] is not None and width is not None:
        config = replace(config, model_arguments=config.model_arguments | {width: settings["width"]})
    changes = {name: settings[name] for name in ("epochs", "learning_rate") if settings[name] is not None}
    return config.with_training(**changes)


def time_explanations(model: FittedModel, store: GraphStore) -> dict[str, float]:
    """CPU seconds of predicting and of explaining encoded graphs, with the capsules of their nodes: medians of
    alternating repetitions, and the ratio."""
    network, encoded = unwrap_network(model), encode_for_model(model, store)
    assert isinstance(network, HGCN)
    seconds: dict[str, list[float]] = {"predict": [], "explain": []}
    for _ in range(REPEATS):
        began = time.process_time()
        class_scores(network, encoded)
        predicted = time.process_time()
        assert len(explain_encoded(network, encoded).capsule) == encoded.store.num_nodes
        seconds["predict"].append(predicted - began)
        seconds["explain"].append(time.process_time() - predicted)
    medians = {name: median(values) for name, values in seconds.items()}
    return medians | {"ratio": medians["explain"] / medians["predict"]}


def measure(
    store: GraphStore, model: str, seed: int, settings: Settings, device: str
) -> tuple[dict[str, Any], FittedModel]:
    """Trains one model, and evaluates its explanations of the graphs of fold ``seed``."""
    assert store.y is not None
    in_test = stratified_folds(store.y).assignment == seed
    train, test = store[(~in_test).nonzero().squeeze(-1)], store[in_test.nonzero().squeeze(-1)]
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # capsules that collapse are in the metrics
        result = train_final(
            train, configuration(store, model, settings), seed=seed, validation=1 / 9, device=device
        )
    fitted = result.model
    assert test.y is not None
    right = fitted.predict_proba(test).argmax(1) == test.y.numpy()
    row: dict[str, Any] = {
        "dataset": store.name,
        "model": model,
        "seed": seed,
        "settings": settings,
        "test_graphs": len(test),
        "accuracy": 100 * float(right.mean()),
        "train_cpu_seconds": time.process_time() - began,
    }
    if not is_classical(fitted.config.model):
        wanted = METHODS if settings["methods"] is None else settings["methods"]
        methods = [name for name in applicable_methods(fitted) if name in wanted]
        metrics = evaluate_explanations(fitted, test, methods=methods, sample=settings["sample"])
        row |= {name: metrics[name] for name in ("methods", "sample", "truth", "capsules")}
        row["config"] = fitted.config.as_dict()
        if fitted.config.model == "hgcn":
            row["timing"] = time_explanations(fitted, test)
    return row | {"hardware": describe_hardware(device), "versions": versions_and_commit()}, fitted


def read_rows(path: Path | None) -> list[dict[str, Any]]:
    """The rows of the file; none if there is no file."""
    if path is None or not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["rows"]
    return rows


def add_rows(path: Path | None, new: list[dict[str, Any]]) -> None:
    """Writes rows into the file; those of the same data set, model, seed and settings are replaced."""
    if path is None:
        return
    keys = [[row[name] for name in _KEY] for row in new]
    rows = [row for row in read_rows(path) if [row.get(name) for name in _KEY] not in keys] + new
    rows.sort(key=lambda row: (SETS.index(row["dataset"]), MODELS.index(row["model"]), row["seed"]))
    report = {"command": "python -m benchmarks.measure_known_reasons", "rows": _rounded(rows)}
    write_atomically(path, (json.dumps(report, indent=1) + "\n").encode())


def _rounded(value: Any) -> Any:
    """All floats to six digits."""
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def main(words: Sequence[str] | None = None) -> None:
    began = time.monotonic()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--graphs", type=int, help="only the first graphs of each data set")
    parser.add_argument("--epochs", type=int, help="instead of those of the preset")
    parser.add_argument("--width", type=int, help="capsule_dim of HGCN and hidden of GIN")
    parser.add_argument("--learning-rate", type=float, dest="learning_rate")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="default: all that apply to a model")
    parser.add_argument("--sample", type=int, default=30, help="graphs for slow methods")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument(
        "--merge", type=Path, nargs="+", help="add the rows of these files to --out; train nothing"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(words)
    if options.merge:
        add_rows(options.out, [row for path in options.merge for row in read_rows(path)])
        return
    names = ("graphs", "epochs", "width", "learning_rate", "methods", "sample")
    settings: Settings = {name: vars(options)[name] for name in names}
    stores = {}
    for name in options.sets:
        store = load_dataset(name)
        stores[name] = (
            store if options.graphs is None else store[list(range(min(len(store), options.graphs)))]
        )
    fitted: dict[tuple[str, str], dict[int, FittedModel]] = {}
    finished = [[row[name] for name in _KEY] for row in read_rows(options.out)]
    for seed in range(options.seeds):  # all data sets of a seed before the next seed
        for name, store in stores.items():
            for model in options.models:
                if [name, model, seed, settings] in finished:
                    continue
                if time.monotonic() - began > options.budget:
                    print(f"{name} {model} {seed}: not started, the budget is spent", flush=True)
                    continue
                row, trained = measure(store, model, seed, settings, options.device)
                if not is_classical(trained.config.model):
                    fitted.setdefault((name, model), {})[seed] = trained
                print(_summary(row), flush=True)
                add_rows(options.out, [row])
    for (name, model), models in fitted.items():
        if len(models) < max(options.seeds, 2):  # some were measured in an earlier run, or one seed alone
            continue
        row = {"dataset": name, "model": model, "seed": -1, "settings": settings}
        # The test folds of all seeds together: a graph is new to one of the models and known to the others.
        store = stores[name]
        assert store.y is not None
        tested = stratified_folds(store.y).assignment < options.seeds
        graphs = store[tested.nonzero().squeeze(-1)]
        row["stability"] = explanation_stability([*models.values()], graphs, methods=STABLE)
        print(json.dumps(row), flush=True)
        add_rows(options.out, [row])


def _summary(row: dict[str, Any]) -> str:
    """Accuracy and areas under the ROC curve of a row."""
    areas = {name: metrics["auc_nodes"] for name, metrics in row.get("methods", {}).items()}
    shown = {name: round(value, 3) for name, value in areas.items() if value is not None}
    return f"{row['dataset']} {row['model']} {row['seed']}: accuracy {row['accuracy']:.1f}, {shown}"


if __name__ == "__main__":
    main()
