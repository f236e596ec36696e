"""Only missing trainings are run, and results stand next to the published ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from graphcaps.errors import DataError
from graphcaps.evaluation import RecordKey, ResultsStore
from graphcaps.evaluation.partition import Partition
from graphcaps.reproduction.cells import choose_cells, trainings
from graphcaps.reproduction.measured import MeasuredLedgers, cell_results, describe_origin
from graphcaps.reproduction.plan import Progress, plan_runs, reproduce
from graphcaps.reproduction.table_formats import latex, lines, markdown
from tests.cli.test_evaluate import write_tu

pytestmark = pytest.mark.usefixtures("isolated_folders")
EPOCHS = 2
FEW = {"seeds": 1, "epochs": EPOCHS, "device": "cpu"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small set that is called MUTAG."""
    write_tu(tmp_path / "sets", "MUTAG", [1, 2] * 12)
    return tmp_path / "sets"


def _runs(store: ResultsStore, tables: str = "table3", seeds: int = 1, **chosen: list[str]) -> list[str]:
    return [run.title for run in plan_runs(_needed(tables, **chosen), store, seeds, EPOCHS)]


def _needed(table: str, **chosen: list[str]) -> list:  # type: ignore[type-arg]
    return trainings(choose_cells([table], datasets=["MUTAG"], **chosen))


def test_factors_are_replicas_of_one_run(tmp_path: Path) -> None:
    titles = _runs(ResultsStore(tmp_path), criteria=["C"])
    assert "MUTAG HGCN, K=2, K=8 paper" in titles
    assert {"MUTAG A1 paper", "MUTAG R=1 paper", "MUTAG R=5 paper"} < set(titles)
    assert len(titles) == 8


def test_finished_trainings_are_not_repeated(tmp_path: Path, root: Path) -> None:
    store = ResultsStore(tmp_path / "results")
    events: list[Progress] = []
    runs = plan_runs(_needed("table3", rows=["A3", "K=2"], criteria=["C"]), store, 1)
    assert reproduce(runs, store, root=root, on_progress=events.append, **FEW) == 0
    assert [event.run.title for event in events if event.finished] == ["MUTAG A3 paper", "MUTAG K=2 paper"]
    before = {path.name: path.read_bytes() for path in store.folder.glob("*.json")}
    assert len(before) == 2
    assert _runs(store, rows=["A3", "K=2"], criteria=["C"]) == []
    again = plan_runs(_needed("table3", rows=["A3", "K=2", "K=8"], criteria=["C"]), store, 1, EPOCHS)
    assert [run.title for run in again] == ["MUTAG K=8 paper"]
    reproduce(again, store, root=root, **FEW)
    assert before.items() < {path.name: path.read_bytes() for path in store.folder.glob("*.json")}.items()
    assert _runs(store, rows=["A3"], criteria=["C"], seeds=2) == ["MUTAG A3 paper"]


def test_no_run_is_started_after_the_time_limit(tmp_path: Path, root: Path) -> None:
    store = ResultsStore(tmp_path / "results")
    runs = plan_runs(_needed("table3", rows=["A2", "A3"], criteria=["C"]), store, 1)
    assert reproduce(runs, store, root=root, minutes=0, **FEW) == 2
    assert not store.records()


def test_an_interrupted_run_needs_resume(tmp_path: Path, root: Path) -> None:
    store = ResultsStore(tmp_path / "results")
    runs = plan_runs(_needed("table3", rows=["A3"], criteria=["C"]), store, 1)

    def stop(event: Progress) -> None:
        if event.epoch is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(runs, store, root=root, on_progress=stop, **FEW)
    with pytest.raises(DataError, match="--resume"):
        reproduce(runs, store, root=root, **FEW)
    reproduce(runs, store, root=root, resume=True, **FEW)
    (record,) = store.records()
    assert record.curves.num_epochs == 2


def test_records_with_other_epochs_are_refused(tmp_path: Path, root: Path) -> None:
    store = ResultsStore(tmp_path / "results")
    first = plan_runs(_needed("table3", rows=["A3"], criteria=["C"]), store, 1)
    reproduce(first, store, root=root, **FEW)
    needed = _needed("table3", rows=["A3"], criteria=["C"])
    with pytest.raises(DataError, match=r"records of 3 epochs .MUTAG., found those of 2 epochs"):
        plan_runs(needed, store, 2, 3)
    more = plan_runs(needed, store, 2, EPOCHS)
    with pytest.raises(DataError, match=r"training\.epochs 2 and 3.*Use another folder"):
        reproduce(more, store, root=root, **(FEW | {"seeds": 2, "epochs": 3}))


RESULTS = Path(__file__).resolve().parents[2] / "results" / "reproduction"


def _copy(folder: Path, chosen: Callable[[RecordKey], bool]) -> ResultsStore:
    """A store with some of the stored records."""
    store = ResultsStore(folder)
    for record in ResultsStore(RESULTS).records():
        if chosen(record.key):
            store.add(record)
    return store


