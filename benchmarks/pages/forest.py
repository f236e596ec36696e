"""Tables of ``docs/forest.md``: HGCN beside forests, from the records of several studies of ``results``."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from benchmarks.measure_molecules import OUT as MOLECULES
from benchmarks.measure_molecules import read_rows as read_splits
from benchmarks.measure_paper_rule import RESULTS as PAPER_RULE
from benchmarks.measure_reach import (
    BASE,
    CLASSICAL_RESULTS,
    COMPARISON,
    Row,
    by_division,
    classical_accuracies,
)
from benchmarks.measure_reach import CLASSICAL as CLASSICAL_MODELS
from benchmarks.measure_reach import RESULTS as REACH
from benchmarks.measure_reach import read_rows as read_cells
from benchmarks.pages.comparison import CLASSICAL, comparison, read_accuracies
from benchmarks.pages.known_reasons import read as read_reasons
from benchmarks.pages.markdown import DASH, fixed, join_names, p_value, replace_sections, signed, table
from benchmarks.pages.molecules import NAMES, active_molecules
from benchmarks.published_accuracies import best_published
from graphcaps.bench import read_measurements
from graphcaps.evaluation import Ledger, ResultsStore
from graphcaps.evaluation.ledger import held_out_accuracies
from graphcaps.evaluation.statistics import corrected_t_test, fold_ratio, holm, split_ratio
from graphcaps.presets import load_preset
from graphcaps.reproduction.published import published_hgcn

FOREST = "wl-forest"
OTHER_FORESTS = ("features-trees", "ldp-forest")
NODES = {
    **dict.fromkeys(("MUTAG", "PTC_MR"), "labels"),
    **dict.fromkeys(("ENZYMES", "PROTEINS"), "labels, attributes"),
    **dict.fromkeys(("NCI1", "NCI109", "DD"), "labels"),
    **dict.fromkeys(("COLLAB", "IMDB-BINARY", "IMDB-MULTI", "REDDIT-BINARY"), "neither"),
}
"""What the nodes of a data set have, in the order of the paper's tables."""
SECONDS = "HGCN, ten folds, published epochs, paper: training and evaluation"
PLANTED = "planted-parts"
NO_REACH = (
    "No accuracy of a committee or of a mixture is stored in `results/`, so this page claims none. "
    "`python -m benchmarks.measure_reach` measures both on the data sets above."
)


def page(root: Path) -> str:
    """The page with its tables replaced; ``root`` is the root of the repository."""
    sections = {
        "accuracies": accuracy_table(root),
        "molecules": molecule_table(read_splits(root / MOLECULES)),
        "committees and companions": reach_table(best_cells(root)),
        "classical models": classical_table(best_cells(root), classical_divisions(root)),
        "calibration": calibration_table(best_cells(root)),
        "C": bound_table(bounds(root)),
    }
    return replace_sections((root / "docs" / "forest.md").read_text("utf-8"), sections)


def statements(root: Path) -> list[str]:
    """Phrases of the page whose numbers come from the results."""
    return [
        summary(differences(root)),
        best_summary(best_cells(root)),
        best_significance(best_cells(root)),
        published_summary(best_cells(root)),
        forest_seeds(root),
        *classical_summary(best_cells(root), classical_divisions(root)),
        bound_summary(bounds(root)),
        significance(adjusted_p_values(root)),
        adjusted_over_models(root),
        active_molecules(read_splits(root / MOLECULES)),
        seconds(root),
        reason_areas(root, "hgcn", "capsules"),
        reason_areas(root, "gin", "integrated-gradients"),
    ]


def differences(root: Path) -> dict[str, float]:
    """Held-out accuracy of HGCN minus that of the forest in points, both means over seeds, by data set."""
    forest = forest_accuracies(root)
    return {
        name: ledger.held_out.mean - forest[name]
        for name, ledger in _hgcn(root).items()
        if ledger.held_out is not None
    }


def forest_accuracies(root: Path) -> dict[str, float]:
    """Held-out accuracy of the forest in percent, mean over all stored seeds, by data set."""
    return {
        name: ledger.held_out.mean for name, ledger in _forest(root).items() if ledger.held_out is not None
    }


def forest_seeds(root: Path) -> str:
    """How many seeds of the forest are stored, and where."""
    by_count: dict[int, list[str]] = {}
    for name, ledger in _forest(root).items():
        by_count.setdefault(len({each.key.seed for each in ledger.of("held-out")}), []).append(name)
    words = {1: "one seed", 2: "two seeds", 3: "three seeds"}
    several = [
        f"{words[count]} on {join_names(by_count[count])}"
        for count in sorted(by_count, reverse=True)
        if count > 1
    ]
    return f"{', '.join(several)}, and one seed on the others"


