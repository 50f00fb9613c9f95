"""Risks: what a fit is worth on rows it has not seen."""

from onefit.risk.named import (
    ALO,
    GCV,
    SURE,
    HeldOut,
    InfluenceFunction,
    KFold,
    LeaveGroupOut,
    LeaveOneOut,
    LeaveQOut,
    LinearizedALO,
    MonteCarlo,
    Permutation,
    Split,
)

__all__ = [
    "ALO",
    "GCV",
    "SURE",
    "HeldOut",
    "InfluenceFunction",
    "KFold",
    "LeaveGroupOut",
    "LeaveOneOut",
    "LeaveQOut",
    "LinearizedALO",
    "MonteCarlo",
    "Permutation",
    "Split",
]
