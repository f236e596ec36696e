"""CPU time of what a user waits for on a small data set: start-up, reading, a prediction, and a default fit.

    python -m benchmarks.measure_small_runs --seeds 0 1 2 3 4 5
    python -m benchmarks.measure_small_runs --seeds 0 1 --against ../graphcaps-before/src

Every run is a process of its own: ``import graphcaps``, ``graphcaps --help``, ``graphcaps data info MUTAG``,
``graphcaps predict`` of one graph and of one molecule, and ``HGCNClassifier().fit`` on MUTAG with one torch thread. A
first run of each command, which is not measured, leaves the bytecode that an installed package has. CPU time, user and
system, of a command and of the processes that it starts depends less on what else the machine does than the duration,
but grows with the load too. With --against, each run alternates with the same run of another source tree, and the
median ratio is stored. The medians are merged into results/performance.json or the file of --out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "src"
PREFIX = "small: "
DEFAULT_EPOCHS = 300

_FIT = """
import json, sys, time, torch
from graphcaps import HGCNClassifier, load_dataset
torch.set_num_threads(1)
store = load_dataset("MUTAG")
began = time.process_time()
model = HGCNClassifier(random_state=int(sys.argv[1]), epochs=int(sys.argv[2])).fit(store)
seconds = time.process_time() - began
print(json.dumps({"seconds": seconds, "epochs": model.n_iter_}))
"""
_MODEL = """
import sys, warnings
from graphcaps import HGCNClassifier, load_dataset
warnings.simplefilter("ignore")
HGCNClassifier(epochs=1).fit(load_dataset("MUTAG")).save(sys.argv[1])
HGCNClassifier(epochs=1).fit(["C" * n + o for n in range(1, 21) for o in ("", "O")], [0, 1] * 20).save(sys.argv[2])
"""


def cpu_seconds(words: Sequence[str | Path], source: Path) -> float:
    """CPU time of ``python WORDS`` with the package in ``source``; its output is dropped."""
    return _run(words, source)[0]


def fit(seed: int, epochs: int, source: Path) -> tuple[float, int]:
    """CPU time of a fit without imports, and the number of its epochs."""
    result = json.loads(_run(["-c", _FIT, str(seed), str(epochs)], source)[1])
    return result["seconds"], result["epochs"]


def _run(words: Sequence[str | Path], source: Path) -> tuple[float, str]:
    environment = os.environ | {"PYTHONPATH": str(source)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = os.times()
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )
    after = os.times()
    if done.returncode:
        raise SystemExit(f"python {' '.join(map(str, words))[:200]} failed: {done.stderr.strip()[-500:]}")
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return spent, done.stdout


def measure(arguments: argparse.Namespace) -> dict[str, tuple[float, str]]:
    """Value and unit of each measurement by its name."""
    sources = [HERE] if arguments.against is None else [HERE, arguments.against]
    spent: dict[str, list[list[float]]] = {}
    epochs: list[int] = []
    options = "" if arguments.epochs == DEFAULT_EPOCHS else f"epochs={arguments.epochs}"
    name_of_fit = f"{PREFIX}HGCNClassifier({options}).fit"
    with tempfile.TemporaryDirectory() as folder:
        model, of_molecules = Path(folder) / "model.safetensors", Path(folder) / "molecules.safetensors"
        _run(["-c", _MODEL, model, of_molecules], HERE)
        molecule = Path(folder) / "molecule.csv"
        molecule.write_text("smiles\nCC(C)Cc1ccc(cc1)C(C)C(=O)O\n")
        graph = Path(folder) / "one.json"
        edges = [[a, (a + 1) % 6] for a in range(6)]
        nodes = [{"id": node, "label": 0} for node in range(6)]
        links = [{"source": a, "target": b} for a, b in edges]
        graph.write_text(json.dumps({"directed": False, "multigraph": False, "nodes": nodes, "links": links}))
        commands: dict[str, list[str | Path]] = {
            "import graphcaps": ["-c", "import graphcaps"],
            "graphcaps --help": ["-m", "graphcaps", "--help"],
            "import torch alone": ["-c", "import torch"],
            "graphcaps data info MUTAG": ["-m", "graphcaps", "data", "info", "MUTAG"],
            "graphcaps predict, one graph": ["-m", "graphcaps", "predict", model, graph],
            "graphcaps predict, one molecule": ["-m", "graphcaps", "predict", of_molecules, molecule],
        }
        for words in commands.values():
            for each in sources:
                _run(words, each)
        for _ in range(arguments.rounds):
            for name, words in commands.items():
                spent.setdefault(PREFIX + name, []).append([cpu_seconds(words, each) for each in sources])
                _report(name, spent[PREFIX + name][-1])
    for seed in arguments.seeds:
        runs = [fit(seed, arguments.epochs, each) for each in sources]
        spent.setdefault(name_of_fit, []).append([seconds for seconds, _ in runs])
        per_epoch = [1000 * seconds / count for seconds, count in runs]
        spent.setdefault(f"{name_of_fit}, an epoch", []).append(per_epoch)
        epochs.append(runs[0][1])
        _report(f"fit with seed {seed}, {[count for _, count in runs]} epochs", spent[name_of_fit][-1])
    values: dict[str, tuple[float, str]] = {}
    for name, rounds in spent.items():
        unit = "ms" if name.endswith("an epoch") else "s"
        values[f"{name}, CPU time"] = float(f"{statistics.median(each[0] for each in rounds):.3g}"), unit
        if arguments.against is not None:
            ratio = statistics.median(each[0] / each[1] for each in rounds)
            values[f"{name}, times {arguments.against_name}"] = round(ratio, 2), "times"
    if epochs:
        values[f"{name_of_fit}, epochs"] = statistics.median(epochs), "epochs"
    return values


def _report(name: str, seconds: Sequence[float]) -> None:
    print(name, *(f"{each:.2f}" for each in seconds), file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4, 5])
    parser.add_argument(
        "--epochs", type=int, default=DEFAULT_EPOCHS, help="largest number of epochs of a fit"
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs of each command")
    parser.add_argument("--against", type=Path, help="folder 'src' of another version to compare with")
    parser.add_argument("--against-name", default="before", help="name of the other version")
    parser.add_argument("--out", type=Path, default=Path("results/performance.json"))
    arguments = parser.parse_args()
    from graphcaps.bench import make_measurement, merge_measurements

    seeds = " ".join(map(str, arguments.seeds))
    command = f"python -m benchmarks.measure_small_runs --seeds {seeds} --epochs {arguments.epochs}"
    command += f" --rounds {arguments.rounds}"
    if arguments.against is not None:
        command += f" --against SRC --against-name '{arguments.against_name}'"
    merge_measurements(
        arguments.out,
        [
            make_measurement(name, "MUTAG", "cpu", value, unit, command)
            for name, (value, unit) in measure(arguments).items()
        ],
    )


if __name__ == "__main__":
    main()
