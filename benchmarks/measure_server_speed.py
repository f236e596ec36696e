"""Speed of a running server: one molecule at a time, and many at once, which the server predicts in batches.

    python -m benchmarks.measure_server_speed bace.csv --label Class

A model is trained on the table for two epochs, since its weights do not matter here, and ``graphcaps serve`` started
with it. The program sends the molecules one by one to ``/predict``: first each after the response to the one before,
then from as many threads as --concurrent says. It stores the median response time, the requests per second, and the
CPU time of a request in all processes of the server, of which the first two need free cores. The best of the rounds is
merged into results/performance.json or the file of --out.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure_server_load import LoadRequest, make_requests, run_round, running_server

PREFIX = "server: "


def cpu_seconds(process: int) -> float:
    """CPU time, user and system, of a process and of all that it has started and that run (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK") + sum(cpu_seconds(int(child)) for child in children)


def measure(
    model: Path, smiles: Sequence[str], *, requests: int, concurrent: int, rounds: int, workers: int
) -> dict[str, tuple[float, str]]:
    """Value and unit of each measurement by its name: the best of the rounds."""
    listed = make_requests(smiles, requests, one_bad_in=requests + 1)
    several = f"{concurrent} concurrent requests"
    found: dict[str, list[float]] = {}
    with running_server(model, "--workers", str(workers)) as (server, port):
        _round(port, listed[: 4 * concurrent], concurrent, server)  # imports what the workers need
        for _ in range(rounds):
            for name, number in (("one request after another", 1), (several, concurrent)):
                before = cpu_seconds(server)
                median, rate = _round(port, listed, number, server)
                spent = 1000 * (cpu_seconds(server) - before) / len(listed)
                print(f"{name}: {median:.1f} ms, {rate:.0f}/s, CPU {spent:.1f} ms", file=sys.stderr)
                found.setdefault(f"{name}, median response", []).append(median)
                found.setdefault(f"{name}, rate", []).append(-rate)
                found.setdefault(f"{name}, CPU time of a request", []).append(spent)
    units = {"rate": "requests/s"}
    return {
        f"{PREFIX}{name}": (float(f"{abs(min(values)):.3g}"), units.get(name.rpartition(", ")[2], "ms"))
        for name, values in found.items()
    }


def _round(port: int, requests: Sequence[LoadRequest], concurrent: int, server: int) -> tuple[float, float]:
    """Median response time in ms and requests per second; every request must be answered."""
    done = run_round(port, requests, concurrent=concurrent, server=server)
    if done.good_answered < done.requests:
        raise SystemExit(f"{done.requests - done.good_answered} of {done.requests} requests failed.")
    return done.p50_ms, done.requests / done.seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path, help="molecules with a column 'smiles'")
    parser.add_argument("--label", required=True, help="column of the classes")
    parser.add_argument("--requests", type=int, default=1000, help="requests of a round")
    parser.add_argument("--concurrent", type=int, default=16, help="requests at a time in the second part")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="worker processes of the server")
    parser.add_argument("--out", type=Path, default=Path("results/performance.json"))
    settings = parser.parse_args()
    from graphcaps.bench import make_measurement, merge_measurements

    with settings.table.open(encoding="utf-8") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.safetensors"
        train = ("train", settings.table, "--label", settings.label, "--epochs", "2", "--out", model)
        subprocess.run([sys.executable, "-m", "graphcaps", *map(str, train)], check=True, stdout=sys.stderr)
        values = measure(
            model,
            smiles,
            requests=settings.requests,
            concurrent=settings.concurrent,
            rounds=settings.rounds,
            workers=settings.workers,
        )
    command = f"python -m benchmarks.measure_server_speed {settings.table.name} --label {settings.label}"
    command += f" --requests {settings.requests} --concurrent {settings.concurrent}"
    command += f" --rounds {settings.rounds} --workers {settings.workers}"
    name = (
        settings.table.stem if settings.workers == 1 else f"{settings.table.stem}, {settings.workers} workers"
    )
    merge_measurements(
        settings.out,
        [make_measurement(what, name, "cpu", value, unit, command) for what, (value, unit) in values.items()],
    )


if __name__ == "__main__":
    main()
