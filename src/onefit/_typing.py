"""Types and letters.

Throughout the library: ``n`` rows, ``p`` columns, ``k`` free directions, ``c`` outputs or classes,
``m`` hyperparameters.  ``eta`` is the linear predictor, ``X beta + b``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = NDArray[np.intp]
Sets: TypeAlias = Sequence[Index] | Index  # rows of each; an array, (f, b), where each has as many
Sparse: TypeAlias = sp.spmatrix | sp.sparray
Design: TypeAlias = Any  # Array | Sparse | onefit._linalg.RowGram: told apart in _linalg only
