"""Penalties tuned through the optimal value of the training problem."""
