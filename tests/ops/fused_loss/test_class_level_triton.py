"""The class level in kernels: class capsules, lengths and losses are those of the layers in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.nn import AdjacencyDecoder, CapsuleLayer
from graphcaps.nn.losses import ABSENT_WEIGHT, margin_loss
from graphcaps.ops.coarsening.coarsening import clamp_adjacency
from graphcaps.ops.routing.route import route_dense
from graphcaps.ops.squash import RELEASED_EPSILON
from tests.graphs import assert_equal

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _layer(n: int, d: int, classes: int, iterations: int, residual: bool) -> CapsuleLayer:
    torch.manual_seed(n)
    layer = CapsuleLayer(
        d, d, classes, routing_iterations=iterations, residual=residual, coarsen=False, lead=(2,)
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    return layer


@pytest.mark.parametrize(
    ("n", "d", "classes", "iterations", "residual"),
    [
        (10, 32, 2, 3, True),
        (5, 20, 3, 2, False),
        (17, 16, 6, 4, True),
        (1, 16, 2, 3, True),
        (33, 48, 2, 3, True),
    ],
)
def test_equals_the_layers(
    kernel_device: str, n: int, d: int, classes: int, iterations: int, residual: bool
) -> None:
    from graphcaps.ops.fused_loss.class_level_triton import (
        ClassWeights,
        Decoder,
        MarginOptions,
        NormedCapsules,
        class_level,
        gram_matrices,
        hop_matrices,
    )
    from graphcaps.ops.routing.agreement_triton import agreement_matrices

    F, B = 2, 19
    layer = _layer(n, d, classes, iterations, residual)
    generator = torch.Generator().manual_seed(5)
    u = torch.randn(F, B, n, d, generator=generator) / d**0.5
    raw = 2 * torch.rand(F, B, n, n, generator=generator)
    adjacency = (raw + raw.mT) / 2
    sizes = torch.randint(0, 4, (F, B), generator=generator)
    sizes[:, 0] = 3
    real = sizes > 0
    u.masked_fill_(~real[..., None, None], 0)  # as the level below has them
    y = torch.randint(0, classes, (F, B), generator=generator).masked_fill(~real, -1)
    y[:, 3::5] = -1  # no class, with nodes
    ptr = torch.nn.functional.pad(sizes.cumsum(1), (1, 0))
    decoder = AdjacencyDecoder(classes, d, d, lead=(F,))

    exact = layer.double()
    hop = exact.norm.dense_hop(u.double(), clamp_adjacency(adjacency.double()), real)  # type: ignore[union-attr]
    expected = route_dense(
        hop.h, exact.weight, exact.bias, iterations, hop.mean if residual else None, epsilon=RELEASED_EPSILON
    ).capsules
    scores = expected.norm(dim=-1)
    losses = margin_loss(scores, y, upper=0.9, lower=0.1)
    (dscores,) = torch.autograd.grad(losses.sum(), scores)
    code = decoder.double().code(expected, y)

    mean, var = (
        torch.stack([statistic(u[f].double()[real[f]].reshape(-1, d)) for f in range(F)])
        for statistic in (lambda x: x.mean(0), lambda x: x.var(0, unbiased=False))
    )
    precision = "tf32" if kernel_device == "cpu" else "tf32x3"  # the interpreter does not round
    layer, decoder = layer.float().to(kernel_device), decoder.float().to(kernel_device)
    assert layer.norm is not None

    def there(tensor: Tensor) -> Tensor:
        return tensor.detach().to(
            kernel_device, torch.float32 if tensor.is_floating_point() else tensor.dtype
        )

    inputs = NormedCapsules(
        there(u),
        there(mean),
        there(var),
        layer.norm.weight.detach(),
        layer.norm.bias.detach(),
        layer.norm.epsilon,
    )
    W, e = layer.weight.detach(), layer.bias.detach()
    agreement = agreement_matrices(W, e, precision)
    level = class_level(
        inputs,
        gram_matrices(inputs, agreement, precision),
        hop_matrices(there(adjacency)),
        there(ptr),
        ClassWeights(W, e, agreement, iterations, residual),
        RELEASED_EPSILON,
        precision,
        margin=MarginOptions(there(y), 0.9, 0.1, ABSENT_WEIGHT),
        decoder=Decoder(decoder.weight.detach(), decoder.bias.detach()),
    )
    assert level.margin is not None
    assert level.dscores is not None
    assert level.code is not None
    for name, found, value in (
        ("capsules", level.capsules, expected),
        ("scores", level.scores, scores),
        ("code", level.code, code),
        ("gradient of the scores", level.dscores, dscores),
    ):
        assert_equal(found.cpu().double()[real], value.detach()[real], name, 2e-5)
    assert not level.code.isnan().any(), "the code of a graph without nodes is read too"
    assert_equal(level.margin.cpu().double().sum((1, 2)), losses.detach(), "margin loss", 2e-5)


def test_hop_matrices_clamp_and_normalise(kernel_device: str) -> None:
    from graphcaps.ops.fused_loss.class_level_triton import hop_matrices
    from graphcaps.ops.propagation.propagation import dense_propagate

    A = 3 * torch.rand(2, 5, 11, 11)
    hops = hop_matrices(A.to(kernel_device)).cpu().double()
    identity = torch.eye(11, dtype=torch.float64).expand(2, 5, 11, 11)
    assert_equal(hops.mT, dense_propagate(identity, clamp_adjacency(A.double())), "hop", 1e-6)
