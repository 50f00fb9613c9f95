"""
Sparse text: logistic regression on thousands of words
======================================================

Two newsgroups about computers, 1943 posts and 3289 words, in a sparse matrix.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

import onefit

file = np.load(Path(os.environ["ONEFIT_DATA"]) / "newsgroups_pcmac.npz")
counts = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
frequent = np.asarray((counts > 0).sum(axis=0)).ravel() >= 10  # a word that occurs once decides its row alone
X = TfidfTransformer().fit_transform(counts.astype(float)[:, frequent])
y = np.where(file["y"] == 1, "mac", "pc")
rng = np.random.default_rng(0)
order = rng.permutation(len(y))
train, test = order[:600], order[600:]

model = onefit.LogisticLOO(Cs=12).fit(X[train], y[train])
print(f"left-out log-loss {model.loo_.value:.3f} ± {model.loo_.std_error:.3f}")
print(f"left-out accuracy {model.loo_.score('accuracy'):.3f}")
print(f"accuracy on {len(test)} other posts {model.score(X[test], y[test]):.3f}")

onefit.RiskPathDisplay.from_estimator(model).plot()
plt.show()
