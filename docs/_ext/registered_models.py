"""Directives that read the registry: ``model-table`` and ``model-classes``.

A model that is registered in graphcaps therefore appears in the pages without an entry of its own.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from graphcaps.models import find_model, model_names
from graphcaps.registry import RegisteredModel

__all__ = ["setup"]


def _own_models() -> dict[str, type[RegisteredModel]]:
    """Models of graphcaps itself, by name; installed packages have their own documentation."""
    models = {name: find_model(name) for name in model_names()}
    return {name: model for name, model in models.items() if model.__module__.startswith("graphcaps.")}


class _FromRegistry(SphinxDirective):
    def parsed(self, lines: list[str]) -> list[nodes.Node]:
        container = nodes.container()
        self.state.nested_parse(StringList(lines, source="registry"), self.content_offset, container)
        return container.children


class ModelTable(_FromRegistry):
    """A table of all models: name, description, scores, options with their defaults, reference."""

    def run(self) -> list[nodes.Node]:
        lines = ["| name | model | scores | options and defaults |", "|---|---|---|---|"]
        for name, model in _own_models().items():
            options = ", ".join(
                f"`{option}={parameter.default!r}`" for option, parameter in model.options().items()
            )
            text = f"{model.summary()} *{model.reference}*"
            lines.append(f"| `{name}` | {text} | {model.scores} | {options or 'none'} |")
        return self.parsed(lines)


class ModelClasses(_FromRegistry):
    """The reference of all models that :mod:`graphcaps.nn` does not export."""

    def run(self) -> list[nodes.Node]:
        lines = ["```{eval-rst}"]
        for model in _own_models().values():
            if not model.__module__.startswith("graphcaps.nn."):
                lines += [f".. autoclass:: {model.__module__}.{model.__name__}", "   :members:", ""]
        return self.parsed([*lines, "```"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("model-table", ModelTable)
    app.add_directive("model-classes", ModelClasses)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
