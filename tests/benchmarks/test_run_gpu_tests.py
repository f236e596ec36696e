"""The program that runs the tests of a GPU: which files it takes, and what it reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.run_gpu_tests import earlier_files, gpu_test_files, main, run_file, write


def test_files_of_kernels_and_of_marked_tests_are_found(tmp_path: Path) -> None:
    for name in ("gpu/test_a.py", "ops/test_b_triton.py", "ops/test_c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "ops" / "test_d.py").write_text("import pytest\n@pytest.mark.gpu\ndef test_d(): pass\n")
    assert {path.name for path in gpu_test_files(tmp_path)} == {"test_a.py", "test_b_triton.py", "test_d.py"}
    assert Path("tests/ops/lengths/test_lengths_triton.py") in gpu_test_files()


@pytest.mark.slow  # processes of pytest
def test_numbers_and_failures_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernels, marked = tmp_path / "test_x_triton.py", tmp_path / "test_y.py"
    kernels.write_text(
        "import pytest\n"
        "def test_right(): pass\n"
        "def test_wrong(): assert 1 == 2, 'no'\n"
        "def test_left_out(): pytest.skip('no GPU')\n"
    )
    marked.write_text("def test_without_a_mark(): assert False\n")
    out = tmp_path / "out.json"
    assert main(["--files", str(kernels), str(marked), "--out", str(out)]) == 1
    record = json.loads(out.read_text())
    assert {name: record[name] for name in ("passed", "failed", "skipped", "unfinished")} == {
        "passed": 1,
        "failed": 1,
        "skipped": 1,
        "unfinished": 0,
    }
    (failure,) = record["files"][0]["failures"].items()
    assert failure[0] == "test_wrong"
    assert "no" in failure[1]
    assert "test_wrong" in capsys.readouterr().out
    kernels.write_text("import nothing_of_this_name\n")
    assert run_file(kernels, select="not gpu")["failed"] == 1


def test_files_of_an_earlier_run_are_kept_with_its_commit(tmp_path: Path) -> None:
    one, two = tmp_path / "test_one_triton.py", tmp_path / "test_two_triton.py"
    for path in (one, two):
        path.write_text("def test_it(): pass\n")
    gone = {
        "file": str(tmp_path / "test_gone_triton.py"),
        "passed": 9,
        "failed": 0,
        "skipped": 0,
        "failures": {},
    }
    files = [
        {"file": path.as_posix(), "passed": 5, "failed": 0, "skipped": 0, "failures": {}}
        for path in (one, two)
    ]
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps({"versions": {"commit": "abc"}, "files": [*files, gone]}))
    (kept,) = earlier_files(earlier, [two])
    assert kept == {"commit": "abc"} | files[0]
    write(tmp_path / "out.json", [kept, files[1] | {"commit": "def"}], 2)
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["passed"], record["unfinished"]) == (10, 0)
