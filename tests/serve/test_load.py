"""The server under load, as ``benchmarks/measure_server_load.py`` measures it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from benchmarks.measure_server_load import measure

from tests.serve.models import SMILES, molecule_model, saved

pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install 'graphcaps[serve]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'graphcaps[serve]'")
pytest.importorskip(
    "python_multipart", reason="python-multipart is not installed: pip install 'graphcaps[serve]'"
)


@pytest.mark.slow
def test_every_request_of_three_rounds_is_answered_with_flat_memory(tmp_path: Path) -> None:
    model = saved(molecule_model(), tmp_path, "molecules")
    rounds = measure(model, SMILES, Namespace(requests=300, concurrent=50, rounds=3, workers=1))
    assert [one.good_answered for one in rounds] == [270] * 3
    assert [one.bad_answered for one in rounds] == [30] * 3
    assert max(one.memory_mb for one in rounds) <= 1.1 * rounds[0].memory_mb
