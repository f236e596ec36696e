"""Cells of the paper's tables 1 to 6, the model variants in their rows, and the trainings they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, get_args

from graphcaps._io.close_names import close_names
from graphcaps.config import RunConfig
from graphcaps.data.datasets.catalogue import find_entry
from graphcaps.errors import ArgumentError
from graphcaps.evaluation.record import Protocol, RecordKey
from graphcaps.presets import load_preset
from graphcaps.reproduction.paper_systems import PaperSystem, find_system
from graphcaps.reproduction.published import (
    PublishedResult,
    paper_datasets,
    published,
    published_hgcn,
    statistics,
    systems,
)

__all__ = [
    "ABLATIONS",
    "CRITERIA",
    "EQUATIONS",
    "TABLES",
    "VARIANTS",
    "Cell",
    "Criterion",
    "Training",
    "Variant",
    "choose_cells",
    "find_variant",
    "trainings",
]


Criterion = Literal["C", "C*", "held-out"]
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)
TABLES = ("table1", "table2", "table3", "table4", "table5", "table6")
_PROTOCOL: dict[Criterion, Protocol] = {"C": "paper", "C*": "paper", "held-out": "held-out"}


@cache
def _paper_preset(dataset: str) -> RunConfig:
    """The paper's preset, read once: building all tables asks for it 700 times."""
    return load_preset("paper", dataset)


@dataclass(frozen=True)
class Variant:
    """A row of tables 1 to 6: the paper's preset with changed model arguments.

    Args:
        row (str): Name in our tables, ``"HGCN"``.
        name (str): Name in records, ``"hgcn"``.
        published (str, optional): Name in the published tables, ``"Ours"``; ``None`` if they do not have it.
        what (str): Description.
        changes (dict): Model arguments in place of the preset's.
    """

    row: str
    name: str
    published: str | None
    what: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def formulation(self) -> str:
        return str(self.changes.get("formulation", "released"))

    def config(self, dataset: str, *, epochs: int | None = None, precision: str | None = None) -> RunConfig:
        """The preset of a data set with this variant's changes."""
        preset = _paper_preset(dataset)
        changed = replace(preset, model_arguments=preset.model_arguments | self.changes)
        return changed.with_training(epochs=epochs, precision=precision)


@dataclass(frozen=True)
class Cell:
    """One accuracy of one table.

    Args:
        table (str): ``"table1"`` to ``"table6"``.
        row (str): A variant of this project, or a baseline of the paper.
        dataset (str): Name of the data set.
        criterion (str): Rule of epoch selection.
        paper (PublishedResult, optional): The published accuracy, if there is one.
        variant (Variant, optional): Variant to train; ``None`` for other systems.
        system (PaperSystem, optional): Another system, measured by ``graphcaps compare``; ``None`` for variants.
    """

    table: str
    row: str
    dataset: str
    criterion: Criterion
    paper: PublishedResult | None
    variant: Variant | None
    system: PaperSystem | None = None

    @property
    def protocol(self) -> Protocol:
        """Protocol of the training that this accuracy needs."""
        return _PROTOCOL[self.criterion]


@dataclass(frozen=True)
class Training:
    """All seeds of one variant on one data set under one protocol; several cells can share a training."""

    dataset: str
    variant: Variant
    protocol: Protocol

    @property
    def cost(self) -> float:
        """Estimate of the relative training time: nodes of all graphs times epochs."""
        counts = statistics(self.dataset)
        return counts.graphs * counts.avg_nodes * self.num_epochs()

    def num_epochs(self, epochs: int | None = None) -> int:
        """Number of epochs of its records: ``epochs``, or the published number without it."""
        return self.variant.config(self.dataset, epochs=epochs).training.epochs

    def keys(self, seeds: int) -> list[RecordKey]:
        """Keys of its records under seeds 0, 1, 2, …"""
        return [RecordKey(self.dataset, self.variant.name, self.protocol, seed) for seed in range(seeds)]


EQUATIONS = "HGCN (equations)"

VARIANTS: tuple[Variant, ...] = (
    Variant("A1", "A1", "A1", "no disentangling: features as capsules", {"disentangle": False}),
    Variant("A2", "A2", "A2", "no residual", {"residual": False}),
    Variant("A3", "A3", "A3", "no reconstruction", {"reconstruction": False}),
    Variant("HGCN", "hgcn", "Ours", "as released: K = 4 factors, R = 3 routing iterations"),
    *(Variant(f"K={K}", f"K={K}", f"K={K}", f"{K} factors", {"num_factors": K}) for K in (2, 8)),
    *(
        Variant(
            f"R={R}", f"R={R}", f"R={R}", f"{R} routing iteration{'s' * (R > 1)}", {"routing_iterations": R}
        )
        for R in (1, 2, 4, 5)
    ),
    Variant(
        EQUATIONS,
        "equations",
        None,
        "the text's equations, not the released program",
        {"formulation": "paper"},
    ),
)
"""In the order of the paper's tables 3 and 4."""

ABLATIONS = ("A1", "A2", "A3")


