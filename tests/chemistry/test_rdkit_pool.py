"""Molecules that hang or crash RDKit cost their own row and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest
import torch

pytest.importorskip("rdkit", reason="needs the extra 'chem'")

from graphcaps.chemistry import rdkit_pool
from graphcaps.chemistry.rdkit_pool import RDKitPool, RDKitProgress, call_rdkit, listen_to_rdkit
from graphcaps.data.readers.molecules import molecule_smiles, read_smiles
from graphcaps.data.readers.text_tables import open_table
from graphcaps.data.splits.scaffolds import scaffold_groups
from graphcaps.errors import ArgumentError, DataError, UsageError
from graphcaps.explanation.molecule_drawings import molecule_from_smiles
from graphcaps.models.ecfp_forest import morgan_fingerprints

HANGS = "B12B3B4B1B5" + "B1B5" * 50 + "B2B3B45"  # boron cages: the time to sanitise them grows exponentially
RAISES = "[UH128]"  # RDKit raises RuntimeError
OPTIONS = {"featurizer": "standard", "fragments": "all"}
# A process with a task that ends it, in place of a molecule that does.
CRASHING = (
    "import os, sys; sys.path[:] = sys.argv[1:]; from graphcaps.chemistry import rdkit_process, rdkit_tasks; "
    "rdkit_tasks.TASKS = {'crash': lambda text: os.abort() if text == 'crash' else ([text], b'')}; "
    "rdkit_process.main()"
)


# The command line with pools that wait for each molecule for ever.
PATIENT = (
    "from graphcaps.chemistry.rdkit_pool import RDKitPool; from graphcaps.cli.main import main; "
    "RDKitPool.__init__.__defaults__ = (None, 1e6); main()"
)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[RDKitPool]:
    """The shared pool with a time limit of a second, a thousand times what the other molecules take."""
    pool = RDKitPool(seconds=1.0)
    monkeypatch.setattr(rdkit_pool, "_pools", {os.getpid(): pool})
    yield pool
    pool.close()


def test_a_molecule_that_never_ends_costs_its_row(impatient: RDKitPool) -> None:
    read = read_smiles(["CCO", HANGS, "c1ccccc1"], ["a", "b", "a"], bad="skip")
    assert read.store.smiles == ("CCO", "c1ccccc1")
    assert [(row.line, row.reason) for row in read.skipped] == [(2, "RDKit needs more than 1 s for it")]
    with pytest.raises(DataError, match=r"SMILES, line 2: .* RDKit needs more than 1 s for it \(2 of 3 rows"):
        read_smiles(["CCO", HANGS, "C(C"])


def test_every_use_of_rdkit_is_guarded(impatient: RDKitPool) -> None:
    from rdkit import Chem

    with pytest.raises(ArgumentError, match="at 1: RDKit needs more than 1 s"):
        scaffold_groups(["CC", HANGS])
    with pytest.raises(ArgumentError, match="at 0: RDKit needs more than 1 s"):
        morgan_fingerprints([HANGS])
    with pytest.raises(ArgumentError, match="must be a valid SMILES"):
        molecule_from_smiles(HANGS)
    unsanitised = Chem.MolFromSmiles(HANGS, sanitize=False)
    assert molecule_smiles([Chem.MolFromSmiles("OCC"), unsanitised])[0] == "CCO"


def test_an_error_of_rdkit_costs_its_row() -> None:
    read = read_smiles([RAISES, "\ud800", "CCO"], bad="skip")
    assert read.store.smiles == ("CCO",)
    assert all(row.reason.startswith("RDKit cannot read it (") for row in read.skipped)


def test_a_crash_costs_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdkit_pool, "_PROGRAM", CRASHING)
    pool = RDKitPool()
    items = [str(number) for number in range(1000)]
    items[3] = items[4] = items[997] = "crash"
    answers = pool.call("crash", items)
    pool.close()
    problems = {index: answer.problem for index, answer in enumerate(answers) if answer.problem}
    assert problems == dict.fromkeys((3, 4, 997), "RDKit ends with a crash or needs too much memory for it")
    assert [answer.texts for answer in answers if not answer.problem] == [
        [item] for item in items if item != "crash"
    ]


def test_an_idle_process_that_was_killed_costs_nothing() -> None:
    pool = RDKitPool(1)
    assert pool.call("graph", ["CC"], OPTIONS)[0].texts == ["CC"]
    pool._processes[0]._process.kill()
    assert [answer.texts for answer in pool.call("graph", ["CO", "CN"], OPTIONS)] == [["CO"], ["CN"]]
    pool.close()


def test_the_first_problem_in_order_is_reported() -> None:
    smiles = ["C" * (1 + number % 40) for number in range(2000)]
    smiles[1500] = smiles[700] = smiles[701] = "C(C"
    answers = call_rdkit("graph", smiles, OPTIONS, purpose="A test", until_problem=True)
    assert len(answers) == 701
    assert [bool(answer.problem) for answer in answers] == [False] * 700 + [True]


def test_a_listener_follows_the_molecules() -> None:
    steps: list[RDKitProgress] = []
    with listen_to_rdkit(steps.append):
        call_rdkit("graph", ["CC"] * 300, OPTIONS, purpose="A test")
    call_rdkit("graph", ["CC"], OPTIONS, purpose="Another one")
    assert {(step.purpose, step.total) for step in steps} == {("A test", 300)}
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert done[-1] == 300


def test_molecules_together_stay_below_the_bound_on_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCAPS_MAX_BYTES", "1e6")
    with pytest.raises(DataError, match="content that takes at most 1 MB of memory"):
        read_smiles(["C" * 1000] * 10)


def test_a_process_that_cannot_start_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdkit_pool, "_PROGRAM", "raise SystemExit")
    with pytest.raises(UsageError, match="does not start"):
        RDKitPool().call("graph", ["C"], OPTIONS)


def test_processes_start_without_torch_and_numpy() -> None:
    program = (
        "import sys; import graphcaps.chemistry.rdkit_process; import rdkit.Chem; "
        "print({'torch', 'numpy', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(("name", "fragments"), [("bace", "all"), ("bbbp", "all"), ("bbbp", "largest")])
def test_stores_equal_those_of_direct_calls(
    name: str, fragments: str, molecule_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_table(molecule_data / f"{name}.csv")
    smiles = table.column("smiles")[:500]
    guarded = read_smiles(smiles, fragments=fragments, bad="skip")
    monkeypatch.setattr(rdkit_pool, "_GUARDED", False)
    direct = read_smiles(smiles, fragments=fragments, bad="skip")
    assert guarded.store.smiles == direct.store.smiles
    assert guarded.skipped == direct.skipped
    assert guarded.fragmented == direct.fragmented
    for field in ("node_ptr", "neighbours", "edge_ptr", "node_labels", "edge_labels"):
        assert torch.equal(getattr(guarded.store, field), getattr(direct.store, field)), field
    assert torch.equal(guarded.store.truth["element"], direct.store.truth["element"])


def _read_in_fork(queue: multiprocessing.SimpleQueue[tuple[str, ...]]) -> None:
    queue.put(read_smiles(["OCC"]).store.smiles)


def test_a_forked_process_has_a_pool_of_its_own() -> None:
    read_smiles(["C"])
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_read_in_fork, args=(queue,))
    child.start()
    child.join(300)
    assert child.exitcode == 0
    assert queue.get() == ("CCO",)
    assert read_smiles(["OC"]).store.smiles == ("CO",)


def test_ctrl_c_ends_reading_at_once(tmp_path: Path) -> None:
    table = tmp_path / "cages.csv"
    table.write_text(f"smiles,y\nCC,0\n{HANGS},1\n")
    command = [sys.executable, "-c", PATIENT, "data", "info", str(table), "--label", "y"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while max(map(_cpu_ticks, _children(process.pid)), default=0) < 1.5 * os.sysconf("SC_CLK_TCK"):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "RDKit does not compute"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _cpu_ticks(pid: str) -> int:
    """CPU time of a process; importing RDKit takes less than half a second of it."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


@pytest.mark.parametrize(("processes", "requests"), [(1, 1), (2, 16)])
def test_a_single_process_gets_a_few_molecules_in_one_request(processes: int, requests: int) -> None:
    sent: list[list[str]] = []

    class Recorder:
        def send(self, request: Mapping[str, list[str]], *_: object) -> None:
            sent.append(request["items"])

    items = [f"C{'C' * index}" for index in range(16)]
    work = rdkit_pool._Work("graph", items, {}, 1.0, False, processes=processes)
    for _ in range(20):
        work.assign(cast(rdkit_pool._RDKitProcess, Recorder()))
    assert len(sent) == requests
    assert [item for listed in sent for item in listed] == items
