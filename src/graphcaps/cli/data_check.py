"""``graphcaps data check``: what to know of a data set before training."""

from __future__ import annotations

from graphcaps.cli.data_options import Json, Root, Source
from graphcaps.cli.output import pairs, print_json, terminal

__all__ = ["check"]


def check(source: Source, root: Root = None, as_json: Json = False) -> None:
    """Read a data set and say what to know before training on it.

    Small and lopsided classes, graphs without edges, isolated nodes, what is
    odd in the edge list, attributes that are constant or large, graphs that
    look alike, and whether their classes agree.

    Ends with 0 whenever the set can be read, whatever was found, else with 2.
    """
    from graphcaps.data.datasets import open_dataset
    from graphcaps.data.doctor import examine

    loaded = open_dataset(source, root)
    store, findings = loaded.store, examine(loaded.store)
    warnings = sum(finding.severity == "warning" for finding in findings)
    if as_json:
        print_json(
            {
                "name": store.name,
                "source": None if loaded.source is None else str(loaded.source),
                "graphs": len(store),
                "warnings": warnings,
                "notes": len(findings) - warnings,
                "findings": [finding.as_dict() for finding in findings],
            }
        )
        return
    console = terminal()
    if findings:
        console.print(pairs((finding.severity, finding.sentence) for finding in findings))
    counted = f"{_number(warnings, 'warning')}, {_number(len(findings) - warnings, 'note')}"
    console.print(f"{store.name} can be read: {len(store):,} graphs; {counted}.", soft_wrap=True)


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
