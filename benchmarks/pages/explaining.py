"""Tables and numbers of ``docs/explaining.md``, from ``results/explaining.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import DASH, replace_sections, table

METRICS = ("nmi", "nmi_all", "ari", "fidelity_plus", "fidelity_minus", "sparsity")
HEAD = ("method", "NMI", "NMI all", "ARI", "fidelity+", "fidelity+, the {} graphs", "fidelity−", "sparsity")


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
        cells.insert(5, _cell(results["on_the_sample"]["fidelity_plus"].get(method), ".3f"))
        cells.append(_cell(metrics["seconds_per_graph"], ".1g"))
        if any(cell != DASH for cell in cells[1:]):
            rows.append(cells)
    head = [name.format(results["sample"]) for name in HEAD]
    return table([*head, "s per graph"], rows)


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
        results["hardware"],
    ]
    for each in results["sets"]:
        stability, capsules = each["stability"], each["methods"]["capsules"]
        numbers += [f"{stability[name]:.3f}" for name in ("nmi", "ari", "rank")]
        numbers += [f"{capsules['entropy']:.3f}", f"{capsules['dead_capsules']:.1f}"]
        numbers.append(f"accuracy {100 * each['classes_right']:.1f} %")
    return numbers


def findings(planted: dict[str, Any]) -> list[str]:
    """Phrases about the embedded set: fidelity by share of nodes, and agreement compared with k-means."""
    methods, shares = planted["methods"], planted["shares"].values()
    capsules, kmeans = methods["capsules"], methods["kmeans-primary"]
    curves = {
        name: ", ".join(f"{share[name]['fidelity_plus']:.3f}" for share in shares)
        for name in ("capsules", "random")
    }
    masked = capsules["fidelity_plus"]
    random = methods["random"]["fidelity_plus"]
    return [
        f"is {curves['capsules']} for capsules and {curves['random']} for random scores",
        f"changes {100 * masked:.0f} % of the predictions on the embedded set; "
        f"a random fifth changes {100 * random:.0f} %",
        f"({capsules['nmi']:.2f} and {kmeans['nmi']:.2f}), and over all nodes less "
        f"({capsules['nmi_all']:.2f} and {kmeans['nmi_all']:.2f})",
    ]
