"""Times one training in several processes, on a GPU each, against the same training in one process.

    python -m benchmarks.measure_several_gpus NCI1 --processes 1 2 4 --device cuda --epochs 6 --out several.json

Every run is ``graphcaps train`` with the same options. A run is timed only if its loss of the first epoch is that of
one process. Seconds of an epoch are the median without the first one, in which kernels are compiled.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

TOLERANCE = 1e-3
"""Largest relative difference of the first epoch's loss, in float32."""


def train(source: str, processes: int, options: list[str], out: Path) -> list[dict[str, Any]]:
    """The history of a training by some processes."""
    launcher = ["torch.distributed.run", f"--nproc-per-node={processes}", "-m"] if processes > 1 else []
    words = [sys.executable, "-m", *launcher, "graphcaps", "train", source, "--out", str(out), *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {done.stderr.strip()[-2000:]}")
    history: list[dict[str, Any]] = json.loads(Path(f"{out}.history.json").read_text("utf-8"))
    return history


def compare(histories: dict[int, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Seconds of an epoch by number of processes, and their ratio to one process.

    Raises:
        SystemExit: If the first epoch of a run differs from that of one process.
    """
    alone = histories[1]
    results = {}
    for processes, history in histories.items():
        losses = [float(each[0]["train_loss"]) for each in (history, alone)]
        if abs(losses[0] - losses[1]) > TOLERANCE * abs(losses[1]):
            raise SystemExit(
                f"{processes} processes: loss {losses[0]}, one process: {losses[1]}; nothing is timed."
            )
        seconds, single = (statistics.median(row["seconds"] for row in each[1:]) for each in (history, alone))
        results[str(processes)] = {"seconds_per_epoch": seconds, "speedup": single / seconds}
    return results


def main(arguments: argparse.Namespace) -> None:
    from graphcaps._io.atomic_write import write_atomically
    from graphcaps._io.provenance import describe_hardware, versions_and_commit

    options = [
        "--device",
        arguments.device,
        "--epochs",
        str(arguments.epochs),
        "--patience",
        "0",
        "--no-baseline",
    ]
    options += [] if arguments.batch_size is None else ["--batch-size", str(arguments.batch_size)]
    counts = sorted({1, *arguments.processes})
    with TemporaryDirectory() as folder:
        histories = {
            count: train(arguments.source, count, options, Path(folder) / f"{count}.safetensors")
            for count in counts
        }
    record = {
        "source": arguments.source,
        "options": options,
        "processes": compare(histories),
        "hardware": describe_hardware(arguments.device),
        "versions": versions_and_commit(),
    }
    text = json.dumps(record, indent=2)
    print(text)
    if arguments.out is not None:
        write_atomically(arguments.out, text.encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", help="data set, as in graphcaps train")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--out", type=Path)
    main(parser.parse_args())
