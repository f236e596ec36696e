"""Runs the tests that need a GPU, and those of kernels as compiled code, before anything is timed there.

    python -m benchmarks.run_gpu_tests --jobs 10 --out results/gpu-tests.json
    python -m benchmarks.run_gpu_tests --files tests/ops/routing/*_triton.py --earlier results/gpu-tests.json --out FILE

Every file of tests is a process of its own, ``--jobs`` at a time: most of the time is compilation. The file has the
numbers of passed, failed and skipped tests of each file, the names of those that failed with the last line of their
error, and the hardware; each file has the commit that it was run at. ``--earlier`` adds the files of an earlier record
that are not run now, as after a change of some kernels. The exit code is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit

TESTS = Path("tests")
MODELS = ("test_hgcn_kernels.py", "test_kernel_training.py")
"""Files with tests of whole models by kernels."""
_SECONDS = 300  # for a file
_MARK = re.compile(r"mark\.gpu\b")


def gpu_test_files(tests: Path = TESTS) -> list[Path]:
    """Files with tests of compiled kernels or with tests that need a GPU, the largest first."""
    found = [
        path
        for path in tests.rglob("test_*.py")
        if _is_of_kernels(path) or _MARK.search(path.read_text("utf-8"))
    ]
    return sorted(found, key=lambda path: -path.stat().st_size)


def _is_of_kernels(path: Path) -> bool:
    """Whether all tests of a file are worth running on a GPU, not only those that are marked."""
    return path.parent.name == "gpu" or "triton" in path.name or path.name in MODELS


def run_file(path: Path, *, select: str) -> dict[str, Any]:
    """Runs the tests of a file in a process of its own: numbers, seconds, and what failed.

    Args:
        path (Path): The file.
        select (str): pytest's expression of marks; files of other tests than kernels run those marked ``gpu`` only.
    """
    marks = select if _is_of_kernels(path) else f"gpu and ({select})"
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += ["-m", marks, str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            failures = {"(process)": f"not finished after {_SECONDS} s"}
            return {"file": path.as_posix(), "passed": 0, "failed": 1, "skipped": 0, "seconds": _SECONDS} | {
                "failures": failures
            }
        found: dict[str, Any] = {"file": path.as_posix(), "passed": 0, "failed": 0, "skipped": 0}
        failures = {}
        if report.exists():
            for case in ET.parse(report).getroot().iter("testcase"):
                wrong = [each for each in case if each.tag in ("failure", "error")]
                outcome = "failed" if wrong else "skipped" if case.find("skipped") is not None else "passed"
                found[outcome] += 1
                if wrong:
                    message = wrong[0].get("message") or wrong[0].text or ""
                    failures[case.get("name", "?")] = message.strip().splitlines()[0][:300] if message else ""
        elif done.returncode != 5:  # 5: no test was selected
            found["failed"] = 1
            failures["(process)"] = (done.stdout + done.stderr).strip()[-300:]
    return found | {"seconds": round(time.perf_counter() - began, 1), "failures": failures}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time")
    parser.add_argument("--files", type=Path, nargs="+", help="in place of all")
    parser.add_argument("--select", default="not exhaustive", help="pytest's expression of marks")
    parser.add_argument(
        "--earlier", type=Path, help="JSON file of an earlier run, for the files that are not run"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    options = parser.parse_args(words)
    files = options.files or gpu_test_files()
    commit = versions_and_commit().get("commit")
    kept = [] if options.earlier is None else earlier_files(options.earlier, files)
    results: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        tasks = [pool.submit(run_file, path, select=options.select) for path in files]
        for task in as_completed(tasks):
            results.append(found := task.result() | {"commit": commit})
            print(
                f"{found['file']}: {found['passed']} passed, {found['failed']} failed, {found['seconds']} s"
            )
            for name, message in found["failures"].items():
                print(f"  {name}: {message}", flush=True)
            if options.out is not None:
                write(options.out, [*kept, *results], len(kept) + len(files))
    totals = count([*kept, *results])
    print(", ".join(f"{number} {name}" for name, number in totals.items()), flush=True)
    return int(totals["failed"] > 0)


def earlier_files(path: Path, files: Sequence[Path]) -> list[dict[str, Any]]:
    """The files of an earlier record that still exist and are not run now, with the commit of that record."""
    record = json.loads(path.read_text("utf-8"))
    now = {each.as_posix() for each in files}
    return [
        {"commit": record["versions"].get("commit")} | each
        for each in record["files"]
        if each["file"] not in now and Path(each["file"]).exists()
    ]


def count(results: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Numbers of tests in all files."""
    return {name: sum(found[name] for found in results) for name in ("passed", "failed", "skipped")}


def write(path: Path, results: Sequence[dict[str, Any]], num_files: int) -> None:
    """Writes the results so far; ``unfinished`` is the number of files without a result."""
    import torch

    hardware = describe_hardware("cuda" if torch.cuda.is_available() else "cpu")
    record = count(results) | {
        "unfinished": num_files - len(results),
        "hardware": hardware,
        "versions": versions_and_commit(),
        "files": sorted(results, key=lambda found: str(found["file"])),
    }
    write_atomically(path, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
