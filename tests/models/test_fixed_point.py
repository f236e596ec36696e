"""Fixed-point rows: products without rounding, whatever the number of rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from graphcaps.models.fixed_point import exact_products, to_fixed_point


def test_products_are_exact_for_any_number_of_rows():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(37, 301))
    values *= 4.9 / np.linalg.norm(values, axis=1, keepdims=True)
    rows = to_fixed_point(values)
    assert np.abs(rows - values).max() <= 2.0**-25
    products = exact_products(rows, rows)
    for i, j in ((0, 0), (3, 30), (36, 1)):
        expected = sum(Fraction(a) * Fraction(b) for a, b in zip(rows[i], rows[j], strict=True))
        assert Fraction(products[i, j]) == expected
        assert exact_products(rows[i : i + 1], rows[j : j + 1])[0, 0] == products[i, j]