def summary(found: Mapping[str, float]) -> str:
    """Where the forest is ahead, and how large the differences are."""
    behind = [name for name, difference in found.items() if difference < 0]
    most, least = max(found.values()), min(found.values())
    return (
        f"more accurate on {join_names(behind)}, by up to {fixed(-least, 1)} points; HGCN is more accurate on the "
        f"other {len(found) - len(behind)}, by up to {fixed(most, 1)} points"
    )


def adjusted_p_values(root: Path) -> dict[str, float]:
    """Corrected paired tests of HGCN and the forest, each a mean over its seeds, adjusted over the data sets."""
    hgcn, forests = _hgcn(root), _forest(root)
    p_values = {
        name: corrected_t_test(
            held_out_accuracies(hgcn[name]), held_out_accuracies(forests[name]), split_ratio(hgcn[name])
        ).p
        for name in hgcn
        if name in forests
    }
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def significance(p_values: Mapping[str, float]) -> str:
    """How many of the tested differences are significant, and where."""
    significant = [name for name, p in p_values.items() if p < 0.05]
    return f"{len(significant)} of the {len(p_values)} tested differences are significant: {join_names(significant)}"


def adjusted_over_models(root: Path) -> str:
    """On how many data sets HGCN and the forest differ significantly where p is adjusted over models."""
    found = comparison(root)
    assert found is not None
    tested = [tests[FOREST] for name in found.datasets if FOREST in (tests := found.tests(name))]
    return f"differ significantly on {sum(each.is_significant for each in tested)} of {len(tested)} data sets"


def accuracy_table(root: Path) -> str:
    """Accuracies of HGCN and of forests, the largest gain of HGCN first, with tests where single folds are stored."""
    gains, default, forest = differences(root), default_accuracies(root), forest_accuracies(root)
    classical = read_accuracies(root / CLASSICAL)
    adjusted = adjusted_p_values(root)
    rows = []
    for name in sorted(gains, key=lambda each: -gains[each]):
        others = {model: classical.get((name, model, "held-out")) for model in OTHER_FORESTS}
        best = max(
            ((value[0], model) for model, value in others.items() if value is not None),
            default=None,
        )
        rows.append(
            (
                name,
                NODES[name],
                fixed(default[name], 1),
                fixed(forest[name] + gains[name], 1),
                fixed(forest[name], 1),
                signed(gains[name], 1),
                p_value(adjusted[name]) if name in adjusted else DASH,
                DASH if best is None else f"{fixed(best[0], 1)} (`{best[1]}`)",
            )
        )
    head = ("data set", "nodes have", "HGCN, default", "HGCN, paper", f"`{FOREST}`", "difference", "p")
    return table((*head, "best of two other forests"), rows)


def default_accuracies(root: Path) -> dict[str, float]:
    """Held-out accuracy of HGCN with the preset ``default`` in percent, mean over seeds, by data set."""
    found: dict[str, list[float]] = {}
    for row in json.loads((root / "results" / "defaults.json").read_text("utf-8"))["rows"]:
        found.setdefault(row["dataset"], []).append(row["accuracy"])
    return {name: fmean(values) for name, values in found.items()}


