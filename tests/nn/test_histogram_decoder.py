"""The reconstruction of histograms on a worked example."""

from __future__ import annotations

import math

import torch

from graphcaps.nn.histogram_decoder import HistogramDecoder
from graphcaps.types import Segments


def test_worked_example() -> None:
    # Two graphs and a padding graph; columns are one-hot, and the third is a number.
    x = torch.tensor([[1.0, 0.0, 0.3], [0.0, 1.0, 0.0], [1.0, 0.0, -2.0], [1.0, 0.0, 0.0]])
    segments = Segments(torch.tensor([0, 3, 4, 4]), torch.tensor([0, 0, 0, 1]))
    decoder = HistogramDecoder(2, 1, 3, hidden=1)
    with torch.no_grad():
        decoder.weight.copy_(torch.tensor([[1.0], [-1.0]]))  # of class 0 and of class 1
        decoder.bias.zero_()
        decoder.outer.weight.copy_(torch.tensor([[1.0, -1.0, 0.0]]))
        assert decoder.outer.bias is not None
        decoder.outer.bias.zero_()
    capsules = torch.tensor([[[0.5], [9.0]], [[9.0], [0.7]], [[4.0], [4.0]]])
    loss = decoder(x, segments, class_capsules=capsules, y=torch.tensor([0, 1, -1]))

    def sigma(z: float) -> float:
        return 1 / (1 + math.exp(-z))

    # The first graph has the histogram (2/3, 1/3, 2/3), and its code is ReLU(0.5). All columns are present.
    errors = [(sigma(0.5) - 2 / 3) ** 2, (sigma(-0.5) - 1 / 3) ** 2, (0.5 - 2 / 3) ** 2]
    # The second one has (1, 0, 0), and its code is ReLU(-0.7) = 0.
    expected = (max(errors) + (0.5 - 1) ** 2 + 0.5**2) / 2
    assert math.isclose(loss.item(), expected, rel_tol=1e-6)


def test_replicas_equal_single_decoders() -> None:
    torch.manual_seed(0)
    decoders = HistogramDecoder(3, 4, 5, hidden=6, lead=(2,)).double()
    x = torch.randn(2, 7, 5, dtype=torch.float64).relu()
    capsules, y = torch.randn(2, 2, 3, 4, dtype=torch.float64), torch.tensor([[0, 2], [1, 1]])
    segments = Segments(
        torch.tensor([[0, 3, 7], [0, 6, 7]]), torch.tensor([[0] * 3 + [1] * 4, [0] * 6 + [1]])
    )
    together = decoders(x, segments, class_capsules=capsules, y=y)
    for f in range(2):
        single = HistogramDecoder(3, 4, 5, hidden=6).double()
        with torch.no_grad():
            for name, parameter in single.named_parameters():
                parameter.copy_(decoders.get_parameter(name)[f])
        one = Segments(segments.ptr[f], segments.index[f])
        torch.testing.assert_close(
            together[f], single(x[f], one, class_capsules=capsules[f], y=y[f]), rtol=1e-12, atol=0
        )
