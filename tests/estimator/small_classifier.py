"""A classifier that is fitted in well under a second, for tests."""

from __future__ import annotations

from functools import cache
from typing import Any

from graphcaps import HGCNClassifier
from tests.small_models import labelled

SMALL: dict[str, Any] = {
    "capsule_dim": 8,
    "num_capsules": 4,
    "num_factors": 2,
    "epochs": 3,
    "device": "cpu",
    "random_state": 0,
}


def small(**changes: Any) -> HGCNClassifier:
    return HGCNClassifier(**SMALL | changes)


@cache
def fitted() -> HGCNClassifier:
    """A classifier fitted on thirty graphs; treat as read-only."""
    return small().fit(labelled())
