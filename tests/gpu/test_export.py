"""A model on a GPU is exported with the scores that it gives there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphcaps.inference.export import export_inputs
from tests.small_models import planted, train_small

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    # torch 2.11 reads the archive that it wrote from a read-only buffer.
    pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning"),
]


@pytest.mark.parametrize("name", ["hgcn", "gin"])
def test_an_exported_program_runs_on_the_device_of_the_model(name: str, tmp_path: Path) -> None:
    model = train_small(planted(), name).to("cuda")
    model.export(tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    with torch.no_grad():
        actual = program(*(value.cuda() for value in export_inputs(model, planted())))
    torch.testing.assert_close(actual.cpu(), model.scores(planted()), rtol=1e-4, atol=1e-4)
