"""Bit patterns of short runs: a refactoring must leave every one of them unchanged.

    python benchmarks/bit_patterns.py --root DIR                 # compare with the stored patterns, on the CPU
    python benchmarks/bit_patterns.py --root DIR --device cuda   # the captured GPU steps of NCI1 and MUTAG
    python benchmarks/bit_patterns.py --root DIR --store         # replace them, after a change that is meant

DIR holds MUTAG.zip and NCI1.zip. Everything is run through the command line, so that internal names may change:
training (weights), prediction with the model file read back, explanation and cross-validation (records).
The patterns belong to a processor with its instruction set, or a GPU, and to a version of torch, which are stored with
them; on other hardware last bits may differ. Those of the CPU and of the GPU are stored apart, each with its commit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from graphcaps._io.provenance import describe_hardware, git_commit

STORED = Path(__file__).resolve().parents[1] / "results" / "bit-patterns.json"
# What is not computed from the graphs, or differs between two runs of the same program.
_VOLATILE = (
    *(
        "second",
        "time",
        "version",
        "hardware",
        "commit",
        "memory",
        "date",
        "written",
        "command",
        "path",
        "file",
    ),
    *("elapsed", "digest", "fingerprint", "checksum", "config"),
    "contribution",  # rounding of sums that follow from the other numbers
)


def graphcaps(*arguments: object) -> str:
    """Standard output of ``graphcaps ARGUMENTS``."""
    words = [sys.executable, "-m", "graphcaps", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words[2:])} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def weights(path: Path) -> dict[str, str]:
    """A digest of every tensor of the model in a model file, which also holds hashes of its graphs."""
    with safe_open(str(path), "pt") as file:
        names = sorted(name for name in file.keys() if not name.startswith("split_hashes."))  # noqa: SIM118
        return {name: digest(file.get_tensor(name).contiguous().numpy().tobytes()) for name in names}


def numbers(tree: Any) -> list[Any]:
    """Digest and count of all numbers in a JSON document, whatever its keys are called."""
    texts: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            for key in sorted(node):
                if not any(word in key.lower() for word in _VOLATILE):
                    visit(node[key])
        elif isinstance(node, list):
            for item in node:
                visit(item)
        elif isinstance(node, int | float) and not isinstance(node, bool):
            texts.append(repr(node))

    visit(tree)
    return [digest("\n".join(sorted(texts)).encode()), len(texts)]


def curves(folder: Path, prefix: str = "") -> dict[str, str]:
    """A digest of the curves of every record in a folder: losses and accuracies of all folds and epochs."""
    records = {
        path.name: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.record.json"))
    }
    return {
        f"record-{prefix}{name}": digest(json.dumps(record["curves"], sort_keys=True).encode())
        for name, record in records.items()
    }


def cpu_patterns(folder: Path, root: list[str]) -> dict[str, Any]:
    patterns: dict[str, Any] = {}
    for preset in ("paper", "default"):
        model = folder / f"{preset}.safetensors"
        graphcaps(
            *("train", "MUTAG", *root, "--preset", preset, "--epochs", 20, "--seed", 0, "--device", "cpu"),
            *("--out", model),
        )
        patterns[f"train-{preset}"] = weights(model)
        patterns[f"predict-{preset}"] = numbers(
            json.loads(graphcaps("predict", model, "MUTAG", *root, "--json"))
        )
        for graph in (1, 7):
            shown = graphcaps("explain", model, "MUTAG", *root, "--graph", graph, "--json")
            patterns[f"explain-{preset}-{graph}"] = numbers(json.loads(shown))
    for name, words in (
        ("gin", ("MUTAG", *root, "--model", "gin", "--epochs", 5)),
        ("parts", ("planted-parts", "--parts", "blocks", "--epochs", 3)),
    ):
        model = folder / f"{name}.safetensors"
        graphcaps("train", *words, "--device", "cpu", "--out", model)
        patterns[name] = weights(model)
    shown = graphcaps(
        *("evaluate", "planted-parts", "--epochs", 4, "--folds", 5, "--protocol", "both", "--device", "cpu"),
        *("--out", folder / "records", "--json"),
    )
    return patterns | {"evaluate-json": numbers(json.loads(shown))} | curves(folder / "records")


def gpu_patterns(folder: Path, root: list[str]) -> dict[str, Any]:
    patterns: dict[str, Any] = {}
    for name, precision in (("NCI1", "tf32"), ("NCI1", "float32"), ("MUTAG", "tf32")):
        out = folder / f"{name}-{precision}"
        graphcaps(
            *("evaluate", name, *root, "--preset", "paper", "--epochs", 3, "--protocol", "paper"),
            *("--device", "cuda", "--precision", precision, "--out", out),
        )
        patterns |= curves(out, f"{precision}-")
    model = folder / "model.safetensors"
    graphcaps(
        *(
            "train",
            "NCI1",
            *root,
            "--preset",
            "paper",
            "--epochs",
            3,
            "--device",
            "cuda",
            "--precision",
            "tf32",
        ),
        *("--out", model),
    )
    return patterns | {"gpu-train": weights(model)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", help="folder with MUTAG.zip and NCI1.zip")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--store", action="store_true", help="store the patterns of this run")
    parser.add_argument("--out", type=Path, help="also write the patterns of this run to a JSON file")
    options = parser.parse_args()
    root = ["--root", options.root] if options.root else []
    measure = gpu_patterns if options.device == "cuda" else cpu_patterns
    with tempfile.TemporaryDirectory() as folder:
        patterns = measure(Path(folder), root)
    run = {
        "commit": git_commit(),
        "hardware": describe_hardware(options.device),
        "instructions": torch.backends.cpu.get_cpu_capability() if options.device == "cpu" else None,
        "torch": torch.__version__,
        "patterns": patterns,
    }
    if options.out:
        options.out.write_text(json.dumps(run, indent=1, sort_keys=True) + "\n", "utf-8")
    stored = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    if options.store:
        STORED.write_text(
            json.dumps(stored | {options.device: run}, indent=1, sort_keys=True) + "\n", "utf-8"
        )
        print(f"Stored {len(patterns)} patterns of {run['hardware']}.")
        return
    before = stored.get(options.device)
    if before is None:
        raise SystemExit(f"No patterns are stored for {options.device}; store them with --store.")
    for key in ("hardware", "instructions", "torch"):
        if run[key] != before[key]:
            print(f"Note: {key} is {run[key]}, stored patterns are of {before[key]}.")
    print(f"Stored patterns are of commit {before['commit']}.")
    names = sorted({*patterns, *before["patterns"]})
    differing = [name for name in names if patterns.get(name) != before["patterns"].get(name)]
    print(f"{len(names) - len(differing)} of {len(names)} patterns are unchanged.")
    for name in differing:
        print(f"  differs: {name}")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
