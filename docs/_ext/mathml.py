"""Renders formulas as MathML at build time, so that pages need no script and no network.

All current browsers display MathML (since 2023). docutils converts TeX to MathML; amsmath commands that it does not
support are first replaced by supported ones.
"""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

__all__ = ["as_mathml", "setup"]

_LOG = logging.getLogger(__name__)
_OPENING, _CLOSING = r"\(|\[|\\\{|\\langle\b|\\lfloor\b", r"\)|\]|\\\}|\\rangle\b|\\rfloor\b"
_REPLACEMENTS = (
    (re.compile(rf"\\([bB]igg?)\s*(?={_OPENING})"), r"\\\1l"),
    (re.compile(rf"\\([bB]igg?)\s*(?={_CLOSING})"), r"\\\1r"),
    (re.compile(r"\\[bB]igg?\s*(?=[/|])"), ""),
    (re.compile(r"\\dots(?![a-z])"), r"\\dotsc"),
    (re.compile(r"\\textstyle\b"), ""),
)


def as_mathml(formula: str, *, block: bool) -> str:
    """Converts a TeX formula to MathML; ``block`` gives a displayed formula, which may have several rows.

    Raises:
        MathError: If the formula contains an unsupported command.
    """
    for pattern, replacement in _REPLACEMENTS:
        formula = pattern.sub(replacement, formula)
    try:
        return str(latex2mathml.tex2mathml(formula, as_block=block))
    except (AttributeError, IndexError, TypeError) as error:  # raised by docutils for invalid TeX
        raise MathError(f"invalid TeX ({error})") from error


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_render(node, block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{_render(node, block=True)}</div>')
    raise nodes.SkipNode


def _render(node: nodes.Element, *, block: bool) -> str:
    text = node.astext()
    try:
        return as_mathml(text, block=block)
    except MathError as error:  # with -W the build fails
        _LOG.warning("formula %r: %s", text, error, location=node)
        return f"<code>{html.escape(text)}</code>"
