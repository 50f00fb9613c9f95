"""Leave-one-out of a convex program that was written in cvxpy.

The program is split where the data enter, at the linear predictor (``splitting``):

    minimise over (β, b, u):   L(u) + P(β)    subject to   u = X β + b,   β in the constraints.

It is solved with all rows or some of them (``program``), and everything that leave-one-out needs is read off
this form (``local``), whatever the atoms are.  ``model`` has the estimator; ``search`` is its risk as a
function of the program's parameters, differentiated by ``adjoint``.  cvxpy is imported when a program is
split or solved, not before.
"""

from onefit.convex_program.model import ConvexProgram, from_cvxpy
from onefit.convex_program.search import ProgramObjective

__all__ = ["ConvexProgram", "ProgramObjective", "from_cvxpy"]
