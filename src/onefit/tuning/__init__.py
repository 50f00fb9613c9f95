"""Searches: strengths chosen by their risk."""
