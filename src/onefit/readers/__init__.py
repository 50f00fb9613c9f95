"""Fitted estimators of other libraries, read as a ``Fit``.

The only place that knows other libraries' conventions: how they scale loss and penalty, whether they shrink
the penalty when a row leaves, where they keep coefficients.  A new library is one file here and one line in
``registry.LIBRARIES``.
"""

from onefit.readers.reading import Reader, Reading, refuse
from onefit.readers.registry import as_fit, has_reading, held_fixed, load, read, warn_if_supervised

__all__ = ["Reader", "Reading", "as_fit", "has_reading", "held_fixed", "read", "refuse", "warn_if_supervised"]

load("sklearn")
