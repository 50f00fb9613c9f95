"""Leave-one-out of trained networks."""