def choose_cells(
    tables: Sequence[str] = ("all",),
    *,
    rows: Iterable[str] | None = None,
    datasets: Iterable[str] | None = None,
    criteria: Iterable[str] | None = None,
) -> list[Cell]:
    """The cells of some tables, in the paper's order.

    Args:
        tables (list): Names of :data:`TABLES`, or ``"all"``.
        rows, datasets, criteria (optional): Only these, regardless of case and punctuation. (default: all)

    Raises:
        ArgumentError: If a name is unknown, or no cell is selected.
    """
    for table in tables:
        if table not in (*TABLES, "all"):
            raise ArgumentError("reproduce", "table", f"be one of {', '.join(TABLES)}, all", repr(table))
    cells = [cell for table in TABLES if table in tables or "all" in tables for cell in _cells(table)]
    all_rows = list(dict.fromkeys(cell.row for cell in cells))
    chosen_rows = None if rows is None else {_match("rows", row, all_rows) for row in rows}
    chosen_datasets = None if datasets is None else {_match_dataset(name) for name in datasets}
    chosen_criteria = None if criteria is None else {_match("criteria", each, CRITERIA) for each in criteria}
    chosen = [
        cell
        for cell in cells
        if (chosen_rows is None or cell.row in chosen_rows)
        and (chosen_datasets is None or cell.dataset in chosen_datasets)
        and (chosen_criteria is None or cell.criterion in chosen_criteria)
    ]
    if not chosen:
        expected = "name a row, a data set and a criterion that the table has"
        raise ArgumentError("reproduce", ", ".join(tables), expected, "none of its cells")
    return chosen


def find_variant(row: str) -> Variant | None:
    """The variant of a row, regardless of case; ``None`` if there is none."""
    return next((variant for variant in VARIANTS if variant.row.lower() == row.lower()), None)


def trainings(cells: Iterable[Cell]) -> list[Training]:
    """The distinct trainings that the cells need, longest first."""
    needed = {
        (cell.dataset, cell.variant.name, cell.protocol): Training(cell.dataset, cell.variant, cell.protocol)
        for cell in cells
        if cell.variant is not None
    }
    return sorted(needed.values(), key=lambda training: -training.cost)


def _cells(table: str) -> list[Cell]:
    """All cells of a table, row by row."""
    number = int(table[-1])
    biological, social = (tuple(_columns(n)) for n in (1, 2))
    columns = biological if number % 2 else social
    reported = [row for row in systems(number) if all(row != each.published for each in VARIANTS)]
    cells = []
    for row in reported:
        # A cell for every data set, and held-out beside the criterion of the table: what is not measured is left out
        # when the results are known. The published accuracy stands beside ours of the same kind of selection.
        criterion: Criterion = "C*" if number > 4 else "C"
        system = find_system(row)
        matching = "held-out" if system is not None and system.criterion == "held-out" else criterion
        for rule in (criterion, "held-out"):
            for name in columns:
                result = published(number, row, name) if rule == matching else None
                cells.append(Cell(table, row, name, rule, result, None, system))
    for variant, criterion in _trained_rows(number):
        for name in columns:
            result = _published(number, variant, name, criterion)
            cells.append(Cell(table, variant.row, name, criterion, result, variant))
    return cells


def _trained_rows(number: int) -> list[tuple[Variant, Criterion]]:
    """Rows of a table that this project trains, with their criterion."""
    hgcn, equations = find_variant("HGCN"), find_variant(EQUATIONS)
    assert hgcn is not None
    assert equations is not None
    if number > 4:
        return [(hgcn, "C*")]
    if number < 3:
        return [(variant, rule) for variant in (hgcn, equations) for rule in ("C", "held-out")]
    rows: list[tuple[Variant, Criterion]] = [(each, "C") for each in VARIANTS if each.published is not None]
    return rows + [(each, "held-out") for each in VARIANTS if each.row in (*ABLATIONS, "HGCN")]


def _columns(number: int) -> list[str]:
    """Data sets of a table."""
    return [name for name in paper_datasets() if published(number, "Ours", name) is not None]


def _published(number: int, variant: Variant, dataset: str, criterion: Criterion) -> PublishedResult | None:
    if criterion == "held-out" or variant.published is None:
        return None
    if variant.row == "HGCN":  # the run log has C* for all data sets, the tables for some
        return published_hgcn(dataset, criterion)
    return published(number, variant.published, dataset)


def _match(option: str, name: str, names: Sequence[str]) -> str:
    """The entry of ``names`` that equals ``name`` regardless of case."""
    for each in names:
        if each.lower() == name.lower():
            return each
    raise _unknown(option, name, names)


def _match_dataset(name: str) -> str:
    entry = find_entry(name)
    if entry is None or entry.name not in paper_datasets():
        raise _unknown("datasets", name, paper_datasets())
    return entry.name


def _unknown(option: str, name: str, names: Sequence[str]) -> ArgumentError:
    """The error on a name that is not among ``names``: it lists all of them, and the nearest one."""
    fix = "".join(f"Did you mean '{each}'?" for each in close_names(name, names, 1))
    return ArgumentError("reproduce", f"--{option}", f"be among {', '.join(names)}", repr(name), fix)
