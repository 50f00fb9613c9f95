"""Checks for losses, penalties and readers of your own: what onefit's own ones are tested with.

Each check raises an ``AssertionError`` that says what is wrong, and returns nothing.

>>> import numpy as np
>>> from onefit.losses import Logistic
>>> from onefit.testing import check_loss
>>> check_loss(Logistic(), y=np.arange(40) % 2)
"""

from onefit.testing.losses import check_loss
from onefit.testing.penalties import check_penalty
from onefit.testing.readers import check_reader

__all__ = ["check_loss", "check_penalty", "check_reader"]