def molecule_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Mean areas under curves of HGCN and of the forest on fingerprints over scaffold splits."""
    cells = []
    for name, title in NAMES.items():
        chosen = {
            model: [row for row in rows if (row["dataset"], row["model"]) == (name, model)]
            for model in ("hgcn", "ecfp-forest")
        }
        if all(chosen.values()):
            means = [
                f"{fmean(float(row[metric]) for row in each):.3f}"
                for metric in ("roc_auc", "pr_auc")
                for each in chosen.values()
            ]
            cells.append((title, f"{len(chosen['hgcn'])}", *means))
    head = ("data set", "splits", "ROC-AUC, HGCN", "`ecfp-forest`", "PR-AUC, HGCN", "`ecfp-forest`")
    return table(head, cells)


def best_cells(root: Path) -> dict[str, list[Row]]:
    """Measured divisions of the preset ``best``, by data set in the order of :data:`NODES`."""
    committee = load_preset("best").committee
    rows = [
        row
        for row in read_cells(root / REACH)
        if (row["candidate"], row["members"], row["companion"])
        == (BASE, committee.members, committee.companion)
    ]
    return {name: found for name in NODES if (found := [row for row in rows if row["dataset"] == name])}


def mean_accuracy(rows: Sequence[Row], part: str) -> float:
    """Mean accuracy over divisions and folds: of ``"member"``, ``"committee"``, ``"mixture"`` or a companion."""
    key = {"member": "member_accuracy", "committee": "accuracy", "mixture": "mixture_accuracy"}.get(part)
    return fmean(fmean(row["part_accuracy"][part] if key is None else row[key]) for row in rows)


def best_summary(cells: Mapping[str, Sequence[Row]]) -> str:
    """On how many data sets ``best`` is ahead of its forest, which has the same folds."""
    gains = {
        name: mean_accuracy(rows, "mixture") - mean_accuracy(rows, FOREST) for name, rows in cells.items()
    }
    behind = [name for name, gain in gains.items() if gain < 0]
    text = f"more accurate than the forest on {len(gains) - len(behind)} of {len(gains)} data sets"
    text += f", by up to {fixed(max(gains.values()), 1)} points"
    if behind:
        text += f", and less accurate on {join_names(behind)}, by up to {fixed(-min(gains.values()), 1)}"
    return text


def forest_significance(cells: Mapping[str, Sequence[Row]]) -> str:
    """Where ``best`` differs significantly from its forest, over the folds of all divisions."""
    against_forest = significant_sets(cells, lambda row: row["part_accuracy"][FOREST])
    return f"differs significantly from the forest on {join_names(against_forest)}"


def published_summary(cells: Mapping[str, Sequence[Row]]) -> str:
    """On how many data sets ``best`` is at or above the best published accuracy, as printed, and where it is below."""
    gaps = {
        name: float(fixed(mean_accuracy(rows, "mixture"), 1)) - published.value
        for name, rows in cells.items()
        if (published := best_published(name)) is not None
    }
    below = [f"{name} ({signed(gap, 1)})" for name, gap in gaps.items() if gap < -0.05]
    return (
        f"at or above the best published accuracy on {len(gaps) - len(below)} of {len(gaps)} data sets, and below it "
        f"on {join_names(below)}"
    )


def best_significance(cells: Mapping[str, Sequence[Row]]) -> str:
    """The same, and where it differs significantly from its committee."""
    against_committee = significant_sets(cells, lambda row: row["accuracy"])
    return f"{forest_significance(cells)}, and from its committee on {join_names(against_committee)}"


def significant_sets(cells: Mapping[str, Sequence[Row]], other: Callable[[Row], list[float]]) -> list[str]:
    """Data sets on which ``best`` and another part of it differ significantly, after Holm's adjustment.

    Args:
        cells (dict): Measured divisions of each data set.
        other (callable): Accuracies of the other part on the folds of a division.
    """
    p_values = [
        corrected_t_test(
            np.concatenate([row["mixture_accuracy"] for row in rows]) / 100,
            np.concatenate([other(row) for row in rows]) / 100,
            fold_ratio(rows[0]["folds"]),
        ).p
        for rows in cells.values()
    ]
    return [name for name, p in zip(cells, holm(p_values), strict=True) if p < 0.05]


def reach_table(cells: Mapping[str, Sequence[Row]]) -> str:
    """One model, committee, forest and mixture of each data set, mean over divisions into folds."""
    if not cells:
        return NO_REACH
    parts = ("member", "committee", FOREST, "mixture")
    rows = []
    for name, found in cells.items():
        accuracies = [mean_accuracy(found, part) for part in parts]
        published = best_published(name)
        rows.append(
            (
                name,
                f"{len(found)}",
                *(fixed(each, 1) for each in accuracies),
                signed(accuracies[3] - accuracies[2], 1),
                DASH if published is None else fixed(published.value, 1),
                f"{fmean(row['weights'][0] for row in found):.2f}",
            )
        )
    head = ("data set", "divisions", "one model", "committee", f"`{FOREST}`", "`best`", "`best` − forest")
    return table((*head, "best published", "weight of the committee"), rows)


def classical_divisions(root: Path) -> dict[str, dict[str, dict[int, float]]]:
    """Accuracy of each classical model on each division of ``best`` that it was fitted on, by data set."""
    first, others = classical_accuracies(root / COMPARISON), read_cells(root / CLASSICAL_RESULTS)
    return {
        name: by_division(cells, first.get(name, {}), [row for row in others if row["dataset"] == name])
        for name, cells in best_cells(root).items()
    }


def classical_table(
    cells: Mapping[str, Sequence[Row]], classical: Mapping[str, Mapping[str, Mapping[int, float]]]
) -> str:
    """Committee and mixture beside classical models, each a mean over the divisions that it has."""
    rows = []
    for name, found in cells.items():
        models = [classical[name].get(model) for model in CLASSICAL_MODELS]
        rows.append(
            (
                name,
                *(fixed(mean_accuracy(found, part), 1) for part in ("committee", "mixture")),
                *(DASH if each is None else fixed(fmean(each.values()), 1) for each in models),
            )
        )
    return table(("data set", "committee", "`best`", *(f"`{model}`" for model in CLASSICAL_MODELS)), rows)


def classical_summary(
    cells: Mapping[str, Sequence[Row]], classical: Mapping[str, Mapping[str, Mapping[int, float]]]
) -> list[str]:
    """On how many data sets committee and mixture are at or above each classical model, on the same divisions."""
    texts = []
    for part in ("mixture", "committee"):
        counts = []
        for model in CLASSICAL_MODELS:
            wins, sets = 0, 0
            for name, found in cells.items():
                if accuracies := classical[name].get(model):
                    same = [row for row in found if row["division"] in accuracies]
                    wins += mean_accuracy(same, part) >= fmean(accuracies.values())
                    sets += 1
            counts.append(f"`{model}` on {wins} of {sets}")
        texts.append(join_names(counts))
    return texts


def calibration_table(cells: Mapping[str, Sequence[Row]]) -> str:
    """Log loss and ECE over all test graphs of one model, committee and mixture."""
    kinds = ("member_pooled", "pooled", "mixture_pooled")
    rows = []
    for name, found in cells.items():
        values = [f"{fmean(row[kind]['log_loss'] for row in found):.3f}" for kind in kinds]
        values += [f"{fmean(row[kind]['ece'] for row in found):.3f}" for kind in kinds]
        rows.append((name, *values))
    titles = [
        f"{metric}: {kind}" for metric in ("log loss", "ECE") for kind in ("one model", "committee", "`best`")
    ]
    return table(("data set", *titles), rows)


class Bounds(NamedTuple):
    """C in percent, the paper's upper bound, of trainings on nine folds, and the accuracy of the forest there."""

    member: float
    committee: float
    best: float
    forest: float
    paper: float


