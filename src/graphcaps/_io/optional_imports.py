"""Imports of optional packages, with the install command in the message when one is missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from graphcaps.errors import MissingExtraError

__all__ = ["require"]


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Imports an optional module.

    Args:
        module (str): Name of the module.
        extra (str): Extra of graphcaps that installs it.
        purpose (str): What needs it, at the start of the message.

    Raises:
        MissingExtraError: If the module is not installed.

    Example:
        ``chem = require("rdkit.Chem", extra="chem", purpose="Reading SMILES")``
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(module.partition(".")[0], extra, purpose) from error
