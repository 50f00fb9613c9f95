"""The convex head: against scikit-learn, finite differences of re-solved problems, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

torch = pytest.importorskip("torch")

import onefit  # noqa: E402
from onefit.torch import ConvexHead  # noqa: E402
from onefit.torch.features import newton as implementation  # noqa: E402
from onefit.torch.features.losses import loss_of  # noqa: E402

N, D, SPLITS = 24, 3, 5


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def problem(loss, seed=0):
    """Features, targets and weights with held-out rows and unequal ones."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(N, D))
    y = {
        "logistic": (features[:, 0] + rng.normal(size=N) > 0).astype(np.int64),
        "squared": features @ [1.0, -1.0, 0.5] + 3.0 + rng.normal(size=N),
        "several": features @ rng.normal(size=(D, 2)) + rng.normal(size=(N, 2)),
        "multinomial": rng.integers(0, 3, N),
        "squared_hinge": (features[:, 0] + rng.normal(size=N) > 0).astype(np.int64),
    }[loss]
    weights = rng.uniform(0.2, 2.0, (SPLITS, N)) * (rng.random((SPLITS, N)) < 0.8)
    return torch.tensor(features), torch.as_tensor(y), torch.tensor(weights)


def head_of(loss, **settings):
    return ConvexHead("squared" if loss == "several" else loss, **settings)


def reference(loss, C, fit_intercept):
    if loss in ("squared", "several"):
        return Ridge(alpha=1 / C, fit_intercept=fit_intercept)
    if loss == "squared_hinge":  # LinearSVC penalises its intercept
        penalty = onefit.penalties.L2(1 / C)
        return onefit.GeneralizedLinear("squared_hinge", penalty, fit_intercept=fit_intercept)
    return LogisticRegression(C=C, fit_intercept=fit_intercept, tol=1e-12, max_iter=10_000)


