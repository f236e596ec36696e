"""How named values of tensors show themselves."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from torch import Tensor

__all__ = ["ShapeRepr"]


class ShapeRepr:
    """Shows tensors by their shape: ``Routing(capsules=[2, 5, 8], assignment=[7, 5])``."""

    def __repr__(self) -> str:
        shown = []
        for entry in fields(self):  # type: ignore[arg-type]
            if entry.repr:
                shown.append(f"{entry.name}={_short(getattr(self, entry.name))}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(list(value.shape))
    if isinstance(value, tuple):
        return f"({', '.join(_short(item) for item in value)})"
    return repr(value)
