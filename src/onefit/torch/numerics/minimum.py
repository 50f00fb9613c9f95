"""The minimum of an objective to high accuracy: quasi-Newton steps far from it, Newton steps near it.

Left-out steps and implicit derivatives hold at a minimum only, so that none but an accurate one will do:
L-BFGS comes near, Newton steps (a dense factor, or conjugate gradients on products with the Hessian) take
the error below rounding.  What is stationary but no minimum is left along a direction of negative curvature.
"""

from __future__ import annotations

from torch import Tensor

from onefit.exceptions import SolverError
from onefit.torch.numerics.newton import newton, quasi_newton
from onefit.torch.numerics.objective import PenalisedSum
from onefit.torch.numerics.support import on_support, split_signs


def minimise(objective: PenalisedSum, start: Tensor, *, warm: bool = False) -> Tensor:
    """Return the minimum that a start leads to: (k,).

    Parameters
    ----------
    objective : PenalisedSum
    start : (k,) tensor
    warm : bool, default False
        Whether the start is near: Newton steps are tried at once.

    Raises
    ------
    SolverError
        If the objective has no minimum that can be reached, or is not smooth.
    """
    kinked = bool((objective.kinks(start) > 0).any())
    finish = on_support if kinked else newton
    if warm:
        try:
            return finish(objective, start)
        except SolverError:
            pass  # the start was too far: begin as if it were any other
    for _ in range(2 if kinked else 1):
        start = split_signs(objective, start) if kinked else quasi_newton(objective, start)
        try:
            return finish(objective, start)
        except SolverError as error:
            failure = error
    raise failure
