"""Printing of what capsules stand for, and of counterfactuals of one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphcaps.cli.output import columns, print_pairs, print_table, terminal
from graphcaps.errors import count_noun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphcaps.explanation import CapsuleCard, CapsuleCards, Counterfactuals, TypicalGroup

__all__ = ["show_capsules", "show_counterfactuals"]

_MAX_CLASSES = 4
_MAX_GROUPS = 3
_MAX_TEXT = 46  # characters of a typical group
_MAX_NODES = 12  # nodes listed of a group


def show_capsules(cards: CapsuleCards) -> None:
    """Prints a table per level with a row for each capsule that has nodes."""
    console = terminal()
    levels = sorted({card.level for card in cards.cards})
    for level in levels:
        every = [card for card in cards.cards if card.level == level]
        used = sorted((card for card in every if card.nodes), key=lambda card: -card.graphs)
        head = "capsule" if len(levels) == 1 else f"level {level}"
        truth = any(card.truth_purity is not None for card in used)
        right = ["graphs", "nodes", "groups", "purity", *(["true kind"] if truth else [])]
        table = columns(head, *right, f"graphs of each {cards.classes} class", "typical groups", right=right)
        for card in used:
            purities = [card.purity, card.truth_purity] if truth else [card.purity]
            table.add_row(
                str(card.capsule + 1),
                _percent(card.graph_share),
                _percent(card.node_share),
                f"{card.groups:,}",
                *("–" if value is None else _percent(value) for value in purities),
                _class_cell(card),
                _group_cell(card),
            )
        print_table(console, table)
        empty = [str(card.capsule + 1) for card in every if not card.nodes]
        if empty:
            console.print(
                f"{count_noun(len(empty), 'capsule')} without nodes: {', '.join(empty)}", style="dim"
            )
        console.print()
    rows = [
        (
            "graphs",
            f"{cards.graphs:,} with nodes; a capsule is used by a graph if one of its nodes belongs to it",
        ),
        ("groups", "connected nodes of a capsule in a graph; equal ones are isomorphic, with equal labels"),
        ("purity", "share of the most frequent kind among the groups of a capsule"),
    ]
    large = sum(card.large_groups for card in cards.cards)
    if large:
        rows.append(("", f"{count_noun(large, 'group')} with too many nodes to be compared left out"))
    print_pairs(console, rows)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _class_cell(card: CapsuleCard) -> str:
    shares = [(name, share) for name, share in card.class_shares.items() if share is not None]
    largest = sorted(shares, key=lambda entry: -entry[1])[:_MAX_CLASSES]
    listed = shares if len(shares) <= _MAX_CLASSES else largest
    more = ["…"] if len(shares) > _MAX_CLASSES else []
    return "\n".join([*(f"{name}: {_percent(share)}" for name, share in listed), *more])


def _group_cell(card: CapsuleCard) -> str:
    return "\n".join(_group_line(group) for group in card.typical[:_MAX_GROUPS]) or "–"


def _group_line(group: TypicalGroup) -> str:
    text = group.name or group.description
    if group.name and group.smarts and len(group.name) + len(group.smarts) < _MAX_TEXT:
        text = f"{group.name} {group.smarts}"
    text = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
    return f"{text} × {group.count:,}"


def show_counterfactuals(found: Counterfactuals, elements: Sequence[str]) -> None:
    """Prints the counterfactuals of one graph.

    Args:
        found (Counterfactuals): The counterfactuals.
        elements (sequence): Element of each node of a molecule, else empty.
    """
    rows = [("counterfactuals", found.sentence)]
    for one in found:
        listed = [f"{elements[node] if elements else ''}{node + 1}" for node in one.nodes]
        nodes = " ".join(listed[:_MAX_NODES]) + (
            f" … {len(listed)} in all" if len(listed) > _MAX_NODES else ""
        )
        where = " and ".join(
            f"capsule {capsule + 1}" + (f" of level {level}" if level > 1 else "")
            for level, capsule in one.groups
        )
        where = where if one.whole else f"in {where}"
        what = "without" if one.kind == "removal" else f"with {one.replaced_by} in place of"
        noun = ("atom" if elements else "node") + ("" if len(listed) == 1 else "s")
        smiles = f"; {one.smiles}" if one.smiles else ""
        rows.append(
            ("", f"{one.class_name}, {100 * one.probability:.1f} %: {what} {noun} {nodes} ({where}){smiles}")
        )
    console = terminal()
    console.print()
    print_pairs(console, rows)
