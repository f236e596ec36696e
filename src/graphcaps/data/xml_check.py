"""A first look at XML that others wrote: no document type, no deep nesting, and which format it is.

Entities can only be declared in a document type, so that without one nothing can be expanded and nothing outside
be named. The parser itself looks, because bytes can be read in more than one encoding: a search for ``<!DOCTYPE``
finds nothing in UTF-16.
"""

from __future__ import annotations

from xml.parsers import expat

from graphcaps.errors import DataError

__all__ = ["xml_ending", "xml_format"]

_DEEPEST = 64
_ROOTS = {"graphml": ".graphml", "gexf": ".gexf"}


class _Found(Exception):
    """What ends the look, in words."""


def xml_ending(content: bytes, where: str) -> str:
    """``".graphml"`` or ``".gexf"``, by the outermost element; raises as :func:`xml_format`."""
    return xml_format(content, where)[0]


def xml_format(content: bytes, where: str) -> tuple[str, str]:
    """The ending that fits the outermost element, ``".graphml"`` or ``".gexf"``, and that element's namespace.

    Raises:
        DataError: If it is not well-formed, has a document type, is nested too deep, or is something else.
    """
    depth, root = 0, ""

    def start(name: str, _: object) -> None:
        nonlocal depth, root
        depth += 1
        root = root or name
        if depth > _DEEPEST:
            raise _Found("elements nested too deep")

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise _Found("a document type")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise DataError(where, "XML", f"'{expat.ErrorString(error.code)}'", line=error.lineno) from error
    except _Found as error:
        raise DataError(where, "plain GraphML or GEXF", f"{error}", line=parser.CurrentLineNumber) from error
    except (ValueError, LookupError) as error:  # an encoding that cannot be read
        raise DataError(where, "XML in UTF-8", "another encoding") from error
    space, _, name = root.rpartition(" ")
    if name.lower() not in _ROOTS:
        raise DataError(where, "GraphML or GEXF", f"an element '{name[:40]}'")
    return _ROOTS[name.lower()], space
