"""A first look at XML that strangers send: no document type, no deep nesting, and which format it is.

Entities can only be declared in a document type, so that without one nothing can be expanded and nothing outside
be named. The parser itself looks, because bytes can be read in more than one encoding.
"""

from __future__ import annotations

from xml.parsers import expat

from graphcaps.errors import DataError

__all__ = ["xml_ending"]

_DEEPEST = 64
_ROOTS = {"graphml": ".graphml", "gexf": ".gexf"}


class _Found(Exception):
    """What ends the look, in words."""


def xml_ending(content: bytes, where: str) -> str:
    """``".graphml"`` or ``".gexf"``, by the outermost element.

    Raises:
        DataError: If it is not well-formed, has a document type, is nested too deep, or is something else.
    """
    depth, root = 0, ""

    def start(name: str, _: object) -> None:
        nonlocal depth, root
        depth += 1
        root = root or name.rpartition(":")[2].lower()
        if depth > _DEEPEST:
            raise _Found("elements nested too deep")

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise _Found("a document type")

    parser = expat.ParserCreate()
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
    if root not in _ROOTS:
        raise DataError(where, "GraphML or GEXF", f"an element '{root[:40]}'")
    return _ROOTS[root]
