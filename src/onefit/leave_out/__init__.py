"""Predictions of rows without those rows: one engine, and how far it may be off."""

from onefit.leave_out.engine import leave_out
from onefit.leave_out.result import LeftOut, Refinement
from onefit.leave_out.sets import Folds

__all__ = ["Folds", "LeftOut", "Refinement", "leave_out"]
