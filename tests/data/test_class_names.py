"""Names of class labels: one class per number, whatever its notation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphcaps.data.class_names import class_name, describe_quantities, is_missing_label


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ((1, 1.0, "1", "1.0", " 1.00 ", "+1", "1e0", np.int64(1), np.float32(1)), "1"),
        ((0, -0.0, "0", "-0.0", "0.000"), "0"),
        ((0.5, "0.50", ".5", "5e-1", np.float64(0.5)), "0.5"),
        ((-2, "-2.0"), "-2"),
        ((1000, "1e3"), "1000"),
        (("12345678901234567", 12345678901234567), "12345678901234567"),
        (("100000000000000000000", 10**20, 1e20, "1e20"), "100000000000000000000"),
        (("007",), "007"),
        (("0.50", "0.5"), "0.5"),
        (("00", "00 "), "00"),
        ((True, np.bool_(True), "True"), "True"),
        (("active", " active"), "active"),
    ],
)
def test_one_name_for_all_notations_of_a_value(values, name):
    assert {class_name(value) for value in values} == {name}


@pytest.mark.parametrize("text", ["1_000", "1.0.0", "0x1", "١", "inf", "1,5", "v1"])
def test_other_text_stays_as_it_is(text):
    assert class_name(text) == text


def test_long_numbers_stay_apart_and_short():
    for one, other in (
        ("12345678901234567890", "12345678901234567891"),
        (10**30, 10**30 + 1),
        (10**60, 10**60 + 1),
    ):
        assert class_name(one) != class_name(other)
    identifier = str(2**128 - 1)
    assert class_name(identifier) == identifier
    assert len(class_name("1e300")) < 10


def test_missing_labels():
    pandas = pytest.importorskip("pandas")
    missing = [
        "",
        "  ",
        "NA",
        "NaN",
        "nan",
        "None",
        "null",
        None,
        math.nan,
        np.float32("nan"),
        pandas.NA,
        pandas.NaT,
    ]
    assert all(is_missing_label(value) for value in missing)
    assert not any(is_missing_label(value) for value in ("none", "0", 0, False, "na", "no"))


def test_fractions_as_classes_are_a_quantity():
    assert "numbers such as '6.1': models predict classes, not quantities" in describe_quantities(
        ["5", "6.1", "6.2", "7.75", "8.3", "9.01"]
    )
    assert describe_quantities(["1E+30", "2E+300", "3", "4", "5"]) == ""  # without an error
    for classes in (["0.5", "1", "2"], [str(n) for n in range(20)], ["0.1", "0.2", "a", "b", "c", "d", "e"]):
        assert describe_quantities(classes) == ""
