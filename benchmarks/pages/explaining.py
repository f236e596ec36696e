"""Tables and numbers of ``docs/explaining.md``, from ``results/explaining.json``."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.pages.known_reasons import Row
from benchmarks.pages.known_reasons import read as read_reasons
from benchmarks.pages.markdown import DASH, replace_sections, table

Reasons = dict[tuple[str, str], list[Row]]

METRICS = ("auc_nodes", "nmi", "nmi_all", "ari", "fidelity_plus", "fidelity_minus", "sparsity")
HEAD = (
    *("method", "AUC of nodes", "NMI", "NMI all", "ARI", "fidelity+", "fidelity+, the {} graphs"),
    *("fidelity−", "sparsity"),
)


def read(root: Path) -> dict[str, Any]:
    """The stored results."""
    results: dict[str, Any] = json.loads((root / "results" / "explaining.json").read_text("utf-8"))
    return results


def page(root: Path) -> str:
    """The page with its tables replaced; ``root`` is the root of the repository."""
    sections = {f"explanations of {each['dataset']}": metrics_table(each) for each in read(root)["sets"]}
    return replace_sections((root / "docs" / "explaining.md").read_text("utf-8"), sections)


def metrics_table(results: dict[str, Any]) -> str:
    """Metrics of every method on one data set, those of the sample in a column of their own."""
    rows = []
    for method, metrics in results["methods"].items():
        cells = [method, *(_cell(metrics[name], ".3f") for name in METRICS)]
        sample = results["on_the_sample"]["fidelity_plus"].get(method)
        cells.insert(2 + METRICS.index("fidelity_plus"), _cell(sample, ".3f"))
        cells.append(_cell(metrics["seconds_per_graph"], ".1g"))
        if any(cell != DASH for cell in cells[1:]):
            rows.append(cells)
    head = [*(name.format(results["sample"]) for name in HEAD), "s per graph"]
    # A data set without known parts has no agreement with them.
    kept = [column for column in range(len(head)) if any(row[column] != DASH for row in rows)]
    return table([head[each] for each in kept], [[row[each] for each in kept] for row in rows])


def _cell(value: float | None, spec: str) -> str:
    return DASH if value is None else format(value, spec)


def statements(root: Path) -> list[str]:
    """Numbers that the sentences of the page contain."""
    results = read(root)
    planted = results["sets"][0]
    numbers = [
        f"{planted['meeting_auc']:.2f}",
        f"{results['nci1']['seconds']:.1f} s",
        *(f"{value:.3f}" for value in planted["gnnexplainer_otherwise"].values()),
        f"the class of {100 * planted['random_fifth_zeroed']:.0f} % of the graphs of the embedded set",
        *findings(planted),
        *deciding_nodes(planted, read_reasons(root)),
        results["hardware"],
    ]
    for each in results["sets"]:
        stability, capsules = each["stability"], each["methods"]["capsules"]
        numbers += [f"{stability[name]:.3f}" for name in ("nmi", "ari", "rank")]
        numbers += [f"{capsules['entropy']:.3f}", f"{capsules['dead_capsules']:.1f}"]
        numbers.append(f"accuracy {100 * each['classes_right']:.1f} %")
    return numbers


def deciding_nodes(planted: dict[str, Any], reasons: Reasons) -> list[str]:
    """Area under the ROC curve of scores, and of the occlusion of groups, for the nodes that determine the class.

    Args:
        planted (dict): Results on the embedded set.
        reasons (dict): Rows of each data set with known reasons and each model.
    """
    methods = ("capsules", "group-occlusion")
    areas = {
        name: [fmean(row["methods"][method]["auc_nodes"] for row in rows) for method in methods]
        for (name, model), rows in reasons.items()
        if model == "hgcn"
    }
    scores, groups = (planted["methods"][method]["auc_nodes"] for method in methods)
    shapes = areas["ba-multishapes"]
    higher = sum(other > own for own, other in areas.values())
    return [
        f"`planted-parts` (area under the ROC curve {scores:.2f}, chance 0.5) and `ba-multishapes` ({shapes[0]:.2f}). "
        f"Occlusion of groups does ({groups:.2f} and {shapes[1]:.2f})",
        f"it is above the scores on {higher} of {len(areas)} data sets",
    ]


def findings(planted: dict[str, Any]) -> list[str]:
    """Phrases about the embedded set: fidelity by share of nodes, and agreement compared with k-means."""
    methods, shares = planted["methods"], planted["shares"].values()
    capsules, kmeans = methods["capsules"], methods["kmeans-primary"]
    curves = {
        name: ", ".join(f"{share[name]['fidelity_plus']:.3f}" for share in shares)
        for name in ("capsules", "random")
    }
    masked = capsules["fidelity_plus"]
    times = methods["gnnexplainer"]["seconds_per_graph"] / capsules["seconds_per_graph"]
    random = methods["random"]["fidelity_plus"]
    return [
        f"takes about {round(times, -2):,.0f} times as long per graph",
        f"is {curves['capsules']} for capsules and {curves['random']} for random scores",
        f"changes {100 * masked:.0f} % of the predictions on the embedded set; "
        f"a random fifth changes {100 * random:.0f} %",
        f"({capsules['nmi']:.2f} and {kmeans['nmi']:.2f}), and over all nodes less "
        f"({capsules['nmi_all']:.2f} and {kmeans['nmi_all']:.2f})",
    ]