def bounds(root: Path) -> dict[str, Bounds]:
    """Measured C of the preset ``best`` beside that of the paper, by data set in the order of :data:`NODES`."""
    rows = {row["dataset"]: row for row in read_cells(root / PAPER_RULE)}
    return {
        name: Bounds(
            row["member_C"],
            fmean(row["C"]["accuracy"]),
            fmean(row["mixture_C"]["accuracy"]),
            row["companion_accuracy"],
            published_hgcn(name).mean,
        )
        for name in NODES
        if (row := rows.get(name)) is not None
    }


def bound_table(found: Mapping[str, Bounds]) -> str:
    """C of one model, committee and mixture beside the forest, which has no epochs, and the paper."""
    rows = [(name, *(fixed(value, 1) for value in each)) for name, each in found.items()]
    return table(("data set", "C: one model", "C: committee", "C: `best`", f"`{FOREST}`", "C: paper"), rows)


def bound_summary(found: Mapping[str, Bounds]) -> str:
    """On how many data sets C of ``best`` is at least that of the paper, as both are printed."""
    ahead = [
        name for name, each in found.items() if float(fixed(each.best, 1)) >= float(fixed(each.paper, 1))
    ]
    return f"at or above the paper's on {len(ahead)} of {len(found)} data sets ({join_names(ahead)})"


def seconds(root: Path) -> str:
    """Seconds of ten folds of the forest and of HGCN, the shortest and the longest."""
    with (root / CLASSICAL).open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == FOREST]
    forest = [float(row["seconds"]) for row in rows if (row["protocol"], row["seed"]) == ("held-out", "0")]
    measured = read_measurements(root / "results" / "performance.json")
    hgcn = [row["value"] for row in measured if row["what"] == SECONDS]
    return (
        f"the forest {min(forest):.0f} to {max(forest):.0f} s on four CPU threads, and HGCN {min(hgcn):.0f} to "
        f"{max(hgcn):.0f} s on one H200"
    )


def reason_areas(root: Path, model: str, method: str) -> str:
    """Area under the ROC curve of a model's node scores for deciding nodes, over data sets with known reasons."""
    areas = {
        name: fmean(row["methods"][method]["auc_nodes"] for row in rows)
        for (name, each), rows in read_reasons(root).items()
        if each == model
    }
    known = [value for name, value in areas.items() if name != PLANTED]
    return f"{min(known):.2f} to {max(known):.2f} on {len(known)} data sets and {areas[PLANTED]:.2f} on `{PLANTED}`"


def _forest(root: Path) -> dict[str, Ledger]:
    """The forest with all stored seeds, in the order of :data:`NODES`."""
    ledgers = {
        each.dataset: each for each in ResultsStore(root / COMPARISON).ledgers() if each.variant == FOREST
    }
    return {name: ledgers[name] for name in NODES if name in ledgers}


def _hgcn(root: Path) -> dict[str, Ledger]:
    """The paper's presets with five seeds, in the order of :data:`NODES`."""
    store = ResultsStore(root / "results" / "reproduction")
    ledgers = {each.dataset: each for each in store.ledgers() if each.variant == "hgcn"}
    return {name: ledgers[name] for name in NODES if name in ledgers}
