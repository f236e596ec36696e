"""Results published in the paper (AAAI 2021, https://arxiv.org/abs/2012.08734) and its supplement.

They are stored in ``tables.json`` beside this file. Accuracies are percentages over ten folds. Both rules of the paper
select the epoch on test data, so its accuracies are upper bounds: C takes the one epoch with the best mean test
accuracy of all folds, C* each fold's own best test epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, NoReturn

from graphcaps._io.close_names import close_names
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
    """Hyper-parameters of a data set from the supplement, including the values shared by all data sets."""

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
    """The content of ``tables.json``; cached, so do not modify it."""
    content: dict[str, Any] = json.loads(
        resources.files("graphcaps").joinpath("reproduction", "tables.json").read_text("utf-8")
    )
    return content


def paper_datasets() -> tuple[str, ...]:
    """The paper's eleven data sets, in its order."""
    return tuple(tables()["dataset_statistics"])


def statistics(dataset: str) -> Statistics:
    """The paper's statistics of a data set."""
    return Statistics(**tables()["dataset_statistics"][_dataset("statistics", dataset)])


def hyperparameters(dataset: str) -> Hyperparameters:
    """The supplement's hyper-parameters of HGCN on a data set."""
    values = tables()["hgcn_hyperparameters"]
    specific, shared = values["per_dataset"][_dataset("hyperparameters", dataset)], values["shared"]
    return Hyperparameters(
        capsule_dim=specific["capsule_dim"],
        num_capsules=specific["num_capsules"],
        dropout=specific["dropout"],
        batch_size=specific["batch_size"],
        weight_decay=specific["weight_decay"],
        learning_rate=specific["lr"],
        epochs=specific["epochs"],
        num_factors=shared["num_factors_K"],
        routing_iterations=shared["routing_iterations_R"],
        reconstruction_weight=shared["beta"],
        halve_every=shared["lr_halved_every_epochs"],
    )


def systems(table: int) -> tuple[str, ...]:
    """Rows of a table with accuracies, 1 to 6; HGCN itself is "Ours"."""
    return tuple(_table("systems", table))


def published(table: int, system: str, dataset: str) -> PublishedResult | None:
    """An accuracy of tables 1 to 6; ``None`` if the paper does not report it.

    Args:
        table (int): 1 and 2 by rule C, 3 and 4 ablations and sensitivity by rule C, 5 and 6 by rule C*.
        system (str): A row, such as "Ours", "GIN" or "K=2".
        dataset (str): One of the paper's data sets, regardless of case and punctuation.

    Raises:
        ArgumentError: If the paper has no such table, row or data set.
    """
    rows = _table("published", table)
    if system not in rows:
        _raise_unknown("published", "system", system, rows)
    return _result(rows[system].get(_dataset("published", dataset)))


def published_hgcn(dataset: str, criterion: Literal["C", "C*"] = "C") -> PublishedResult:
    """The published accuracy of HGCN on a data set, by rule C (tables 1 and 2) or C* (the authors' run log)."""
    if criterion not in ("C", "C*"):
        raise ArgumentError("published_hgcn", "criterion", "be 'C' or 'C*'", repr(criterion))
    name = _dataset("published_hgcn", dataset)
    content = tables()
    rule_c = content[TABLES[1]]["Ours"] | content[TABLES[2]]["Ours"]
    result = _result((rule_c if criterion == "C" else content["hgcn_run_log"]["Cstar_all"])[name])
    assert result is not None
    return result


def _result(pair: list[float | None] | None) -> PublishedResult | None:
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
        _raise_unknown(owner, "dataset", name, paper_datasets())
    return entry.name


def _raise_unknown(owner: str, argument: str, got: str, names: Iterable[str]) -> NoReturn:
    choices = list(names)
    near = close_names(got, choices) or choices
    raise ArgumentError(owner, argument, f"be one of {', '.join(near)}", repr(got))
