"""Explanations as trees and tables, for ``graphcaps explain``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphcaps.cli.output import columns, print_pairs, terminal
from graphcaps.errors import count_noun

if TYPE_CHECKING:
    from graphcaps.data.store import GraphStore
    from graphcaps.explanation import Explanation, StoreExplanation

__all__ = ["element_names", "show_graph", "show_metrics", "show_summary"]

_PART_METRICS = {
    "nmi": "NMI",
    "nmi_all": "NMI all",
    "ari": "ARI",
    "purity": "purity",
    "group_recall": "groups",
    "group_overlap": "overlap",
}
_SHAPE_METRICS = {
    "capsules_per_graph": "per graph",
    "connected": "connected",
    "entropy": "entropy",
    "dead_capsules": "dead",
}
_SCORE_METRICS = {
    "auc_nodes": "AUC nodes",
    "auc_edges": "AUC edges",
    "fidelity_plus": "fidelity+",
    "fidelity_minus": "fidelity−",
}
_TIME = {"seconds_per_graph": "s per graph"}
_MAX_NODES = 12  # nodes shown of a capsule


def show_graph(
    explanation: Explanation,
    label: str,
    store: GraphStore,
    out_of_distribution: str = "",
    *,
    average_reference: bool = True,
) -> None:
    """Prints the explanation of one graph as a tree: classes, capsules, nodes.

    Args:
        explanation (Explanation): Explanation of the graph.
        label (str): How the graph is named.
        store (GraphStore): The graph alone.
        out_of_distribution (str): Why it lies outside the applicability domain, or "".
        average_reference (bool): Whether scores compare a node with the average node, else with one whose features are
            zero. (default: True)
    """
    from rich.text import Text
    from rich.tree import Tree

    console = terminal()
    names = explanation.class_names
    true = "" if explanation.true_class is None else f" (true class: {names[explanation.true_class]})"
    probability = 100 * float(explanation.probabilities[explanation.predicted])
    prediction = f"{names[explanation.predicted]}, {probability:.1f} %{true}"
    size = f"{count_noun(explanation.num_nodes, 'node')}, {count_noun(explanation.edges.size(1), 'edge')}"
    rows = [("graph", f"{label} of {store.name}: {size}")]
    if explanation.note:
        print_pairs(console, [*rows, ("predicted", prediction), ("explanation", explanation.note)])
        return
    one, noun = ("an", "atom") if store.truth.get("element") is not None else ("a", "node")
    reference = f"an average {noun}" if average_reference else f"{one} {noun} whose features are zero"
    scores = f"for {names[explanation.target]}, compared with {reference}; positive: evidence for it"
    rows += [("predicted", prediction), ("scores", scores)]
    rows += _committee_rows(explanation)
    rows += _companion_rows(explanation)
    rows += [("domain", f"out of distribution: {out_of_distribution}")] if out_of_distribution else []
    if explanation.nodes is not None:
        rows.append(("", f"the model uses the {explanation.num_nodes} nodes of highest degree"))
    rows.append(
        (
            "tree",
            "each capsule is under the class that it contributes most to; contributions add up to the length",
        )
    )
    whose = "it" if explanation.levels[0].groups is None else "its group"
    where = f"the one that gets more of {whose} than of an average {noun}"
    rows.append(("", f"{one} {noun} contributes to every capsule; it is listed under {where}"))
    if explanation.levels[0].is_nearly_uniform:
        rows.append(("", f"all {noun}s have nearly the same coefficients: read scores rather than capsules"))
    print_pairs(console, rows)
    console.print()
    elements = element_names(store)
    for row in explanation.tree["classes"]:
        head = f"{row['class']}  length {row['length']:.3f}, {100 * row['probability']:.1f} %"
        tree = Tree(Text(head, style="bold"), guide_style="dim")
        sizes = [level.lengths.numel() for level in explanation.levels[:-1]]
        _branches(tree, row, elements, sizes, _decimals(explanation.node_scores.abs().max().item()))
        console.print(tree)


def _committee_rows(explanation: Explanation) -> list[tuple[str, str]]:
    """How far the members of a committee agree; nothing for a single model."""
    if explanation.member_predicted is None:
        return []
    names, members = explanation.class_names, explanation.member_predicted.tolist()
    votes = f"{explanation.num_agreeing} of {len(members)} members predict {names[explanation.predicted]}"
    agreement = explanation.agreement
    if agreement is not None:
        votes += f"; the rank correlation of their node scores is {agreement:.2f}"
    rows = [
        ("committee", votes),
        ("", "scores are means over the members, capsules those of the first member"),
    ]
    if members[0] != explanation.predicted:
        rows.append(("", f"the first member predicts {names[members[0]]}"))
    return rows


def _companion_rows(explanation: Explanation) -> list[tuple[str, str]]:
    """How much of the answer the scores are about; nothing for a network alone."""
    if explanation.network_share is None:
        return []
    share, names = 100 * explanation.network_share, " and ".join(explanation.part_names[1:])
    return [
        ("companion", f"the network contributes {share:.0f} % of this probability, {names} the rest"),
        ("", "scores and capsules are of the network alone"),
    ]


def element_names(store: GraphStore) -> list[str]:
    """The element of each node of a graph read from SMILES, else an empty list."""
    from graphcaps.data.datasets.element_labels import atom_names

    numbers = store.truth.get("element")
    return [] if numbers is None else atom_names(numbers.tolist())


def _decimals(largest: float) -> int:
    """Decimals of scores: three, or as many as the largest one needs for two digits that are not zero."""
    return max(3, 1 - math.floor(math.log10(largest))) if largest > 0 else 3


def _signed(value: float, decimals: int) -> str:
    """A number with its sign, without one if it is rounded to zero."""
    rounded = round(value, decimals)
    return f"{rounded:+.{decimals}f}" if rounded else f"{0:.{decimals}f}"


def _branches(
    tree: Any, entry: dict[str, Any], elements: list[str], sizes: Sequence[int], decimals: int
) -> None:
    """Adds what is below a class or capsule: nodes, or capsules and the rest that adds up to its length.

    Args:
        tree: Where to add.
        entry (dict): A class or capsule of :attr:`Explanation.tree`.
        elements (list): Element of each node, or an empty list.
        sizes (sequence): Number of capsules of each level below the entry, lowest first.
        decimals (int): Decimals of scores.
    """
    from rich.text import Text

    nodes = [part for part in entry["parts"] if "node" in part]
    if nodes:
        # The nodes with the largest scores, positive or negative.
        nodes.sort(key=lambda part: -abs(part["score"]))
        largest = sorted(nodes[:_MAX_NODES], key=lambda part: -part["score"])
        shown = "  ".join(
            f"{elements[part['node']] if elements else ''}{part['node'] + 1} ({_signed(part['score'], decimals)})"
            for part in largest
        )
        more = f"  … {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
        tree.add(Text(f"{'atoms' if elements else 'nodes'} {shown}{more}"))
    if not sizes:  # a capsule of the lowest level
        return
    capsules = entry["parts"]
    for part in (part for part in capsules if part["parts"]):
        head = f"capsule {part['capsule'] + 1} of level {part['level']}: length {part['length']:.3f}"
        branch = tree.add(Text(f"{head}, contribution {_signed(part['contribution'], 3)}"))
        _branches(branch, part, elements, sizes[:-1], decimals)
    for line in _rest_lines(entry, sizes[-1]):
        tree.add(Text(line, style="dim"))


def _rest_lines(entry: dict[str, Any], capsules_below: int) -> list[str]:
    """Contributions to a class or capsule that have no nodes to show."""
    capsules, lines = entry["parts"], []
    empty = [part for part in capsules if not part["parts"]]
    if empty:
        numbers = ", ".join(str(number) for number in sorted(part["capsule"] + 1 for part in empty))
        what = "nodes" if empty[0]["level"] == 1 else "capsules below"
        total = sum(part["contribution"] for part in empty)
        why = f"all {'nodes' if empty[0]['level'] == 1 else 'capsules below'} contribute to them too"
        lines.append(
            f"{count_noun(len(empty), 'capsule')} without {what} ({numbers}): contribution {_signed(total, 3)}; {why}"
        )
    other = capsules_below - len(capsules)
    if other:
        where = "other classes" if "class" in entry else "other capsules"
        lines.append(
            f"{count_noun(other, 'capsule')} under {where}: contribution {_signed(entry['other_contributions'], 3)}"
        )
    lines.append(f"residual, the mean capsule: contribution {_signed(entry['residual_contribution'], 3)}")
    return lines


def show_metrics(metrics: dict[str, Any]) -> None:
    """Prints tables of metrics of parts, of their shape and of scores; a dash if a metric does not apply."""
    console = terminal()
    tables = (("parts", _PART_METRICS), ("capsules", _SHAPE_METRICS), ("scores", _SCORE_METRICS))
    for heading, names in tables:
        rows_of = {
            name: row
            for name, row in metrics["methods"].items()
            if any(row[key] is not None for key in names)
        }
        if not rows_of:
            continue
        shown = names if heading == "capsules" else names | _TIME
        table = columns(heading, *shown.values(), right=shown.values())
        for name, row in rows_of.items():
            table.add_row(name, *(_cell(key, row[key]) for key in shown))
        console.print(table)
        console.print()
    share = f"{100 * metrics['share']:.0f} % of the nodes of a graph form the explanation"
    rows = [("graphs", f"{metrics['graphs']:,}"), ("fidelity", share)]
    truth = metrics["truth"]
    if truth is not None:
        rows.append(("reason", f"known in {truth['graphs']:,} graphs; AUC and groups are over these"))
        rows.append(
            ("groups", "fraction of deciding groups that overlap by half or more with a connected part")
        )
    rows += _sample_rows(metrics["sample"])
    if metrics["members"] > 1:
        rows.append(("committee", f"metrics are of the first of its {metrics['members']} members"))
    stability = metrics.get("stability")
    if stability:
        texts = (
            [] if stability["nmi"] is None else [f"NMI {stability['nmi']:.3f}", f"ARI {stability['ari']:.3f}"]
        )
        ranks = {} if stability["rank"] is None else {"capsules": stability["rank"]}
        listed = ", ".join(
            f"{name} {value:.3f}" for name, value in (ranks | stability.get("ranks", {})).items()
        )
        texts += [f"rank correlation of node scores: {listed}"] if listed else []
        rows.append(("stability", f"{'; '.join(texts)}, between {stability['models']} models"))
    print_pairs(console, rows)


def _sample_rows(sampled: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Metrics on the sample of graphs that slow methods explained, if there is one among the methods."""
    from graphcaps.explanation.explanation_metrics import SAMPLED_METHODS

    if not sampled or set(SAMPLED_METHODS).isdisjoint(sampled["fidelity_plus"]):
        return []
    rows = [(f"on {len(sampled['graphs'])}", f"graphs, which {', '.join(SAMPLED_METHODS)} explain:")]
    for metric, title in (("fidelity_plus", "fidelity+"), ("auc_nodes", "AUC nodes")):
        values = {name: value for name, value in sampled[metric].items() if value is not None}
        if values:
            rows.append((title, ", ".join(f"{name} {value:.3f}" for name, value in values.items())))
    return rows


