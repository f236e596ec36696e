"""Integer codes of labels."""

from __future__ import annotations

from graphcaps.data.label_encoding import label_code, text_code


def test_integers_keep_their_value():
    names: dict[int, str] = {}
    assert [label_code(value, names) for value in (3, 3.0, " 3", "-3", True)] == [3, 3, 3, -3, 1]
    assert names == {}


def test_values_that_are_no_label_have_no_code():
    names: dict[int, str] = {}
    assert [label_code(value, names) for value in (None, 2.5, "", [1], 10**30, float("nan"))] == [None] * 6
    assert names == {}


def test_texts_are_hashed_above_the_integers():
    names: dict[int, str] = {}
    long = "9" * 30  # too large for int64, so a text
    codes = [label_code(value, names) for value in ("red", "1_000", long)]
    assert names == dict(zip(codes, ("red", "1_000", long), strict=True))
    assert min(codes) >= 1 << 32
    assert text_code("red") == codes[0] == 205_123_748_151_700  # model files depend on this value
