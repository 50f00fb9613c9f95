"""Fitted estimators of other libraries, read as a ``Fit``.

The only place that knows other libraries' conventions: how they scale loss and penalty, whether they shrink
the penalty when a row leaves, where they keep coefficients.  A new library is one registration; those
that we do not depend on are in ``foreign``, which is imported when one of their estimators comes.
"""

from onefit.readers import least_squares, likelihood, margins
from onefit.readers.reading import Reading, as_fit, has_reading, read

__all__ = ["Reading", "as_fit", "has_reading", "least_squares", "likelihood", "margins", "read"]
