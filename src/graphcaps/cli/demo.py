"""``graphcaps demo``: the main job on the embedded data set, from graphs to a page that shows why."""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.output import note, print_json, print_pairs, terminal
from graphcaps.errors import DataError

if TYPE_CHECKING:
    from graphcaps.config import RunConfig
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.evaluation import Ledger
    from graphcaps.explanation import StoreExplanation
    from graphcaps.training.final_training import FinalResult, FinalTraining

__all__ = ["demo"]

DATASET = "planted-parts"


def demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the results; made where missing.")
    ] = Path("demo"),
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", min=1, help="Passes over the graphs.")] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Cross-validate, train, save, draw and report on the embedded data set; no download, under two minutes.

    Its graphs hold a ring, a star, a clique and a ladder, and the class is which of them meet. Files of an
    earlier demo in DIR are replaced.
    """
    from graphcaps.cli.run_options import configure
    from graphcaps.cli.training_files import TrainingFiles, write_training
    from graphcaps.data.datasets.loading import open_dataset

    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    files = TrainingFiles(out / f"{DATASET}.safetensors")
    files.check(overwrite=True, resume=False)
    picture = out / "parts.png"
    if picture.exists() and not picture.is_file():
        raise DataError(picture, "a name for a file to write", "a folder or a device")
    report_folder = out / "report"
    if report_folder.exists() and not report_folder.is_dir():
        raise DataError(report_folder, "a folder to write into", "a file")
    loaded = open_dataset(DATASET)
    config = configure(loaded.store.name, epochs=epochs)

    note("1/4  Ten-fold cross-validation: eight folds train, one chooses the epoch, one tests.")
    ledger = _cross_validate(loaded, config, out, as_json)
    note("2/4  A model to keep: nine tenths of the graphs train, the rest choose the epoch.")
    files.clear()
    training, result = _train(loaded, config, as_json)
    write_training(files, training, result, loaded)
    note("3/4  A picture: graphs it was not trained on, coloured by the capsules that it found.")
    explanations = _explain(loaded, result)
    _draw(picture, loaded, training, explanations)
    note("4/4  A page for your browser: every graph, its parts, and how well they fit what was planted.")
    page = _report(report_folder, loaded, training, result, explanations)

    report = _summary(ledger, result, time.monotonic() - began)
    paths = {
        "model": files.model,
        "report": page,
        "picture": picture,
        "evaluation": out / "evaluation",
        "history": files.history,
        "configuration": files.config,
    }
    if as_json:
        print_json(report | {"files": {name: str(path) for name, path in paths.items()}})
    else:
        _show(report, paths)


def _cross_validate(loaded: LoadedDataset, config: RunConfig, out: Path, quiet: bool) -> Ledger:
    from graphcaps.cli.output_files import write_json
    from graphcaps.cli.progress import training_progress
    from graphcaps.evaluation import CrossValidation, ResultsStore

    folder = out / "evaluation"
    if folder.exists() and not folder.is_dir():
        raise DataError(folder, "a folder to write into", "a file")
    # An earlier demo's files alone: whatever else lies there is not ours.
    for old in (
        *folder.glob(f"{DATASET}--*.record.json"),
        *folder.glob(f"unfinished/{DATASET}--*.checkpoint"),
    ):
        old.unlink()
    validation = CrossValidation(loaded.store, config, results=ResultsStore(folder))
    with training_progress(config.training.epochs, "     ten folds together", quiet=quiet) as update:
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
    """The first graph of each class among those that did not train the model."""
    from graphcaps.data.datasets.planted_parts import MOTIF_KINDS
    from graphcaps.explanation import draw_parts

    store = loaded.store
    assert store.y is not None
    assert training.split.validation is not None
    unseen = training.split.validation.tolist()
    chosen = [
        next(graph for graph in unseen if int(store.y[graph]) == label) for label in range(store.num_classes)
    ]
    titles = []
    for graph in chosen:
        true, predicted = int(store.y[graph]), int(explanations.class_scores[graph].argmax())
        verdict = (
            "predicted correctly" if true == predicted else f"predicted as {store.class_names[predicted]}"
        )
        titles.append(f"{store.class_names[true]}, {verdict}")
    # Scaffold and bridges are no part: number −1.
    rows = {"capsule found": explanations.capsule, "part planted": store.truth["kind"] - 1}
    draw_parts(path, store, chosen, rows, titles=titles, names={"part planted": MOTIF_KINDS[1:]})


def _report(
    folder: Path,
    loaded: LoadedDataset,
    training: FinalTraining,
    result: FinalResult,
    explanations: StoreExplanation,
) -> Path:
    """The page about the model just trained, with the measures that take no more than seconds."""
    import torch

    from graphcaps.cli.training_files import history_rows
    from graphcaps.explanation import evaluate_explanations
    from graphcaps.explanation.report import write_report

    store, fitted = loaded.store, result.model
    trained = torch.zeros(len(store), dtype=torch.bool)
    trained[training.split.train] = True
    methods = ("capsules", "kmeans-features", "kmeans-primary", "gradient", "random")
    return write_report(
        folder,
        fitted,
        store,
        explanations,
        metrics=evaluate_explanations(fitted, store, methods=methods),
        history=history_rows(result.history),
        title=f"HGCN on {store.name}",
        trained=trained,
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
    accuracy = f"{report['held_out']:.1f} %{spread} (guessing gives 33.3 %)"
    rows = [("held-out accuracy", accuracy), ("time", f"{report['seconds']:.0f} s")]
    print_pairs(console, rows + [(name, str(path)) for name, path in paths.items()])
    model = shlex.quote(str(paths["model"]))
    console.print("\nTry next", style="bold")
    if shutil.which("graphcaps") is None:
        console.print("  source .venv/bin/activate", markup=False)
        console.print(
            "      so that the shell finds graphcaps (Windows: .venv\\Scripts\\activate)", style="dim"
        )
    for command, what in (
        (f"graphcaps explain {model} {DATASET} --graph 1", "the parts of one decision"),
        (f"graphcaps info {model}", "what the model is and expects"),
        (f"graphcaps predict {model} {DATASET}", "a class and its probability for every graph"),
        (f"graphcaps evaluate {DATASET} --model gin", "another network on the same folds"),
        (f"graphcaps evaluate {DATASET}-hard", "where it becomes difficult"),
        ("graphcaps data list", "more data sets, the paper's eleven among them"),
    ):
        console.print(f"  {command}", markup=False, soft_wrap=True)
        console.print(f"      {what}", style="dim", markup=False, soft_wrap=True)
