"""Checks that a model satisfies its contract, for the tests of graphcaps and of packages with their own models."""

from graphcaps.testing.expectations import ContractError
from graphcaps.testing.model_checks import check_model, model_checks
from graphcaps.testing.padded_batch import with_padding

__all__ = ["ContractError", "check_model", "model_checks", "with_padding"]
