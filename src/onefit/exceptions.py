"""What onefit warns of and what it refuses."""

from __future__ import annotations


class OnefitWarning(UserWarning):
    """Base class of every warning of this library."""


class NotOptimalWarning(OnefitWarning):
    """The fitted coefficients are not the minimum that they claim to be.

    The library polishes them to optimality before it reads anything from them; this warning says how
    far they moved.
    """


class UnreliableWarning(OnefitWarning):
    """A number is returned that should not be trusted; the message names the rows."""


class ShortPathWarning(OnefitWarning):
    """The risk still falls at an end of the strengths that were given."""


class UnsupportedModelError(TypeError):
    """No formula is known for this estimator, or for one of its parameters."""


class NotFittedToDataError(ValueError):
    """The data given are not the data that the model was fitted on."""


class SolverError(RuntimeError):
    """A solver of ours did not reach the optimum."""
