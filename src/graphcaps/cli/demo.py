"""``graphcaps demo``: cross-validate, train, draw and explain on the embedded data set."""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from graphcaps.cli.data_options import Json
from graphcaps.cli.output import note, option, print_json, print_pairs, terminal
from graphcaps.cli.output_files import check_output_file, check_output_folder, write_json

if TYPE_CHECKING:
    from graphcaps.config import RunConfig
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.evaluation import Ledger
    from graphcaps.explanation import StoreExplanation
    from graphcaps.training.final_training import FinalTraining
    from graphcaps.training.single_training import FinalResult

__all__ = ["demo"]

DATASET = "planted-parts"
PRESET = "planted-parts-blocks"


def demo(
    out: Annotated[
        Path, option("--out", metavar="DIR", help="Folder for the results; created if missing.")
    ] = Path("demo"),
    epochs: Annotated[int, option("--epochs", metavar="N", min=1, help="Number of training epochs.")] = 40,
    as_json: Json = False,
) -> None:
    """Cross-validate, train, draw and explain on the embedded data set, in under two minutes and offline.

    Its graphs contain a ring, a star, a clique and a ladder; the class is which of them are connected. The
    capsules are trained to be parts of a graph (preset planted-parts-blocks). Files of an earlier demo in DIR are
    replaced.
    """
    from graphcaps.cli.run_options import configure
    from graphcaps.cli.training_files import TrainingFiles, write_training
    from graphcaps.data.datasets.loading import open_dataset

    start = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    files = TrainingFiles(out / f"{DATASET}.safetensors")
    files.check(overwrite=True, resume=False)
    picture, report_folder, evaluation_folder = out / "parts.png", out / "report", out / "evaluation"
    check_output_file(picture)
    check_output_folder(report_folder)
    check_output_folder(evaluation_folder)
    loaded = open_dataset(DATASET)
    config = configure(loaded.store, preset=PRESET, epochs=epochs)
    # As often as in the preset, whatever the number of epochs: parts settle while the learning rate falls.
    config = config.with_training(halve_every=max(epochs // 4, 1))

    note("1/4  Ten-fold cross-validation: eight folds for training, one for validation, one for testing.")
    ledger = _cross_validate(loaded, config, evaluation_folder, as_json)
    note("2/4  Final model: 90 % of the graphs for training, 10 % for validation.")
    files.clear()
    training, result = _train(loaded, config, as_json)
    write_training(files, training, result, loaded)
    note("3/4  Picture: validation graphs, coloured by the capsule of each node.")
    explanations = _explain(loaded, result)
    _draw(picture, loaded, training, explanations)
    note("4/4  Report for the browser: the parts of every graph, compared with the planted ones.")
    page = _report(report_folder, loaded, result, explanations)

    report = _summary(ledger, result, time.monotonic() - start)
    paths = {
        "model": files.model,
        "report": page,
        "picture": picture,
        "evaluation": evaluation_folder,
        "history": files.history,
        "configuration": files.config,
    }
    if as_json:
        print_json(report | {"files": {name: str(path) for name, path in paths.items()}})
    else:
        _show(report, paths)


def _cross_validate(loaded: LoadedDataset, config: RunConfig, folder: Path, quiet: bool) -> Ledger:
    from graphcaps.cli.progress import training_progress
    from graphcaps.evaluation import CrossValidation, ResultsStore

    # Only the files of an earlier demo; anything else in the folder belongs to the user.
    for pattern in (f"{DATASET}--*.record.json", f"unfinished/{DATASET}--*.checkpoint"):
        for path in folder.glob(pattern):
            path.unlink()
    validation = CrossValidation(loaded.store, config, results=ResultsStore(folder))
    with training_progress(config.training.epochs, "     ten folds", quiet=quiet) as update:
        ledger = validation.run(lambda event: update(event.epoch))
    write_json(folder / "summary.json", ledger.summary())
    return ledger


def _train(loaded: LoadedDataset, config: RunConfig, quiet: bool) -> tuple[FinalTraining, FinalResult]:
    from graphcaps.cli.progress import training_progress
    from graphcaps.training.final_training import FinalTraining

    training = FinalTraining(loaded.store, config)
    with training_progress(config.training.epochs, "     one model", quiet=quiet) as update:
        for event in training.run():
            update(event)
    return training, training.result()


def _explain(loaded: LoadedDataset, result: FinalResult) -> StoreExplanation:
    """Explanations of all graphs."""
    from graphcaps.explanation import explain_store

    return explain_store(result.model, loaded.store)


def _draw(path: Path, loaded: LoadedDataset, training: FinalTraining, explanations: StoreExplanation) -> None:
    """Draws the first validation graph of each class."""
    from graphcaps.data.datasets.planted_parts import MOTIF_KINDS
    from graphcaps.explanation import draw_parts

    store = loaded.store
    assert store.y is not None
    validation = training.holdout.validation.tolist()
    graphs = [
        next(graph for graph in validation if int(store.y[graph]) == label)
        for label in range(store.num_classes)
    ]
    titles = []
    for graph in graphs:
        true, predicted = int(store.y[graph]), int(explanations.class_scores[graph].argmax())
        verdict = (
            "predicted correctly" if true == predicted else f"predicted as {store.class_names[predicted]}"
        )
        titles.append(f"{store.class_names[true]}, {verdict}")
    # Scaffold and bridges belong to no part: −1.
    rows = {"capsule": explanations.capsule, "planted part": store.truth["kind"] - 1}
    draw_parts(path, store, graphs, rows, titles=titles, names={"planted part": MOTIF_KINDS[1:]})


def _report(
    folder: Path,
    loaded: LoadedDataset,
    result: FinalResult,
    explanations: StoreExplanation,
) -> Path:
    """Writes the report page, with the metrics that take only seconds."""
    from graphcaps.cli.training_files import history_rows
    from graphcaps.explanation import evaluate_explanations
    from graphcaps.explanation.report import write_report

    store, fitted = loaded.store, result.model
    methods = ("capsules", "kmeans-features", "kmeans-primary", "gradient", "random")
    return write_report(
        folder,
        fitted,
        store,
        explanations,
        metrics=evaluate_explanations(fitted, store, methods=methods),
        history=history_rows(result.history),
        title=f"HGCN on {store.name}",
        used_in=fitted.used_in(store),
    )


def _summary(ledger: Ledger, result: FinalResult, seconds: float) -> dict[str, Any]:
    held_out = ledger.held_out
    assert held_out is not None
    return {
        "dataset": DATASET,
        "held_out": round(held_out.mean, 2),
        "std_folds": held_out.std_folds and round(held_out.std_folds, 2),
        "chance": 33.33,
        "epoch": result.epoch,
        "epochs": result.training["epochs"],
        "seconds": round(seconds, 1),
    }


def _show(report: dict[str, Any], paths: dict[str, Path]) -> None:
    console = terminal()
    console.print()
    spread = "" if report["std_folds"] is None else f" ± {report['std_folds']:.1f} over ten folds"
    accuracy = f"{report['held_out']:.1f} %{spread} (chance: 33.3 %)"
    rows = [("held-out accuracy", accuracy), ("time", f"{report['seconds']:.0f} s")]
    print_pairs(console, rows + [(name, str(path)) for name, path in paths.items()])
    model = shlex.quote(str(paths["model"]))
    console.print("\nNext steps", style="bold")
    if shutil.which("graphcaps") is None:
        console.print("  source .venv/bin/activate", markup=False)
        console.print(
            "      makes the command graphcaps available (Windows: .venv\\Scripts\\activate)", style="dim"
        )
    for command, purpose in (
        (f"graphcaps explain {model} {DATASET} --graph 1", "explain the prediction of one graph"),
        (f"graphcaps info {model}", "describe the model and its expected input"),
        (f"graphcaps predict {model} {DATASET}", "predict class and probability of every graph"),
        (f"graphcaps evaluate {DATASET} --model gin", "evaluate GIN on the same folds"),
        (f"graphcaps evaluate {DATASET}-hard", "evaluate a harder variant of the data set"),
        ("graphcaps data list", "list more data sets, including the eleven of the paper"),
    ):
        console.print(f"  {command}", markup=False, soft_wrap=True)
        console.print(f"      {purpose}", style="dim", markup=False, soft_wrap=True)
