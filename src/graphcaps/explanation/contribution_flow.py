r"""Flow from nodes through capsules to classes, with contributions as widths.

The contributions of the capsules below the class level, with that of the residual, add up to the class scores
(:class:`graphcaps.explanation.ExplainedLevel`), so the widest class is the predicted one. A lower level is drawn in the
same units: what leaves a capsule is divided among its own inputs in proportion to their contributions to it.

.. math::
    F^{L}_{ko} = q^{L}_{ko}, \qquad
    F^{l}_{mk} = q^{l}_{mk} \frac{\sum_o |F^{l+1}_{ko}|}{\sum_m |q^{l}_{mk}|}

Negative contributions are against an output capsule. The nodes are one block.
"""

from __future__ import annotations

import numpy as np

from graphcaps.explanation.explanation_data import ExplanationData

__all__ = ["contribution_flow"]


def contribution_flow(explanation: ExplanationData) -> list[np.ndarray]:
    """Flow into each level, from the nodes to the classes.

    Returns:
        list: ``[1, J]`` from the nodes to the capsules of the first level, then per level ``[J_below + 1, J]``, whose
        last row is the residual: the mean capsule of the level below. The last entry holds contributions to class
        scores.
    """
    flows: list[np.ndarray] = []
    needed: np.ndarray | None = None
    for level in reversed(explanation.levels[1:]):
        contributions = np.vstack(
            [level.contributions.double().numpy(), level.residual_contributions.double().numpy()]
        )
        if needed is not None:
            total = np.abs(contributions).sum(0)
            contributions = contributions * np.divide(
                needed, total, out=np.zeros_like(total), where=total > 0
            )
        flows.append(contributions)
        needed = np.abs(contributions[:-1]).sum(1)
    assert needed is not None, "a model has a hidden level"
    return [needed[None], *reversed(flows)]
