"""The builder of pages, its Markdown helper, and pages with generated sections, on made-up results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.measure_molecules import COLUMNS, read_rows, write_rows
from benchmarks.pages import (
    build,
    data_sets,
    estimator,
    explaining,
    forest,
    models,
    molecules,
    parts,
    planted_parts,
    quality,
    security,
)
from benchmarks.pages.build import Page
from benchmarks.pages.markdown import (
    TEMPLATES,
    fill_template,
    fixed,
    join_names,
    mean_std,
    p_value,
    replace_sections,
    signed,
    table,
)

from graphcaps.evaluation import ResultsStore
from graphcaps.evaluation.statistics import corrected_t_test
from tests.comparison.test_comparison import made


def test_number_formats() -> None:
    assert mean_std(81.234, 0.456) == "81.23 ± 0.46"
    assert mean_std(81.234, None, 1) == "81.2"
    # Of one accuracy, stored with two decimals and as a mean of folds; halves are rounded away from zero.
    assert [fixed(value, 1) for value in (83.45, 83.45 - 1e-12, 83.44, 0.25, -0.25)] == [
        *("83.5", "83.5", "83.4", "0.3", "-0.3")
    ]
    assert (signed(-0.001), signed(1.5, 1)) == ("+0.00", "+1.5")
    assert (p_value(0.0004), p_value(0.04)) == ("< 0.001", "0.040")
    assert [join_names(names) for names in ([], ["a"], ["a", "b", "c"])] == ["none", "a", "a, b and c"]
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_a_template_needs_exactly_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.pages.markdown.TEMPLATES", tmp_path)
    (tmp_path / "small.md").write_text("{{ what }} is {{ value }}.", "utf-8")
    assert fill_template("small", {"what": "C", "value": "1"}) == "C is 1."
    with pytest.raises(KeyError, match="value"):
        fill_template("small", {"what": "C"})
    with pytest.raises(KeyError, match="template small: no place for other"):
        fill_template("small", {"what": "C", "value": "1", "other": "2"})


def test_sections_are_replaced_and_missing_ones_refused() -> None:
    text = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n<!-- generated: y -->\nkept\n<!-- end -->\n"
    new = replace_sections(text, {"x": "new"})
    assert new == text.replace("old", "new")
    assert replace_sections(new, {"x": "new"}) == new
    with pytest.raises(KeyError, match="no section 'z'"):
        replace_sections(text, {"z": ""})


def test_templates_belong_to_pages() -> None:
    assert {path.stem for path in TEMPLATES.glob("*.md")} == {
        "comparison",
        "defaults",
        "performance",
        "reproduction",
        "results",
    }


def test_build_writes_and_check_names_what_is_not_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.md").write_text("The value is 2.", "utf-8")
    pages = (
        Page("page.md", lambda root: "new\n"),
        Page("picture.svg", lambda root: "digest 1, drawn now", key=lambda svg: svg[:8]),
        Page("text.md", None, lambda root: ["value is 3"]),
    )
    monkeypatch.setattr(build, "PAGES", pages)
    (tmp_path / "page.md").write_text("old\n", "utf-8")
    (tmp_path / "picture.svg").write_text("digest 1, drawn before", "utf-8")
    with pytest.raises(SystemExit) as raised:
        build.main(["--check"], tmp_path)
    assert raised.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        "page.md is not current; run: make pages",
        "text.md does not contain, as the results say: value is 3",
    ]
    assert (tmp_path / "page.md").read_text("utf-8") == "old\n"
    build.main(["page", "pic"], tmp_path)
    assert (tmp_path / "page.md").read_text("utf-8") == "new\n"
    assert (tmp_path / "picture.svg").read_text("utf-8") == "digest 1, drawn before"
    build.main(["page", "--check"], tmp_path)
    assert capsys.readouterr().out.splitlines()[-1] == "1 pages are current."
    with pytest.raises(SystemExit):
        build.main(["nothing"], tmp_path)


def _root(root: Path, file: str, results: Any, page: str, *sections: str) -> Path:
    """A repository with one file of results and one page with empty sections."""
    (root / "results").mkdir()
    (root / "docs").mkdir()
    (root / "results" / file).write_text(json.dumps(results), "utf-8")
    text = "".join(f"<!-- generated: {name} -->\n<!-- end -->\n" for name in sections)
    (root / "docs" / page).write_text(text, "utf-8")
    return root


def test_table_of_explanations(tmp_path: Path) -> None:
    metrics = dict.fromkeys(explaining.METRICS) | {"seconds_per_graph": 0.00123}
    results = {
        "dataset": "X",
        "sample": 30,
        "methods": {
            "capsules": metrics | {"nmi": 0.5, "fidelity_plus": 0.25},
            "gradient": metrics | {"auc_nodes": 0.625},
            "nothing": metrics | {"seconds_per_graph": None},
        },
        "on_the_sample": {"fidelity_plus": {"capsules": 0.125}},
    }
    root = _root(tmp_path, "explaining.json", {"sets": [results]}, "explaining.md", "explanations of X")
    lines = explaining.page(root).splitlines()
    # Columns that no method has are left out, and so are methods without any value.
    head = "| method | AUC of nodes | NMI | fidelity+ | fidelity+, the 30 graphs | s per graph |"
    assert lines[1] == head
    assert lines[3:-1] == [
        "| capsules | – | 0.500 | 0.250 | 0.125 | 0.001 |",
        "| gradient | 0.625 | – | – | – | 0.001 |",
    ]


def test_scores_for_deciding_nodes_are_compared_with_the_occlusion_of_groups() -> None:
    def methods(scores: float, groups: float) -> dict[str, Any]:
        return {"methods": {"capsules": {"auc_nodes": scores}, "group-occlusion": {"auc_nodes": groups}}}

    reasons = {
        ("ba-multishapes", "hgcn"): [methods(0.5, 0.75), methods(0.6, 0.77)],
        ("benzene", "hgcn"): [methods(0.99, 0.9)],
        ("benzene", "gin"): [{"methods": {}}],
    }
    assert explaining.deciding_nodes(methods(0.52, 0.67), reasons) == [
        "`planted-parts` (area under the ROC curve 0.52, chance 0.5) and `ba-multishapes` (0.55). "
        "Occlusion of groups does (0.67 and 0.76)",
        "it is above the scores on 1 of 2 data sets",
    ]


def test_tables_of_data_quality(tmp_path: Path) -> None:
    row = {
        "name": "X",
        "graphs": 1234,
        "duplicates": {"graphs": 10, "groups": 4},
        "leakage": {"mean": 0.05, "min": 0.0, "max": 0.1},
        "conflicting_groups": 2,
        "ceiling": 0.99,
        "grouped_folds": {"smallest": 120, "largest": 130},
        "nodes": [2, 30, 4000],
        "largest_class": 0.5,
        "smallest_class": 600,
        "isolated_nodes": 7,
    }
    root = _root(tmp_path, "data-quality.json", {"rows": [row]}, "data-quality.md", "duplicates", "sizes")
    text = quality.page(root)
    assert "| X | 1,234 | 10 | 4 | 5.0% (0.0% to 10.0%) | 2 | 99.0% |" in text
    assert "| X | 50.0% | 600 graphs | 2 / 30 / 4,000 | 7 | 120 to 130 graphs |" in text


def test_tables_of_parts(tmp_path: Path) -> None:
    metrics = dict.fromkeys(parts.METRICS, 0.5) | {"accuracy": 100.0}
    mean = metrics | {
        "k-means on input features": dict.fromkeys(parts.METRICS, 0.25),
        "k-means on primary capsules": dict.fromkeys(parts.METRICS, 0.375),
    }
    rows = [
        {"level": "easy", "draw": 0, "model": model, "mean": mean, "seeds": [metrics | {"seed": 3}]}
        for model in ("HGCN", "parts='blocks'")
    ]
    sections = ("part structure", "part agreement", "part agreement of seeds")
    root = _root(tmp_path, "parts.json", {"rows": rows}, "parts.md", *sections)
    measured = {"accuracy": 75.0, "parts_per_graph": 4.25, "connected": 0.875}
    structures = [
        {"dataset": "MUTAG", "model": model, "mean": measured | {"seconds": seconds}, "seeds": [{}, {}]}
        for model, seconds in (("plain", 2.0), ("blocks", 3.0))
    ]
    path = root / "results" / "part-structure.json"
    path.write_text(json.dumps({"rows": structures}), "utf-8")
    text = parts.page(root)
    assert f"| MUTAG | blocks | 2 | 75.0 | – | – | 4.2 | – | 0.88 |{' – |' * 6} 1.5 |" in text
    assert f"| k-means on input features | – |{' 0.250 |' * 5}" in text
    assert f"| k-means on HGCN's primary capsules | – |{' 0.375 |' * 5}" in text
    assert f"| parts='blocks' | 100.0 |{' 0.500 |' * 5}" in text
    assert f"| HGCN | 3 | 100.0 |{' 0.500 |' * 5}" in text


def test_molecules_have_a_row_per_model_and_data_set(tmp_path: Path) -> None:
    path = tmp_path / "results" / "molecules" / "summary.csv"
    blank = dict.fromkeys(COLUMNS, "")
    values = (("hiv", "hgcn", 0, 0.8), ("bace", "forest", 10, 0.7), ("bace", "forest", 9, 0.9))
    rows = [
        blank | {"dataset": name, "model": model, "seed": str(seed), "hardware": "2 cores, 1 thread"}
        | dict.fromkeys(("roc_auc", "pr_auc", "accuracy"), str(value))
        for name, model, seed, value in values
    ]  # fmt: skip
    write_rows(path, rows)
    write_rows(path, [rows[2] | {"roc_auc": "0.8"}])  # replaces the row of the same seed
    assert [(row["seed"], row["roc_auc"]) for row in read_rows(path)] == [
        ("9", "0.8"),
        ("10", "0.7"),
        ("0", "0.8"),
    ]
    lines = molecules.scaffold_table(read_rows(path)).splitlines()
    assert lines[2] == "| BACE | forest | 2 | 0.750 ± 0.071 | 0.800 ± 0.141 | 0.800 ± 0.141 |"
    assert lines[3] == "| HIV | hgcn | 1 | 0.800 | 0.800 | 0.800 |"


def test_candidates_for_molecules_are_sorted_by_their_mean_loss() -> None:
    losses = (
        ("worse", 1, {"bace": 0.4, "bbbp": 0.1}),
        ("better", 1, {"bace": 0.1, "bbbp": 0.1, "PTC_MR": 0.3}),
        ("other", 2, {"bace": 0.1, "bbbp": 0.1}),
    )
    rows = [
        {"candidate": name, "seeds": str(seeds), "dataset": dataset, "validation_loss": str(loss)}
        for name, seeds, by_dataset in losses
        for dataset, loss in by_dataset.items()
    ]
    assert molecules.candidate_table(rows, seeds=1).splitlines() == [
        "| candidate | mean | BACE | BBBP | PTC_MR |",
        "|---|---|---|---|---|",
        "| better | 0.1000 | 0.1000 | 0.1000 | 0.3000 |",
        "| worse | 0.2000 | 0.4000 | 0.1000 |  |",
    ]


def test_forests_and_hgcn_are_compared_in_words() -> None:
    assert forest.summary({"A": 2.04, "B": -0.5, "C": -1.26}) == (
        "more accurate on B and C, by up to 1.3 points; HGCN is more accurate on the other 1, by up to 2.0 points"
    )
    assert forest.significance({"A": 0.04, "B": 0.05}) == "1 of the 2 tested differences are significant: A"


def test_the_forest_counts_with_the_mean_over_its_seeds(tmp_path: Path) -> None:
    """Its seeds 0 to 2 have 50, 55 and 60 % on MUTAG; a test takes the mean of each fold over them."""
    study, rival = ResultsStore(tmp_path / "results/reproduction"), ResultsStore(tmp_path / forest.COMPARISON)
    for seed, right in enumerate(([14, 15, 16, 15], [14, 16, 16, 14])):
        study.add(made("MUTAG", "hgcn", right, seed=seed))
    found = ([10, 10, 11, 9], [11, 11, 12, 10], [12, 12, 13, 11])
    for seed, right in enumerate(found):
        rival.add(made("MUTAG", "wl-forest", right, seed=seed))
    assert forest.forest_accuracies(tmp_path) == pytest.approx({"MUTAG": 55})
    assert forest.differences(tmp_path) == pytest.approx({"MUTAG": 75 - 55})
    assert forest.forest_seeds(tmp_path) == "three seeds on MUTAG, and one seed on the others"
    hgcn, mean = np.array([14, 15.5, 16, 14.5]) / 20, np.array([11, 11, 12, 10]) / 20
    expected = corrected_t_test(hgcn, mean, 20 / 160).p  # folds of made() test 20 graphs and train on 160
    assert forest.adjusted_p_values(tmp_path) == pytest.approx({"MUTAG": expected})


def test_the_p_value_of_active_molecules_is_that_of_splits() -> None:
    rows = [
        {"dataset": "hiv", "model": model, "pr_auc": str(area)}
        for model, areas in (("hgcn", (0.3, 0.2, 0.4)), ("ecfp-forest", (0.4, 0.25, 0.6)))
        for area in areas
    ]
    p = corrected_t_test(np.array([0.3, 0.2, 0.4]), np.array([0.4, 0.25, 0.6]), 1 / 8).p
    expected = f"lower on all three splits, which is not significant (p = {p:.2f}"
    assert molecules.active_molecules(rows) == expected


def test_molecules_of_both_models_are_compared() -> None:
    rows = [
        {"dataset": "bace", "model": model, "roc_auc": area, "pr_auc": "0.5"}
        for model, area in (("hgcn", "0.8"), ("hgcn", "0.9"), ("ecfp-forest", "0.7"), ("ecfp-forest", "0.7"))
    ]
    rows.append({"dataset": "hiv", "model": "hgcn", "roc_auc": "0.8", "pr_auc": "0.5"})  # no forest beside it
    assert forest.molecule_table(rows).splitlines()[2:] == ["| BACE | 2 | 0.850 | 0.700 | 0.500 | 0.500 |"]


def test_the_preset_best_has_a_row_per_data_set() -> None:
    pooled = {"log_loss": 0.5, "ece": 0.05}
    cell = {
        "folds": 10,
        **{"member_accuracy": [80.0, 82.0], "accuracy": [84.0, 84.0], "weights": [0.75, 0.25]},
        **{"part_accuracy": {"wl-forest": [70.0, 72.0]}, "mixture_accuracy": [86.0, 88.0]},
        **{
            "member_pooled": pooled,
            "pooled": pooled | {"ece": 0.03},
            "mixture_pooled": pooled | {"ece": 0.01},
        },
    }
    cells = {
        "MUTAG": [cell, cell | {"mixture_accuracy": [90.0, 90.0]}],
        "NCI1": [cell | {"part_accuracy": {"wl-forest": [89.0, 89.0]}}],
    }
    text = forest.reach_table(cells)
    assert "| MUTAG | 2 | 81.0 | 84.0 | 71.0 | 88.5 | +17.5 | 90.5 | 0.75 |" in text
    assert "| NCI1 | 1 | 81.0 | 84.0 | 89.0 | 87.0 | -2.0 | 86.1 | 0.75 |" in text
    low = {"DD": [cell | {"mixture_accuracy": [79.0, 80.0]}]}
    assert forest.published_summary(cells | low) == (
        "at or above the best published accuracy on 1 of 3 data sets, and below it on MUTAG (-2.0) and DD (-0.3)"
    )
    assert forest.best_summary(cells) == (
        "more accurate than the forest on 1 of 2 data sets, by up to 17.5 points, "
        "and less accurate on NCI1, by up to 2.0"
    )
    # Of MUTAG all four folds differ alike, of NCI1 the two differences have opposite signs.
    cells["NCI1"] = [cell | {"part_accuracy": {"wl-forest": [85.0, 89.0]}}]
    assert forest.significant_sets(cells, lambda row: row["part_accuracy"]["wl-forest"]) == ["MUTAG"]
    assert forest.significant_sets(cells, lambda row: row["mixture_accuracy"]) == []
    text = forest.calibration_table(cells)
    assert "| MUTAG | 0.500 | 0.500 | 0.500 | 0.050 | 0.030 | 0.010 |" in text
    assert forest.reach_table({}) == forest.NO_REACH


def test_classical_models_are_compared_on_the_divisions_that_both_have() -> None:
    cells = {
        "MUTAG": [
            {"division": 0, "accuracy": [80.0], "mixture_accuracy": [90.0]},
            {"division": 1, "accuracy": [90.0], "mixture_accuracy": [90.0]},
        ],
        "DD": [{"division": 0, "accuracy": [70.0], "mixture_accuracy": [71.0]}],
    }
    classical = {"MUTAG": {"wl": {0: 84.0}, "wl-oa": {0: 80.0, 1: 96.0}}, "DD": {"wl": {0: 70.5}}}
    text = forest.classical_table(cells, classical)
    assert "| MUTAG | 85.0 | 90.0 | 84.0 | 88.0 | – |" in text
    assert "| DD | 70.0 | 71.0 | 70.5 | – |" in text
    mixture, committee = forest.classical_summary(cells, classical)
    assert mixture.startswith("`wl` on 2 of 2, `wl-oa` on 1 of 1, `wl-forest` on 0 of 0")
    assert committee.startswith("`wl` on 0 of 2, `wl-oa` on 0 of 1, ")  # 80 beside 84 in division 0


def test_upper_bounds_are_counted_as_they_are_printed(tmp_path: Path) -> None:
    row = {"dataset": "MUTAG", "member_C": 90.0, "companion_accuracy": 85.0}
    row |= {"C": {"accuracy": [90.0, 91.0]}, "mixture_C": {"accuracy": [93.0, 93.36]}}
    other = row | {"dataset": "NCI1"}
    other["mixture_C"] = {"accuracy": [84.8, 84.8]}
    path = tmp_path / forest.PAPER_RULE
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([row, other]), "utf-8")
    found = forest.bounds(tmp_path)
    assert "| MUTAG | 90.0 | 90.5 | 93.2 | 85.0 | 93.2 |" in forest.bound_table(found)
    assert forest.bound_summary(found) == "at or above the paper's on 1 of 2 data sets (MUTAG)"


def data_set_row(name: str, **features: Any) -> dict[str, Any]:
    """A row of results/data-sets.json."""
    columns = {"attributes": 0, "label_columns": 0, "label_range": None, "labels_seen": 0, "base_columns": 1}
    limit = {"graphs": 1 if name == "DD" else 0, "nodes": 20, "edges": 30}
    return {
        "name": name,
        "graphs": 12,
        "nodes": 1200,
        "edges": 3400,
        "features": columns | {"columns": 106, "seconds": 0.0234, "mb": 1.6} | features,
        "limit": limit,
    }


def test_features_and_the_node_limit_are_listed_by_data_set() -> None:
    labels = {"label_columns": 5, "label_range": [1, 5], "labels_seen": 4, "attributes": 3}
    rows = [data_set_row("COLLAB"), data_set_row("DD", **labels)]
    assert data_sets.features_table(rows).splitlines()[2:] == [
        "| COLLAB | 1,200 | – | – | 1 | 106 | 0.023 | 2 |",
        "| DD | 1,200 | 3 | 5 (1…5, 4 of them seen) | 1 | 106 | 0.023 | 2 |",
    ]
    assert data_sets.limit_table(rows).splitlines()[2:] == ["| DD | 1 of 12 | 20 of 1,200 | 30 of 3,400 |"]


def test_the_two_values_of_dropout_stand_side_by_side() -> None:
    rows = [
        {
            "data": "30 classes", "graphs": 300, "dropout": dropout, "validation_accuracy_20": accuracy,
            "validation_accuracy": 0.9, "lowest_validation_loss": loss,
        }
        for dropout, accuracy, loss in ((0.5, 0.27, 0.0616), (0.1, 0.83, 0.0496))
    ]  # fmt: skip
    expected = "| 30 classes | 300 | 27 → 83 % | 90 → 90 % | 0.0616 → 0.0496 |"
    assert estimator.dropout_table(rows).splitlines()[2:] == [expected]


def test_damaged_files_and_kills_are_counted() -> None:
    inputs = [{"inputs": 1000, "seed": 0, "read": 245, "refused": 755, "failed": 0}]
    assert security.inputs_table(inputs).splitlines()[2:] == ["| 1,000 | 0 | 245 | 755 | 0 |"]
    kills = [{"run": "train", "kills": 10, "starting": 2, "writing": 3}]
    assert security.kills_table(kills).splitlines()[2:] == ["| `train` | 10 | 2 | 3 |"]


def test_precomputations_have_a_column_per_data_set() -> None:
    rows = [
        {
            "dataset": name,
            "cpu_seconds": {"gmn": seconds},
            "hardware": "2 cores",
            "versions": {"commit": "a" * 40},
        }
        for name, seconds in (("MUTAG", 0.26), ("DD", 18.6))
    ]
    text = models.precomputation_table(rows)
    assert "| `gmn` | 0.3 | 18.6 |" in text
    assert "Measured on 2 cores, commit aaaaaaaaaaaa." in text


def test_statistics_of_planted_parts_are_percentages() -> None:
    row = {
        "level": "easy",
        "accuracy": {"sizes": [0.1667, 0.111, 1 / 3, 1 / 3]},
        "kmeans": {"as they are": [0.5, 0.6, 0.7]},
    }
    assert planted_parts.statistics_table(row).splitlines()[2:] == ["| sizes | 16.7 | 11.1 | 33.3 | 33.3 |"]
    assert planted_parts.kmeans_table([row]).splitlines()[2:] == [
        "| easy | as they are | 0.500 | 0.600 | 0.700 |"
    ]