LOSSES = ["logistic", "squared", "several", "multinomial", "squared_hinge"]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_every_head_is_the_one_of_scikit_learn(loss, C, fit_intercept):
    features, y, weights = problem(loss)
    new = torch.tensor(np.random.default_rng(1).normal(size=(4, D)))
    ours = head_of(loss, C=C, fit_intercept=fit_intercept)(features, y, weights, new)
    for split in range(SPLITS):
        model = reference(loss, C, fit_intercept)
        model.fit(features.numpy(), y.numpy(), sample_weight=weights[split].numpy())
        theirs = getattr(model, "decision_function", model.predict)(new.numpy())
        found = ours[split].numpy()
        if loss == "multinomial":  # linear predictors are the same up to a common shift
            found, theirs = (one - one.mean(1, keepdims=True) for one in (found, theirs))
        np.testing.assert_allclose(found, theirs, atol=2e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_in_the_coefficients_vanishes(loss):
    features, y, weights = problem(loss)
    theta = head_of(loss, C=3.0).coefficients(features, y, weights).requires_grad_()
    decision = features @ theta[:, :-1] + theta[:, -1:]
    one_hot = loss_of(head_of(loss).loss, y)
    losses = one_hot.value(one_hot.coded(y), decision)
    objective = 3.0 * (weights * losses).sum() + 0.5 * theta[:, :-1].square().sum()
    (slope,) = torch.autograd.grad(objective, theta)
    assert slope.abs().max() < 1e-9


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_those_of_solved_again_problems(loss, fit_intercept):
    features, y, weights = problem(loss)
    rng = np.random.default_rng(2)
    weights = weights + 0.1  # inside the domain, so that they can move both ways
    C = torch.tensor(2.0, dtype=torch.float64)
    outer = torch.tensor(rng.normal(size=(SPLITS, N, 3 if loss == "multinomial" else 2)))
    outer = outer if loss in ("multinomial", "several") else outer[..., 0]
    inputs = [features, weights, C, *([y] if loss in ("squared", "several") else [])]

    def value(features, weights, C, y=y):
        decision = head_of(loss, C=C, fit_intercept=fit_intercept)(features, y, weights, features)
        return (outer * torch.tanh(decision)).sum()

    leaves = [one.clone().requires_grad_() for one in inputs]
    slopes = torch.autograd.grad(value(*leaves), leaves)
    for number, slope in enumerate(slopes):
        direction = torch.tensor(rng.normal(size=tuple(slope.shape)))
        moved = [
            value(*(one + (step * direction if k == number else 0) for k, one in enumerate(inputs))).item()
            for step in (-1e-5, 1e-5)
        ]
        difference = (moved[1] - moved[0]) / 2e-5
        assert (slope * direction).sum().item() == pytest.approx(difference, rel=1e-6, abs=1e-6)


def test_without_an_intercept_it_is_linear_svc():
    features, y, weights = problem("squared_hinge")
    ours = ConvexHead("squared_hinge", C=2.0, fit_intercept=False)(features, y, weights, features)
    for split in range(SPLITS):
        model = LinearSVC(C=2.0, dual=False, fit_intercept=False, tol=1e-12, max_iter=100_000)
        model.fit(features.numpy(), y.numpy(), sample_weight=weights[split].numpy())
        np.testing.assert_allclose(ours[split], model.decision_function(features.numpy()), atol=2e-6)


def test_a_few_splits_and_columns_at_a_time_give_the_same(monkeypatch):
    features, y, weights = problem("multinomial")

    def solved():
        leaf = features.clone().requires_grad_()
        decision = ConvexHead("multinomial")(leaf, y, weights, leaf)
        return decision.detach(), *torch.autograd.grad(decision.square().sum(), leaf)

    at_once = solved()
    monkeypatch.setattr(implementation, "ENTRIES", 200)
    for one, other in zip(at_once, solved(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_single_precision_features_get_gradients_of_their_type():
    features, y, weights = problem("logistic")
    leaf = features.float().requires_grad_()
    decision = ConvexHead()(leaf, y, weights, leaf)
    decision.sum().backward()
    assert decision.dtype == torch.float64
    assert leaf.grad.dtype == torch.float32


def test_C_can_be_trained():
    features, y, weights = problem("logistic")
    C = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    head = ConvexHead(C=C)
    assert list(head.parameters()) == [C]
    head(features, y, weights, features).square().sum().backward()
    assert C.grad.item() > 0  # a weaker penalty, larger predictors


def test_separable_splits_are_finite():
    features = torch.tensor([[-1e3], [-1.0], [1.0], [1e3]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 0, 1, 1])
    decision = ConvexHead(C=1e4)(features, y, torch.ones(1, 4, dtype=torch.float64), features)
    decision.sum().backward()
    assert torch.isfinite(decision).all()
    assert torch.isfinite(features.grad).all()


def test_dead_features_leave_the_intercept():
    features = torch.zeros(8, 3, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1, 1, 1, 0, 0, 0, 0, 0])
    decision = ConvexHead()(features, y, torch.ones(1, 8), features)
    decision.sum().backward()
    torch.testing.assert_close(decision, torch.full((1, 8), np.log(3 / 5), dtype=torch.float64))
    assert torch.isfinite(features.grad).all()


def test_a_split_with_one_class_needs_no_intercept():
    features, y, _ = problem("logistic")
    weights = torch.stack([(y == 1).double(), torch.ones(N)])
    with pytest.raises(ValueError, match="split 0 has no training row of a class"):
        ConvexHead()(features, y, weights, features)
    decision = ConvexHead(fit_intercept=False)(features, y, weights, features)
    assert torch.isfinite(decision).all()


def test_a_start_changes_nothing():
    features, y, weights = problem("logistic")
    cold = ConvexHead().coefficients(features, y, weights)
    warm = ConvexHead().coefficients(features, y, weights, start=cold + 1.0)
    torch.testing.assert_close(cold, warm, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": torch.full((N, D), np.nan)}, "NaN"),
        ({"features": torch.ones(N)}, "must be a floating point tensor"),
        ({"weights": torch.ones(SPLITS, N + 1)}, "targets and weights"),
        ({"weights": -torch.ones(SPLITS, N)}, "at least 0"),
        ({"y": torch.full((N,), 2)}, "labels 0 and 1"),
    ],
)
def test_wrong_input_is_refused(change, message):
    features, y, weights = problem("logistic")
    given = {"features": features, "y": y, "weights": weights, **change}
    with pytest.raises(ValueError, match=message):
        ConvexHead()(given["features"], given["y"], given["weights"], features)


@pytest.mark.parametrize("settings", [{"C": 0.0}, {"C": np.inf}, {"loss": "hinge"}])
def test_wrong_settings_are_refused(settings):
    features, y, weights = problem("logistic")
    with pytest.raises(ValueError, match="must be"):
        ConvexHead(**settings)(features, y, weights, features)


@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_a_start_that_is_confidently_wrong_does_no_harm(loss):
    """There the curvature is gone: a Newton step would overflow."""
    features, y, weights = problem(loss)
    head = ConvexHead(loss, C=1e6)
    right = head.coefficients(features, y, weights)
    wrong = head.coefficients(features, y, weights, start=-1e3 * right)
    torch.testing.assert_close(wrong, right, rtol=1e-6, atol=1e-6)
