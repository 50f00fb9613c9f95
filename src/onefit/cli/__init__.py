"""The command line: a table in; a saved model, its coefficients, predictions and a report out."""

from __future__ import annotations

from onefit.cli.app import run

__all__ = ["run"]
