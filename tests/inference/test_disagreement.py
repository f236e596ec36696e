"""Disagreement of members: worked examples, the limit, and its place in predictions."""

import math

import numpy as np
import pytest

from graphcaps.errors import ArgumentError
from graphcaps.inference.disagreement import DisagreementProfile, join_reasons, mutual_information


def test_mutual_information_of_two_members() -> None:
    p = np.array([[[1.0, 0.0], [0.5, 0.5], [0.9, 0.1]], [[0.0, 1.0], [0.5, 0.5], [0.7, 0.3]]])
    inner = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1) + 0.7 * math.log(0.7) + 0.3 * math.log(0.3)) / 2
    outer = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))
    assert mutual_information(p) == pytest.approx([math.log(2), 0, outer - inner])
    assert mutual_information(p[:1]).tolist() == [0, 0, 0]
    assert np.isnan(mutual_information(p * np.nan)).all()


def test_the_limit_is_two_spreads_above_the_median() -> None:
    values = np.linspace(0, 0.4, 101)
    profile = DisagreementProfile.from_values(values)
    assert (profile.high, profile.limit, profile.graphs) == pytest.approx((0.38, 0.2 + 2 * 0.18, 101))
    assert DisagreementProfile.from_values(np.zeros(5)).limit == pytest.approx(
        0.1
    )  # members that agree on all
    reasons = profile.reasons(np.array([0.5, 0.6, np.nan]))
    assert reasons == ("", reasons[1], "")
    assert reasons[1] == (
        "the members of the committee disagree by 0.6 nats (95 % of the validation graphs: up to 0.38)"
    )
    assert DisagreementProfile.from_dict(profile.to_dict()) == profile


def test_reasons_are_joined() -> None:
    assert join_reasons(("", "a", "", "a"), ("", "", "b", "b")) == ("", "a", "b", "a; b")


@pytest.mark.parametrize(
    "entries",
    [
        {"high": 0.1, "limit": 0.2},
        {"high": -1.0, "limit": 0.2, "graphs": 3},
        {"high": 0.1, "limit": 1.0, "graphs": 0},
    ],
)
def test_invalid_profiles_are_refused(entries: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match="DisagreementProfile"):
        DisagreementProfile.from_dict(entries)
