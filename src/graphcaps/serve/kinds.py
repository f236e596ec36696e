"""Kinds of bodies and files that are read."""

from __future__ import annotations

__all__ = ["CONTENT_TYPES", "ENDINGS"]

CONTENT_TYPES = {
    "application/json": ".json",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/graphml+xml": ".xml",
    "application/gexf+xml": ".xml",
    "application/xml": ".xml",
    "text/xml": ".xml",
}
"""What a body may be, beside ``multipart/form-data``, with the ending that a file of the kind has."""

ENDINGS = {
    **{ending: ending for ending in (".json", ".csv", ".tsv", ".xml")},
    **{".graphml": ".xml", ".gexf": ".xml"},
}
"""Endings of files, and the kind that they are."""
