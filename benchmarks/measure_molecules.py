"""ROC-AUC and accuracy of a model on seeded scaffold splits of public molecule sets.

    python -m benchmarks.measure_molecules bace bbbp --root DIR --model ecfp-forest --seeds 10
    python -m benchmarks.measure_molecules hiv --root DIR --model ecfp-forest --seeds 3

DIR holds bace.csv, bbbp.csv and hiv.csv. Split s is that of ``--split scaffold --seed s``: 80, 10 and 10 % of the
molecules, with the class proportions of the whole set. The model is trained on the first part with seed s, the second
selects the epoch or calibrates, and the third is scored once. A row per split is written to ``--out``; rows of the same
data set, model and seed are replaced, others are kept.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.molecule_arrays import LABELS
from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.cli.run_options import configure
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.splits.groups import resolve_splits
from graphcaps.training.device import choose_device
from graphcaps.training.final_training import train_final

METRICS = ("roc_auc", "pr_auc", "accuracy", "balanced_accuracy", "mcc")
COLUMNS = (
    "dataset",
    "model",
    "seed",
    *METRICS,
    "test_graphs",
    "seconds",
    "hardware",
    "date",
    "commit",
    "command",
)
OUT = Path("results/molecules/summary.csv")


def measure(
    name: str, root: Path, *, model: str | None, preset: str | None, variant: str, seeds: int, device: str
) -> Iterator[dict[str, str]]:
    """A row per seed of one data set, as soon as it is measured."""
    store = open_dataset(root / f"{name}.csv", label=LABELS[name], bad="skip").store
    config = configure(store, preset=preset, model=model)
    for split in resolve_splits("scaffold", store, seeds=range(seeds)):
        assert split.seed is not None
        began = time.perf_counter()
        training = train_final(store, config, seed=split.seed, split=split, device=device).training
        seconds = time.perf_counter() - began
        metrics = {key: f"{training['test_metrics'][key]:.4f}" for key in METRICS}
        shown = ", ".join(f"{key} {value}" for key, value in metrics.items())
        print(f"{name}, {variant}, seed {split.seed}: {shown} ({seconds:.1f} s)", flush=True)
        yield {
            "dataset": name,
            "model": variant,
            "seed": str(split.seed),
            **metrics,
            "test_graphs": str(training["test_graphs"]),
            "seconds": f"{seconds:.1f}",
            "hardware": describe_hardware(choose_device(device, "measure_molecules", config.model)),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "commit": versions_and_commit().get("commit", ""),
            "command": " ".join(["python -m benchmarks.measure_molecules", *_without_root(sys.argv[1:])]),
        }


def _without_root(words: Sequence[str]) -> list[str]:
    """The words of a command with DIR in place of the folder of the data."""
    return ["DIR" if index and words[index - 1] == "--root" else word for index, word in enumerate(words)]


def read_rows(path: Path) -> list[dict[str, str]]:
    """The stored rows; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: Sequence[dict[str, str]]) -> None:
    """Replaces rows of the same data set, model and seed, and sorts all rows by these."""
    table = {(row["dataset"], row["model"], int(row["seed"])): row for row in [*read_rows(path), *rows]}
    write_table(path, COLUMNS, [table[key] for key in sorted(table)])


def write_table(path: Path, columns: Sequence[str], rows: Sequence[dict[str, str]]) -> None:
    """Writes rows as CSV, in place of an existing file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+", choices=[*LABELS], help="data sets")
    parser.add_argument("--root", type=Path, required=True, help="folder with the CSV files")
    parser.add_argument("--model", help="a registered model; default: that of the preset")
    parser.add_argument("--preset", help="a preset; default: that of molecules")
    parser.add_argument("--variant", help="name in the results; default: the model")
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0, 1, 2, …")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    for name in options.datasets:
        rows = measure(
            name,
            options.root,
            model=options.model,
            preset=options.preset,
            variant=options.variant or options.model or options.preset or "default",
            seeds=options.seeds,
            device=options.device,
        )
        for row in rows:
            write_rows(options.out, [row])


if __name__ == "__main__":
    main()
