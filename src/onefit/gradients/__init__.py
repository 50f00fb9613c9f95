"""Gradients of a risk in the hyperparameters: the implicit function theorem, once.

At a fit the parameters answer to a change of the problem by dθ = −K⁻¹ d(Zᵀ g + ∇P) on the tangent, with the
same K that leave-one-out has.  So a risk is pulled back in two steps:

1. from its left-out predictors to the fit: what it owes to the slopes and bends of the loss, to the leverages
   and to the penalty's curvature C;
2. from the parameters to the problem, by one solve u = K⁻¹ v, whatever the number of hyperparameters.

What is left is a ``Cotangent``: the derivative of the risk in what makes up the problem at the fit.  That is
the penalty, by ∇P and C on the tangent; the loss, by the slopes g, the bends d and the kinks that rows sit
on; and, for a kernel model, the Gram matrix G.  With it,

    ∂R/∂λ_m = ⟨∂R/∂∇P, ∂_m ∇P⟩ + ⟨∂R/∂C, ∂_m C⟩ + ⟨∂R/∂g, ∂_m g⟩ + ⟨∂R/∂d, ∂_m d⟩ + ⟨∂R/∂G, ∂_m G⟩

for every λ_m (Beirami et al. 2017, section 4; Wang et al. 2019, section 3 and appendices A and B).

Where the rows are known by their Gram matrix only, a fit has η = G a + b with α a = −g, and a direction u of
its parameters has dual coordinates c with α c = v − D (G c + u_b) − μ, μ the forces that hold rows in
kinks.  Therefore vᵀ dη = α cᵀ dG a: the derivative in G is α c aᵀ, of rank one, and what is tested needs no
case of its own, since rows without weight have α c_i = v_i.
"""

from onefit.gradients.adjoint import (
    Cotangent,
    LossChange,
    OfGram,
    OfLoss,
    Stencil,
    TangentChange,
    in_gram,
    loss_change,
    relative_rate,
    same_penalty,
    stencil,
    stretched,
    tangent_change,
)
from onefit.gradients.left_out import degrees_of_freedom, gradient_2017, leave_one_out
from onefit.gradients.solution import (
    InCorners,
    Solves,
    held_out,
    held_out_alone,
    implicit,
    of_rows,
    stand_side_by_side,
)

__all__ = [
    "Cotangent",
    "InCorners",
    "LossChange",
    "OfGram",
    "OfLoss",
    "Solves",
    "Stencil",
    "TangentChange",
    "degrees_of_freedom",
    "gradient_2017",
    "held_out",
    "held_out_alone",
    "implicit",
    "in_gram",
    "leave_one_out",
    "loss_change",
    "of_rows",
    "relative_rate",
    "same_penalty",
    "stand_side_by_side",
    "stencil",
    "stretched",
    "tangent_change",
]
