"""scikit-learn: a file for each kind of model."""

from onefit.readers.scikit_learn import glm, kernel, linear, svm

READINGS = linear.READINGS | glm.READINGS | svm.READINGS | kernel.READINGS
REFUSALS = linear.REFUSALS | kernel.REFUSALS
REFERENCES = svm.REFERENCES | kernel.REFERENCES

__all__ = ["READINGS", "REFERENCES", "REFUSALS"]
