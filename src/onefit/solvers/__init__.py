"""Solvers: from a problem, and perhaps a start, to its fit."""
