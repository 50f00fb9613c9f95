"""What outputs of a network mean: class probabilities or numbers, so that scorers can judge them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax
from torch import Tensor, nn

from onefit._typing import Array
from onefit.torch.networks.data import Tree


def read_out(loss: Any, outputs: Array, target: Tree) -> dict[str, Any]:
    """Predictions, decision, response, classes and method, as ``LeftOutRisk`` has them.

    Parameters
    ----------
    loss : callable
        The user's.
    outputs : (n, c) array
        Flat.
    target : tree of tensors
        With other than one response a row there are outputs only.
    """
    if not isinstance(target, Tensor) or target.ndim > 2 or not np.all(np.isfinite(outputs)):
        return {"decision": outputs}
    y = target.cpu().numpy()
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss):
        return _of_classes(outputs, y) if y.ndim == 1 and y.dtype.kind == "i" else {"decision": outputs}
    if isinstance(loss, nn.BCEWithLogitsLoss) and outputs.shape[1] == 1 and np.isin(y, (0.0, 1.0)).all():
        both = np.column_stack([np.zeros(len(outputs)), outputs])
        return _of_classes(both, y.reshape(-1).astype(np.intp))
    numbers = outputs[:, 0] if outputs.shape[1] == 1 else outputs
    if y.size != numbers.size:
        return {"decision": outputs}
    return {"decision": numbers, "predictions": numbers, "y": y.reshape(numbers.shape), "method": "predict"}


def _of_classes(outputs: Array, y: Array) -> dict[str, Any]:
    c = outputs.shape[1]
    if y.min() < 0 or y.max() >= c:  # targets that are ignored
        return {"decision": outputs}
    return {
        "decision": outputs[:, 1] - outputs[:, 0] if c == 2 else outputs,
        "predictions": softmax(outputs, axis=1),
        "y": y,
        "classes": np.arange(c),
        "method": "predict_proba",
    }
