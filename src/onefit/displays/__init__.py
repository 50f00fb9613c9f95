"""Plots.  A Display takes computed arrays, draws in ``plot`` and keeps its artists.

matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

from onefit.displays.coefficient_path import CoefficientPathDisplay
from onefit.displays.influence import InfluenceDisplay
from onefit.displays.left_out import LeftOutDisplay
from onefit.displays.predictions import PredictionDisplay, ResidualDisplay
from onefit.displays.probabilities import RateDisplay, ThresholdDisplay
from onefit.displays.risk_path import RiskPathDisplay

__all__ = [
    "CoefficientPathDisplay",
    "InfluenceDisplay",
    "LeftOutDisplay",
    "PredictionDisplay",
    "RateDisplay",
    "ResidualDisplay",
    "RiskPathDisplay",
    "ThresholdDisplay",
]
