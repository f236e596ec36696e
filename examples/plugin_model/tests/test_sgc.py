"""SGC satisfies the contract of graphcaps; run it after ``pip install .``."""

import pytest

from graphcaps.testing import model_checks


@pytest.mark.parametrize("check", model_checks("sgc").values(), ids=model_checks("sgc"))
def test_contract(check):
    check()
