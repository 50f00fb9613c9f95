"""Risks: what a fit is worth on rows it has not seen."""
