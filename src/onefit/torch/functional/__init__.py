"""Any loss and penalties, given as functions: fit, leave-one-out, gradients in all strengths, tuning."""
