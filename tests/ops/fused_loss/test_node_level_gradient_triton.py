"""The gradient of the capsules over nodes, against autograd in float64 through formulas that are written out here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ops.ragged_rows import assert_close

pytest.importorskip("triton")

NORM_EPSILON = 1e-3


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _squash(s: Tensor, epsilon: float) -> Tensor:
    squared = s.square().sum(-1, keepdim=True)
    return s * squared / ((1 + squared) * (squared + epsilon).sqrt())


def _statistics(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the columns, both 0 without rows."""
    count = max(1, len(rows))
    mean = rows.sum(0) / count
    return mean, (rows - mean).square().sum(0) / count


def _normalise(rows: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    mean, var = _statistics(rows)
    return (rows - mean) / (var + NORM_EPSILON).sqrt() * gamma + beta


def _numbers(seed: int) -> Callable[..., Tensor]:
    """Normal float64 numbers that float32 has, too."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator).double()


def _joined(replicas: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([each[name] for each in replicas]).detach() for name in replicas[0]}


def _on(device: str) -> Callable[[Tensor], Tensor]:
    """Copies to the device, of floating-point numbers as float32."""
    return lambda tensor: tensor.to(
        device, torch.float32 if tensor.is_floating_point() else tensor.dtype
    ).contiguous()


@pytest.mark.parametrize(("parts", "d"), [(3, 20), (300, 11), (1, 8)])
def test_norm_gradient_is_that_of_a_batch_normalisation(parts: int, d: int, kernel_device: str) -> None:
    """For rows, γ and β; the second replica has no rows, and the third a single one. 300 parts are more than a step
    adds."""
    from graphcaps.ops.fused_loss.node_level_gradient_triton import norm_gradient, scaled_sums

    numbers, counts, V = _numbers(parts), torch.tensor([40, 0, 1, 7]), 40
    replicas = []
    for count in counts.tolist():
        u, grad, part = 3 * numbers(V, d) + 1, numbers(V, d), numbers(V).argsort() * parts // V
        rows, gamma, beta = (each.requires_grad_() for each in (u[:count].clone(), numbers(d), numbers(d)))
        grad[count:] = 0
        hat = _normalise(rows, gamma, beta)
        du, dgamma, dbeta = torch.autograd.grad(hat, (rows, gamma, beta), grad[:count])
        mean, var = _statistics(rows.detach())
        hats = torch.nn.functional.pad(hat.detach(), (0, 0, 0, V - count))
        add = torch.zeros(parts, d, dtype=torch.float64).index_add
        replicas.append(
            {
                **{"u": u, "grad": grad, "mean": mean, "var": var, "gamma": gamma, "beta": beta},
                **{"sums": add(0, part, grad), "hat_sums": add(0, part, grad * hats)},
                "deviation_sums": add(0, part, grad * (u - mean)),
                **{"dgamma": dgamma, "dbeta": dbeta, "rstd": (var + NORM_EPSILON).rsqrt()},
                "du": torch.nn.functional.pad(du, (0, 0, 0, V - count)),
            }
        )
    case, there = _joined(replicas), _on(kernel_device)
    sums, hat_sums, deviation_sums, mean, var, gamma, beta = (
        there(case[name]) for name in ("sums", "hat_sums", "deviation_sums", "mean", "var", "gamma", "beta")
    )
    norm = norm_gradient(sums, hat_sums, (mean, var, there(counts.double())), (gamma, beta), NORM_EPSILON)
    weight, base, coefficients = (
        each.cpu().double()[:, None] for each in (norm.weight, norm.base, norm.coefficients)
    )
    found = weight * case["grad"] + base - coefficients * case["u"]
    assert_close(found.masked_fill(torch.arange(V)[:, None] >= counts[:, None, None], 0), case["du"], "rows")
    assert not found[1:3].any()
    assert_close(norm.shift, case["dbeta"], "beta")
    assert_close(norm.rstd, case["rstd"], "rstd")
    assert_close(norm.mean, case["mean"], "mean")
    assert_close(scaled_sums(deviation_sums, norm.rstd), case["dgamma"], "gamma")
    assert_close(scaled_sums(sums), case["dbeta"], "sums that are not scaled")


def _capsules(
    numbers: Callable[..., Tensor],
    sizes: Tensor,
    V: int,
    J: int,
    d: int,
    classes: int,
    options: dict[str, Any],
) -> dict[str, Tensor]:
    """A replica: nodes, output capsules, their batch normalisation and sums over them, with autograd's gradients.

    The loss is linear in the sums of the class level, so that its gradients there are random numbers.
    """
    B, real, n = len(sizes), sizes > 0, int(sizes.sum())
    graph = torch.arange(B).repeat_interleave(sizes)
    hat = numbers(n, d).requires_grad_()
    hopped, class_hopped = numbers(V, J).abs(), numbers(B, classes, J).abs()
    hopped[n:] = float("nan")
    weight, constant = numbers(J, d, d) / d**0.5, numbers(J, B, d)
    gamma, beta = (1 + numbers(d) / 4).requires_grad_(), numbers(d).requires_grad_()
    dG_above, ds_above = numbers(classes, B, d), numbers(classes, B, d)

    def add(rows: Tensor) -> Tensor:
        return torch.zeros(B, *rows.shape[1:], dtype=torch.float64).index_add(0, graph, rows)

    under = torch.full((B,), options["divisor"]) if options["divisor"] else sizes.clamp_min(1)
    residual = add(hat) / under[:, None]
    G = add(hopped[:n, :, None] * hat[:, None]).transpose(0, 1)
    s = G @ weight + constant + (residual if options["residual"] else 0)
    u = _squash(s, options["epsilon"]).transpose(0, 1)[real]
    rows = u.reshape(-1, d)
    mean, var = _statistics(rows)
    normalised = _normalise(rows, gamma, beta).view(u.shape)
    loss = (torch.einsum("boj,bjd->obd", class_hopped[real], normalised) * dG_above[:, real]).sum()
    if options["class_residual"]:
        loss = loss + (normalised.mean(1) * ds_above[:, real].sum(0)).sum()
    ds, dG, dhat, dnormalised, dgamma, dbeta = torch.autograd.grad(loss, (s, G, hat, normalised, gamma, beta))
    full = torch.zeros(B, J, d, dtype=torch.float64).index_put((real.nonzero()[:, 0],), u)
    padding = (0, 0, 0, V - n)
    return {
        **{"s": s, "G": G, "u": full, "weight": weight, "residual": residual, "hopped": hopped},
        **{"hopped_sums": add(hopped[:n]), "class_hopped": class_hopped},
        **{"dG_above": dG_above, "ds_above": ds_above},
        **{"mean": mean, "var": var, "gamma": gamma, "beta": beta, "count": torch.tensor(float(len(rows)))},
        "class_sums": dnormalised.sum((0, 1))[None],
        "class_hat_sums": (dnormalised * normalised).sum((0, 1))[None],
        **{"ds": ds, "dG": dG, "dgamma": dgamma, "dbeta": dbeta},
        **{
            "dhat": torch.nn.functional.pad(dhat, padding),
            "sums": dhat.sum(0),
            "hat_sums": (dhat * hat).sum(0),
        },
        "graph": torch.nn.functional.pad(graph, (0, V - n), value=B - 1),
    }


@pytest.mark.parametrize(
    ("B", "J", "d", "classes", "options"),
    [
        (19, 5, 20, 3, {}),
        (71, 3, 32, 2, {"divisor": 40.0, "class_residual": False}),
        (5, 7, 16, 1, {"residual": False, "epsilon": 0.01}),
    ],
    ids=["number of nodes", "fixed divisor", "no residual"],
)
def test_gradients_of_output_capsules_are_those_of_autograd(
    B: int, J: int, d: int, classes: int, options: dict[str, Any], kernel_device: str
) -> None:
    """Of s, G, γ and β, and of the nodes, with their sums; some graphs have no nodes, and the last tile is not full.

    What belongs to graphs without nodes at the class level is not zero, and must not count. The third replica has only
    such graphs.
    """
    from graphcaps.ops.fused_loss.class_level_triton import ClassGradients, ClassLevel, NormedCapsules
    from graphcaps.ops.fused_loss.node_level_gradient_triton import (
        NodeLevel,
        capsule_gradients,
        norm_gradient,
        scaled_sums,
        vote_gradients,
    )

    options = {"residual": True, "class_residual": True, "divisor": 0.0, "epsilon": 1e-7, **options}
    numbers = _numbers(B)
    sizes = torch.randint(0, 4, (3, B), generator=torch.Generator().manual_seed(B))
    sizes[0, 0] = sizes[1, B - 1] = 0
    sizes[0, B - 1], sizes[2] = 3, 0
    V = int(sizes.sum(1).max()) + 2
    case = _joined([_capsules(numbers, sizes[f], V, J, d, classes, options) for f in range(3)])
    there = {name: _on(kernel_device)(value) for name, value in case.items()}
    ptr = torch.nn.functional.pad(sizes.cumsum(1), (1, 0)).to(kernel_device)
    precision = "tf32" if kernel_device == "cpu" else "tf32x3"  # the interpreter does not round

    statistics, affine = (there["mean"], there["var"], there["count"]), (there["gamma"], there["beta"])
    norm = norm_gradient(there["class_sums"], there["class_hat_sums"], statistics, affine, NORM_EPSILON)
    unread: Any = None  # by these kernels
    above = ClassGradients(there["ds_above"], there["dG_above"], *[unread] * 4)
    level = NodeLevel(
        *(there[name] for name in ("s", "G", "weight")), there["residual"] if options["residual"] else None,
        options["divisor"], options["epsilon"], there["hopped_sums"],
    )  # fmt: skip
    class_level = ClassLevel(*[unread] * 5, there["class_hopped"], *[unread] * 5)
    capsules = NormedCapsules(there["u"], *statistics[:2], *affine, NORM_EPSILON)
    grads = capsule_gradients(
        above, class_level, capsules, norm, level, ptr, precision, residual=options["class_residual"]
    )
    dG = vote_gradients(grads, level, precision)

    assert_close(grads.ds, case["ds"], "s")
    assert_close(dG, case["dG"], "G")
    assert_close(scaled_sums(grads.deviation_sums, norm.rstd), case["dgamma"], "gamma")
    assert_close(norm.shift, case["dbeta"], "beta")
    assert_close(scaled_sums(grads.sums), case["sums"], "sums over nodes")
    assert_close(scaled_sums(grads.hat_sums), case["hat_sums"], "sums over nodes, times nodes")
    assert (grads.shared is not None) == options["residual"]
    for f in range(3):
        graph, n = case["graph"][f], int(sizes[f].sum())
        dhat = torch.einsum("vj,jvd->vd", case["hopped"][f], dG[f].cpu().double()[:, graph])
        if grads.shared is not None:
            dhat += grads.shared[f].cpu().double()[graph]
        assert_close(dhat[:n], case["dhat"][f, :n], f"nodes of replica {f}")


def _rows(
    numbers: Callable[..., Tensor], n: int, V: int, d: int, scale: float, epsilon: float, with_extra: bool
) -> dict[str, Tensor]:
    """A replica: projection, ReLU, dropout, squash and batch normalisation of n rows, with autograd's gradients.

    Some rows have length 0, or are so short that their squared length is 0 in float32. V − n rows behind are NaN.
    """
    length = torch.ones(n, 1)
    length[2::9], length[3::9] = 1e-8, 1e-25
    z, gamma, beta = ((length * numbers(n, d)).requires_grad_(), *numbers(2, d).requires_grad_())
    kept, dhat, extra, factor = numbers(n, d) > -0.5, numbers(n, d), numbers(n, d), numbers(1)[0]
    kept[1::9] = False
    h = torch.relu(z) * kept * scale
    u = _squash(h, epsilon)
    loss = (_normalise(u, gamma, beta) * dhat).sum()
    if with_extra:
        loss = loss + factor * (extra * u).sum()
    dz, dgamma, dbeta = torch.autograd.grad(loss, (z, gamma, beta))
    hat = _normalise(u, gamma, beta)
    mean, var = _statistics(u)

    def padded(rows: Tensor) -> Tensor:
        return torch.cat([rows, torch.full((V - n, *rows.shape[1:]), float("nan"), dtype=rows.dtype)])

    return {
        **{"u": padded(u), "squares": padded(h.square().sum(-1))},
        **{"dhat": padded(dhat), "extra": padded(extra)},
        **{"factor": factor, "scale": torch.tensor(scale), "count": torch.tensor(float(n))},
        **{"mean": mean, "var": var, "gamma": gamma, "beta": beta},
        **{"sums": dhat.sum(0)[None], "hat_sums": (dhat * hat).sum(0)[None]},
        **{"dz": padded(dz), "doffset": dz.sum(0), "dgamma": dgamma, "dbeta": dbeta},
    }


@pytest.mark.parametrize(
    ("d", "scales", "epsilon", "with_extra", "programs"),
    [
        (20, [1.25] * 3, 1e-7, True, 6),
        (32, [1.5, 2.0, 1.0], 0.01, False, 6),
        (128, [1.0, 2.0, 1.0], 1e-7, True, 2),
    ],
    ids=["further gradient", "scale per replica", "fewer programs than replicas"],
)
def test_row_gradients_are_those_of_autograd(
    d: int,
    scales: list[float],
    epsilon: float,
    with_extra: bool,
    programs: int,
    kernel_device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the projection, its bias, γ and β; rows of length 0 have gradient 0, and padding does not count.

    Programs have several tiles; the second replica ends in the first program, and the third one has no rows.
    """
    from graphcaps.ops.fused_loss import node_level_gradient_triton as module

    monkeypatch.setattr(module, "ROW_TILES", module.RowTiles(programs=programs))
    numbers, counts = _numbers(d), [150, 20, 0]
    case = _joined(
        [
            _rows(numbers, n, 155, d, scale, epsilon, with_extra)
            for n, scale in zip(counts, scales, strict=True)
        ]
    )
    there = {name: _on(kernel_device)(value) for name, value in case.items()}
    statistics, affine = (there["mean"], there["var"], there["count"]), (there["gamma"], there["beta"])
    norm = module.norm_gradient(there["sums"], there["hat_sums"], statistics, affine, NORM_EPSILON)
    nodes = module.NodeRows(
        there["u"],
        there["squares"],
        scales[0] if len(set(scales)) == 1 else there["scale"],
        *((there["extra"], there["factor"]) if with_extra else (None, None)),
    )
    ptr = torch.tensor([[0, n // 2, n] for n in counts], device=kernel_device)
    dz, offset_sums, deviation_sums = module.row_gradients(there["dhat"], norm, nodes, ptr, epsilon)
    for f, n in enumerate(counts):
        assert_close(dz[f, :n], case["dz"][f, :n], f"projection of replica {f}")
        assert not dz[f, 1:n:9].any()
    assert offset_sums.size(1) == max(1, programs // 3)
    assert_close(module.scaled_sums(offset_sums), case["doffset"], "offset")
    assert_close(module.scaled_sums(deviation_sums, norm.rstd), case["dgamma"], "gamma")
    assert_close(norm.shift, case["dbeta"], "beta")
