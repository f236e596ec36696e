"""What ``graphcaps explain`` prints for people: a tree, a table of measures, a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcaps.cli.output import columns, print_pairs, terminal

if TYPE_CHECKING:
    from graphcaps.data.store import GraphStore
    from graphcaps.explanation import Explanation, StoreExplanation

__all__ = ["show_graph", "show_measures", "show_summary"]

_PARTS = {"nmi": "NMI", "nmi_all": "NMI all", "ari": "ARI", "entropy": "entropy", "dead_capsules": "dead"}
_SCORES = {"fidelity_plus": "fidelity+", "fidelity_minus": "fidelity−", "sparsity": "sparsity"}
_TIME = {"seconds_per_graph": "s per graph"}
_NODES = 12  # shown of a capsule


def show_graph(found: Explanation, called: str, store: GraphStore, unlike: str = "") -> None:
    """One decision as a tree: class, capsules, nodes.

    Args:
        found (Explanation): Of one graph.
        called (str): What it is called.
        store (GraphStore): The graph alone.
        unlike (str): How it is unlike the training graphs, or "".
    """
    from rich.text import Text
    from rich.tree import Tree

    console = terminal()
    names = found.class_names
    true = "" if found.true_class is None else f" (its class is {names[found.true_class]})"
    said = (
        f"taken for {names[found.predicted]}, {100 * float(found.probabilities[found.predicted]):.1f} %{true}"
    )
    size = f"{_counted(found.num_nodes, 'node')}, {_counted(found.edges.size(1), 'edge')}"
    rows = [("graph", f"{called} of {store.name}: {size}")]
    rows += [("", said), ("scores", f"for {names[found.target]}: above 0 speaks for it")]
    rows += [("unlike", f"the training graphs, so trust this less: {unlike}")] if unlike else []
    if found.nodes is not None:
        rows.append(("", f"the model reads the {found.num_nodes} nodes of highest degree"))
    rows.append(("tree", "a capsule stands under the class that it is routed to most, its weight beside it"))
    print_pairs(console, rows)
    console.print()
    elements = _elements(store)
    for row in found.tree["classes"]:
        head = f"{row['class']}  length {row['length']:.3f}, {100 * row['probability']:.1f} %"
        tree = Tree(Text(head, style="bold"), guide_style="dim")
        _branches(tree, row["parts"], elements)
        console.print(tree)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _elements(store: GraphStore) -> list[str]:
    """The element of each node of a graph that was read from SMILES; else nothing."""
    from graphcaps.explanation.molecule_labels import atom_names

    numbers = store.truth.get("element")
    return [] if numbers is None else atom_names([(number,) for number in numbers.tolist()])


def _branches(tree: Any, parts: list[dict[str, Any]], elements: list[str]) -> None:
    from rich.text import Text

    nodes = [part for part in parts if "node" in part]
    if nodes:
        # Those that speak loudest, for the class or against it.
        nodes.sort(key=lambda part: -abs(part["score"]))
        loudest = sorted(nodes[:_NODES], key=lambda part: -part["score"])
        shown = "  ".join(
            f"{elements[part['node']] if elements else ''}{part['node'] + 1} ({part['score']:+.3f})"
            for part in loudest
        )
        more = f"  … {len(nodes) - _NODES} more" if len(nodes) > _NODES else ""
        tree.add(Text(f"{'atoms' if elements else 'nodes'} {shown}{more}"))
    capsules = [part for part in parts if "capsule" in part]
    for part in (part for part in capsules if part["parts"]):
        head = f"capsule {part['capsule'] + 1} of level {part['level']}: length {part['length']:.3f}"
        _branches(tree.add(Text(f"{head}, weight {part['weight']:.2f}")), part["parts"], elements)
    empty = sorted(part["capsule"] + 1 for part in capsules if not part["parts"])
    if empty:
        named = f"capsule{'s' if len(empty) > 1 else ''} {', '.join(map(str, empty))}"
        tree.add(Text(f"{named} of level {capsules[0]['level']}: nothing is routed there most", style="dim"))


def show_measures(measures: dict[str, Any]) -> None:
    """Two tables, of found parts and of node scores; a dash where a measure does not apply."""
    console = terminal()
    for heading, wanted in (("parts found", _PARTS), ("nodes scored", _SCORES)):
        known = {
            name: row
            for name, row in measures["methods"].items()
            if any(row[key] is not None for key in wanted)
        }
        if not known:
            continue
        shown = wanted | _TIME
        table = columns(heading, *shown.values(), right=shown.values())
        for name, row in known.items():
            table.add_row(name, *(_cell(key, row[key]) for key in shown))
        console.print(table)
        console.print()
    share = f"{100 * measures['share']:.0f} % of a graph's nodes are the explanation"
    rows = [("graphs", f"{measures['graphs']:,}"), ("fidelity", share)]
    sampled = measures["sample"]
    if sampled and "gnnexplainer" in sampled["fidelity_plus"]:
        plus = ", ".join(f"{name} {value:.3f}" for name, value in sampled["fidelity_plus"].items())
        rows.append(
            (f"on {len(sampled['graphs'])}", f"graphs that gnnexplainer explained, fidelity+: {plus}")
        )
    if measures.get("stability"):
        found = measures["stability"]
        told = f"NMI {found['nmi']:.3f}, ARI {found['ari']:.3f}, rank correlation {found['rank']:.3f}"
        rows.append(("stability", f"{told} between {found['models']} models"))
    print_pairs(console, rows)


def _cell(name: str, value: float | int | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    return f"{value:.2g}" if name == "seconds_per_graph" else f"{value:.3f}"


def show_summary(found: StoreExplanation, store: GraphStore, seconds: float) -> None:
    """How the capsules are used, and how often the class is right."""
    from graphcaps.explanation.agreement import capsule_use

    use = capsule_use(found.assignments[0], found.node_ptr)
    J = found.assignments[0].size(1)
    rows = [("data", store.name), ("explained", f"{len(found):,} graphs in {seconds:.1f} s")]
    true = found.true_class
    if true is not None and bool((true >= 0).any()):  # classes that the model does not know are left out
        right = float((found.predicted == true)[true >= 0].double().mean())
        rows.append(("classes", f"{100 * right:.1f} % right"))
    rows.append(
        ("capsules", f"{J - use['dead_capsules']} of {J} in use, {use['used_per_graph']:.1f} in a graph")
    )
    rows.append(("entropy", f"{use['entropy']:.3f} (0: a node belongs to one capsule, 1: to all alike)"))
    console = terminal()
    print_pairs(console, rows)
    console.print("\nSee one: --graph 1. Measure: --measure. A page for a browser: --out report", style="dim")
