"""Names of ``onefit.metrics`` under which other branches still know them."""

from onefit.metrics import Deviance as Mean
from onefit.metrics import HingeLoss as Margin
from onefit.metrics import LinearMetric as Response
from onefit.metrics import LocationError as Location
from onefit.metrics import LogLoss as Probability
from onefit.metrics import PinballLoss as Pinball
from onefit.metrics import SquaredError as Value

__all__ = ["Location", "Margin", "Mean", "Pinball", "Probability", "Response", "Value"]
