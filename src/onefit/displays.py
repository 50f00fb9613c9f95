"""Plots.  A Display takes computed arrays, draws in ``plot`` and keeps its artists."""
