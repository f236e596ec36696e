"""Labels of one byte are looked up in a table, with the result of the search among the values."""

from __future__ import annotations

import numpy as np
import pytest

from graphcaps.data.features import label_columns as module
from graphcaps.data.features.label_columns import find_values


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("values", [(0, 1, 5), (-3, 0, 100), (127,), (-500, 3, 900)])
def test_the_table_gives_what_the_search_gives(dtype: type, values: tuple[int, ...]) -> None:
    labels = np.random.default_rng(0).integers(0, 256, 3000).astype(np.uint8).view(dtype)
    assert len(labels) > module._MANY
    index, is_value = find_values(values, labels)
    slow_index, slow = find_values(values, labels.astype(np.int64))
    assert np.array_equal(is_value, slow)
    assert np.array_equal(index, slow_index)
    assert is_value.tolist() == [int(label) in values for label in labels]
