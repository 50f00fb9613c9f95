"""Convex heads on features that are learned, or frozen."""
