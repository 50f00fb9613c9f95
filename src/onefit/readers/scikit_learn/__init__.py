"""scikit-learn: a file for each kind of model."""

from onefit.readers.scikit_learn import glm, kernel, linear, svm

READINGS = linear.READINGS | glm.READINGS | svm.READINGS | kernel.READINGS
REFERENCES = svm.REFERENCES | kernel.REFERENCES

__all__ = ["READINGS", "REFERENCES"]