def _cell(name: str, value: float | int | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    return f"{value:.2g}" if name == "seconds_per_graph" else f"{value:.3f}"


def show_summary(
    explanations: StoreExplanation,
    store: GraphStore,
    seconds: float,
    used_in: Sequence[str | None] | None,
    copies: str,
) -> None:
    """Prints the accuracy, first of graphs that did not train the model, and how the capsules are used.

    Args:
        explanations, store: The explanations and their graphs.
        seconds (float): Time that they took.
        used_in (sequence, optional): Part of the training data that each graph was in, if known.
        copies (str): A sentence on graphs in several parts, or "".
    """
    from graphcaps.explanation.agreement import capsule_usage
    from graphcaps.explanation.explanation_data import NO_MEANS_NOTE
    from graphcaps.explanation.node_groups import find_groups

    usage = capsule_usage(explanations.assignments[0], explanations.capsule, explanations.node_ptr)
    use = explanations.capsule_use
    rows = [("data", store.name), ("explained", f"{len(explanations):,} graphs in {seconds:.1f} s")]
    accuracies = _accuracy_rows(explanations, used_in)
    rows += [*accuracies, ("", copies)] if accuracies and copies else accuracies
    groups = len(find_groups(explanations)) / max(1, int((explanations.node_ptr.diff() > 0).sum()))
    per_graph = f"a graph has {groups:.1f} groups in {usage['used_per_graph']:.1f} capsules on average"
    rows.append(("capsules in use", f"{use.in_use} of {use.capsules} over these graphs; {per_graph}"))
    rows.append(
        ("entropy", f"{usage['entropy']:.3f} (0: each node belongs to one capsule, 1: to all equally)")
    )
    similar = int(explanations.nearly_uniform.sum())
    if similar:
        where = f"in {count_noun(similar, 'graph')} of {len(explanations):,}"
        rows.append(
            ("", f"{where} all nodes have nearly the same coefficients: read scores rather than capsules")
        )
    if explanations.mean_coefficients is None:
        rows.append(("parts", NO_MEANS_NOTE))
    print_pairs(terminal(), rows)


def _accuracy_rows(
    explanations: StoreExplanation, used_in: Sequence[str | None] | None
) -> list[tuple[str, str]]:
    """Accuracy of each set of graphs, those first that did not train the model."""
    from graphcaps.explanation.report.report_text import describe_unlabelled, measure_sets, measured_accuracy

    sets = measure_sets(explanations, used_in)
    rows = []
    for each in sets:
        value, count, caution = measured_accuracy(each)
        rows.append((each["accuracy_title"].lower(), f"{value}: {count}".replace("\u00a0", " ")))
        rows += [("", caution)] if caution else []
    if sets and all(each["name"] in ("training", "left-out") for each in sets):
        rows.insert(0, ("accuracy", "no figure: none of the graphs is new to this model"))
    unlabelled = describe_unlabelled(explanations)
    return rows + ([("", unlabelled)] if unlabelled else [])
