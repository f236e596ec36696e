"""Optional packages, asked for where they are used and named with their install line when missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from graphcaps.errors import MissingExtraError

__all__ = ["require"]


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Imports an optional ``module`` or says which extra brings it.

    Example:
        ``chem = require("rdkit.Chem", extra="chem", purpose="Reading SMILES")``
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(module.partition(".")[0], extra, purpose) from error
