"""The published figures: facts of the paper (AAAI 2021, https://arxiv.org/abs/2012.08734) and its supplement.

They lie beside this file as ``tables.json``. Accuracies are percentages over ten folds. Both of the paper's
rules choose on test data, so its figures are upper bounds: C takes the one epoch with the best mean test
accuracy of all folds, C* each fold's own best test epoch.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, NoReturn

from graphcaps.data.datasets.catalogue import find_entry
from graphcaps.errors import ArgumentError

__all__ = [
    "TABLES",
    "Hyperparameters",
    "PublishedResult",
    "Statistics",
    "hyperparameters",
    "paper_datasets",
    "published",
    "published_hgcn",
    "statistics",
    "systems",
    "tables",
]

TABLES: dict[int, str] = {
    1: "table1_biological_C",
    2: "table2_social_C",
    3: "table3_biological_ablation_sensitivity",
    4: "table4_social_ablation_sensitivity",
    5: "table5_biological_Cstar",
    6: "table6_social_Cstar",
}
"""Tables with accuracies, by their number in the paper."""


@dataclass(frozen=True)
class PublishedResult:
    """A published accuracy in percent: ``mean`` over folds, and ``std`` where it was reported."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


@dataclass(frozen=True)
class Statistics:
    """A row of the paper's table of data sets."""

    graphs: int
    classes: int
    avg_nodes: float
    avg_edges: float
    node_information: str


@dataclass(frozen=True)
class Hyperparameters:
    """What the supplement gives for a data set, with the values that all share."""

    capsule_dim: int
    num_capsules: int
    dropout: float
    batch_size: int
    weight_decay: float
    learning_rate: float
    epochs: int
    num_factors: int
    routing_iterations: int
    reconstruction_weight: float
    halve_every: int


@cache
def tables() -> dict[str, Any]:
    """All that ``tables.json`` holds, as plain values; do not change it."""
    read: dict[str, Any] = json.loads(
        resources.files("graphcaps").joinpath("reproduction", "tables.json").read_text("utf-8")
    )
    return read


def paper_datasets() -> tuple[str, ...]:
    """The paper's eleven data sets, in its order."""
    return tuple(tables()["dataset_statistics"])


def statistics(dataset: str) -> Statistics:
    """The paper's row on a data set."""
    return Statistics(**tables()["dataset_statistics"][_dataset("statistics", dataset)])


def hyperparameters(dataset: str) -> Hyperparameters:
    """The supplement's hyper-parameters of HGCN on a data set."""
    held = tables()["hgcn_hyperparameters"]
    own, shared = held["per_dataset"][_dataset("hyperparameters", dataset)], held["shared"]
    return Hyperparameters(
        capsule_dim=own["capsule_dim"],
        num_capsules=own["num_capsules"],
        dropout=own["dropout"],
        batch_size=own["batch_size"],
        weight_decay=own["weight_decay"],
        learning_rate=own["lr"],
        epochs=own["epochs"],
        num_factors=shared["num_factors_K"],
        routing_iterations=shared["routing_iterations_R"],
        reconstruction_weight=shared["beta"],
        halve_every=shared["lr_halved_every_epochs"],
    )


def systems(table: int) -> tuple[str, ...]:
    """Rows of a table with accuracies, 1 to 6; HGCN itself is "Ours"."""
    return tuple(_table("systems", table))


def published(table: int, system: str, dataset: str) -> PublishedResult | None:
    """A figure of tables 1 to 6; ``None`` where the paper reports none.

    Args:
        table (int): 1 and 2 by rule C, 3 and 4 ablations and sensitivity by rule C, 5 and 6 by rule C*.
        system (str): A row, such as "Ours", "GIN" or "K=2".
        dataset (str): One of the paper's data sets; case and punctuation may differ.

    Raises:
        ArgumentError: If the paper has no such table, row or data set.
    """
    rows = _table("published", table)
    if system not in rows:
        _refuse("published", "system", system, rows)
    return _figure(rows[system].get(_dataset("published", dataset)))


def published_hgcn(dataset: str, criterion: Literal["C", "C*"] = "C") -> PublishedResult:
    """HGCN's own figure on a data set, by rule C (tables 1 and 2) or C* (the authors' run log)."""
    if criterion not in ("C", "C*"):
        raise ArgumentError("published_hgcn", "criterion", "be 'C' or 'C*'", repr(criterion))
    name = _dataset("published_hgcn", dataset)
    held = tables()
    of_rule_c = held[TABLES[1]]["Ours"] | held[TABLES[2]]["Ours"]
    figure = _figure((of_rule_c if criterion == "C" else held["hgcn_run_log"]["Cstar_all"])[name])
    assert figure is not None
    return figure


def _figure(pair: list[float | None] | None) -> PublishedResult | None:
    if pair is None:
        return None
    mean, std = pair
    assert mean is not None
    return PublishedResult(mean, std)


def _table(owner: str, table: int) -> dict[str, Any]:
    if table not in TABLES:
        raise ArgumentError(owner, "table", "be from 1 to 6", table)
    rows: dict[str, Any] = tables()[TABLES[table]]
    return rows


def _dataset(owner: str, name: str) -> str:
    entry = find_entry(name)
    if entry is None or entry.name not in paper_datasets():
        _refuse(owner, "dataset", name, paper_datasets())
    return entry.name


def _refuse(owner: str, argument: str, got: str, known: Iterable[str]) -> NoReturn:
    names = list(known)
    near = difflib.get_close_matches(got, names, n=3, cutoff=0.4) or names
    raise ArgumentError(owner, argument, f"be one of {', '.join(near)}", repr(got))
