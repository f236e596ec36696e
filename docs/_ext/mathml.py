"""Formulas as MathML, made while the pages are built: no script and no network where they are read.

Browsers since 2023 draw MathML themselves. The conversion is docutils' own; a few commands of amsmath that it
does not know are written in ones that it does.
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
_REWRITTEN = (
    (re.compile(rf"\\([bB]igg?)\s*(?={_OPENING})"), r"\\\1l"),
    (re.compile(rf"\\([bB]igg?)\s*(?={_CLOSING})"), r"\\\1r"),
    (re.compile(r"\\[bB]igg?\s*(?=[/|])"), ""),
    (re.compile(r"\\dots(?![a-z])"), r"\\dotsc"),
    (re.compile(r"\\textstyle\b"), ""),
)


def as_mathml(formula: str, *, block: bool) -> str:
    """A formula in TeX as MathML; ``block`` sets it apart, rows under each other.

    Raises:
        MathError: At a command that is not known.
    """
    for pattern, replacement in _REWRITTEN:
        formula = pattern.sub(replacement, formula)
    try:
        return str(latex2mathml.tex2mathml(formula, as_block=block))
    except (AttributeError, IndexError, TypeError) as error:  # what docutils gives for broken TeX
        raise MathError(f"cannot be read ({error})") from error


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_written(node, block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{_written(node, block=True)}</div>')
    raise nodes.SkipNode


def _written(node: nodes.Element, *, block: bool) -> str:
    text = node.astext()
    try:
        return as_mathml(text, block=block)
    except MathError as error:  # with -W the build fails
        _LOG.warning("formula %r: %s", text, error, location=node)
        return f"<code>{html.escape(text)}</code>"
