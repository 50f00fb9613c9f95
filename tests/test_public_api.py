"""What ``import onefit`` offers, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import onefit

OPTIONAL = [
    *("torch", "dask", "cvxpy", "clarabel", "matplotlib"),
    *("pandas", "pyarrow", "click", "jinja2", "skops"),
]


def test_the_public_names_exist():
    assert len(set(onefit.__all__)) == len(onefit.__all__)
    for name in onefit.__all__:
        assert getattr(onefit, name) is not None
    assert set(onefit.__all__) <= set(dir(onefit))
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = onefit.nothing_of_ours


NAMES = {
    *("loo", "evaluate", "from_cvxpy", "RiskEstimate", "losses", "penalties", "risk"),
    *("RidgeLOO", "LassoLOO", "ElasticNetLOO", "LogisticLOO", "PoissonLOO"),
    *("GeneralizedLinear", "GeneralizedLinearLOO", "PermutationRegressor"),
    *("GradientSearchCV", "PerFeature", "PerGroup", "Simplex"),
    *("RiskPathDisplay", "CoefficientPathDisplay", "LeftOutDisplay"),
    *("OnefitWarning", "NotOptimalWarning", "UnreliableWarning"),
    *("NotFittedToDataError", "SolverError", "UnsupportedModelError"),
}
IN_PACKAGES = {
    "penalties": {
        *("L1", "L2", "ElasticNet", "GroupLasso", "SparseGroupLasso", "GeneralizedLasso", "FusedLasso"),
        *("TrendFilter", "Slope", "LInfinity", "NuclearNorm", "SmoothNuclearNorm", "Box"),
    },
    "losses": {
        *("Squared", "Huber", "Quantile", "EpsilonInsensitive", "SquaredEpsilonInsensitive", "Logistic"),
        *(
            "Hinge",
            "SquaredHinge",
            "SmoothedHinge",
            "Exponential",
            "Multinomial",
            "Poisson",
            "Gamma",
            "Tweedie",
        ),
        "Mixture",
    },
    "risk": {"KFold", "MonteCarlo", "LeaveQOut", "HeldOut", "GCV", "SURE", "Permutation"},
}


def test_no_public_name_is_lost():
    assert set(onefit.__all__) >= NAMES
    for package, names in IN_PACKAGES.items():
        assert set(getattr(onefit, package).__all__) >= names, package


def test_every_public_name_is_documented():
    for name in onefit.__all__:
        assert (getattr(onefit, name).__doc__ or "").strip(), name


def test_warnings_and_errors_have_families():
    assert issubclass(onefit.NotOptimalWarning, onefit.OnefitWarning)
    assert issubclass(onefit.UnreliableWarning, onefit.OnefitWarning)
    assert issubclass(onefit.OnefitWarning, UserWarning)
    assert issubclass(onefit.UnsupportedModelError, TypeError)
    assert issubclass(onefit.NotFittedToDataError, ValueError)


def modules_after(code):
    code += "\nimport sys\nprint('\\n'.join(name for name, module in sys.modules.items() if module))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.fixture(scope="module")
def loaded():
    ours = modules_after("from onefit import *")  # every public name
    theirs = modules_after(
        "import sklearn.linear_model, sklearn.pipeline, sklearn.metrics, sklearn.kernel_ridge, joblib"
    )
    assert "onefit.api" in ours
    return ours - theirs  # scikit-learn itself may load pandas where it is installed


@pytest.mark.parametrize("package", OPTIONAL)
def test_import_loads_nothing_optional(loaded, package):
    assert package not in loaded


def test_nothing_optional_is_needed():
    block = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
"""
    work = """
import numpy as np, onefit
from sklearn.linear_model import Ridge
X = np.random.default_rng(0).normal(size=(20, 3))
print(onefit.loo(Ridge().fit(X, X[:, 0]), X, X[:, 0]))
"""
    assert "onefit" in modules_after(block + work)