def test_cell_results_equal_those_of_the_ledger(tmp_path: Path) -> None:
    store = _copy(tmp_path, lambda key: (key.dataset, key.variant) == ("MUTAG", "hgcn"))
    (ledger,) = store.ledgers()
    results = cell_results(choose_cells(["all"], datasets=["MUTAG"]), MeasuredLedgers(store))
    by_key = {(each.cell.row, each.cell.criterion): each for each in results}
    for rule in ("C", "C*", "held-out"):
        each = by_key["HGCN", rule]
        assert each.ours == ledger.estimates[rule]
        values = each.as_dict()
        assert set(values) == {
            *("table", "row", "dataset", "criterion", "paper", "ours", "std_folds", "std_seeds"),
            *("seeds", "epochs", "formulation", "finished", "hardware"),
        }
        assert values["ours"] == pytest.approx(ledger.estimates[rule].mean, abs=1e-4)
        assert (values["seeds"], values["epochs"], values["formulation"]) == (5, 1000, "released")
        json.dumps(values)
    assert by_key["HGCN", "C"].difference == pytest.approx(ledger.estimates["C"].mean - 93.16)
    assert by_key["HGCN", "held-out"].difference is None
    for row in ("A1", "GIN"):
        assert by_key[row, "C"].ours is None
        assert by_key[row, "C"].as_dict()["seeds"] == 0
    two = cell_results(
        choose_cells(["table1"], rows=["HGCN"], datasets=["MUTAG"]), MeasuredLedgers(store, seeds=2)
    )
    assert {each.as_dict()["seeds"] for each in two} == {2}


def test_the_origin_says_what_was_trained_and_what_was_stored(tmp_path: Path) -> None:
    store = _copy(tmp_path, lambda key: (key.dataset, key.variant, key.seed) == ("MUTAG", "hgcn", 0))
    results = cell_results(
        choose_cells(["table1"], rows=["HGCN"], datasets=["MUTAG"]), MeasuredLedgers(store)
    )
    paper, held_out = sorted(store.records(), key=lambda record: record.key.protocol, reverse=True)
    day = paper.finished[:10]
    stored = f"Shown from 2 stored records of {day}, 1,000 epochs, NVIDIA H200; nothing was trained."
    assert describe_origin(results, set()) == stored
    mixed = describe_origin(results, {paper.key})
    assert mixed == (
        f"Trained now: 1 record, 1,000 epochs, {paper.seconds:.0f} s of training, NVIDIA H200. "
        f"Shown from 1 stored record of {held_out.finished[:10]}, 1,000 epochs, NVIDIA H200."
    )
    assert "Shown" not in describe_origin(results, {paper.key, held_out.key})
    assert describe_origin([], set()) == ""


def test_records_of_grouped_folds_are_not_used(tmp_path: Path) -> None:
    record = ResultsStore(RESULTS).get(RecordKey("MUTAG", "hgcn", "paper", 0))
    assert record is not None
    groups = Partition("groups", 180, "0" * 64, "copies")
    ResultsStore(tmp_path).add(replace(record, partition=groups))
    (each,) = cell_results(
        choose_cells(["table1"], rows=["HGCN"], datasets=["MUTAG"], criteria=["C"]),
        MeasuredLedgers(ResultsStore(tmp_path)),
    )
    assert each.ours is None


def test_seeds_after_a_gap_are_not_used(tmp_path: Path) -> None:
    _copy(tmp_path, lambda key: key in {RecordKey("MUTAG", "hgcn", "paper", seed) for seed in (0, 2)})
    (each,) = cell_results(
        choose_cells(["table1"], rows=["HGCN"], datasets=["MUTAG"], criteria=["C"]),
        MeasuredLedgers(ResultsStore(tmp_path)),
    )
    assert each.ours is not None
    assert each.ours.seeds == (0,)
    assert each.standard_error is None


def test_markdown_and_latex_tables() -> None:
    results = cell_results(
        choose_cells(["table1", "table5"], rows=["GIN", "HGCN", "GMN"], datasets=["MUTAG", "PTC_MR", "DD"]),
        MeasuredLedgers(ResultsStore(RESULTS)),
    )
    page = markdown(results)
    assert "| GIN | C | reported (C) | 89.40 ± 5.60 | – | 64.60 ± 7.00 |" in page
    assert "| HGCN | C | paper | 93.16 ± 6.10 | 80.99 ± 2.58 | 66.54 ± 7.97 |" in page
    assert "| HGCN | C\\* | paper | 95.79" in page
    ours = next(line for line in lines(results, "table1")[1] if (line.row, line.what) == ("HGCN", "ours"))
    assert all(cell.count("±") == 2 for cell in ours.cells)
    short = lines(results, "table1", separate_deviations=True)[1]
    assert [line.what for line in short if (line.row, line.criterion) == ("HGCN", "C")] == [
        *("paper", "ours", "± folds", "± seeds", "difference")
    ]
    written = latex(results)
    assert "PTC\\_MR" in written
    assert "$C^*$" in written
    assert written.count("\\begin{tabular}") == written.count("\\end{tabular}") == 2
    assert "±" not in written
