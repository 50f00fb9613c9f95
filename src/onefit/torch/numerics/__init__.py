"""Objectives, their minima, and the optimisers that all of ``onefit.torch`` shares."""
