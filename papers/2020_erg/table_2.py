"""The paper's Adam on λ itself, as its table 1 reads, beside the same steps in log λ."""

from __future__ import annotations

import contest
import numpy as np
import results
import settings
import tables
from figure_1 import name
from settings import Split

import onefit
from onefit.risk.permutation import draw_permutations

Array = np.ndarray
DRAWS = results.pick("draws", full=100, quick=5)
START, RATE, BETAS, TINY = 1e3, 0.5, (0.5, 0.9), 1e-8
MOST, TOL, PERMUTATIONS = 1000, 1e-4, 30


class Ridge:
    """BKK of ridge regression (eqs 5 and 8) and its slope in λ, from one singular value decomposition."""

    def __init__(self, split: Split, seed: int) -> None:
        y = split.y - split.y.mean()
        orders = draw_permutations(len(y), PERMUTATIONS, np.random.default_rng(seed))
        targets = np.column_stack([y, *(y[order] for order in orders)]) / np.sqrt(np.mean(y**2))
        self.U, self.sizes, self.Vt = np.linalg.svd(split.X, full_matrices=False)
        self.along, self.total = self.U.T @ targets, np.mean(targets**2, axis=0)
        self.scale = np.sqrt(np.mean(y**2))

    def criterion(self, strength: float) -> tuple[float, float]:
        """Value and slope."""
        n, squares = len(self.U), self.sizes[:, None] ** 2
        left = strength / (squares + strength)  # share of each direction that is not explained
        rest = self.total + np.sum((left**2 - 1.0) * self.along**2, axis=0) / n
        norms = np.sqrt(rest)
        moved = np.sum(left * squares / (squares + strength) ** 2 * self.along**2, axis=0) / n / norms
        noise = 1.0 - norms[1:]
        return float(norms[0] + np.mean(np.abs(noise))), float(moved[0] - np.mean(np.sign(noise) * moved[1:]))

    def coef(self, strength: float) -> Array:
        """Coefficients in the units of the response."""
        return self.scale * self.Vt.T @ (self.sizes / (self.sizes**2 + strength) * self.along[:, 0])


def descend(ridge: Ridge) -> tuple[float, int]:
    """Adam on λ from 1000, until an iteration changes the criterion by less than the tolerance."""
    at, first, second = START, 0.0, 0.0
    value, slope = ridge.criterion(at)
    for step in range(1, MOST + 1):
        first = BETAS[0] * first + (1.0 - BETAS[0]) * slope
        second = BETAS[1] * second + (1.0 - BETAS[1]) * slope**2
        at -= RATE * first / (1.0 - BETAS[0] ** step) / (np.sqrt(second / (1.0 - BETAS[1] ** step)) + TINY)
        before, (value, slope) = value, ridge.criterion(at)
        if abs(value - before) < TOL:
            return at, step
    return at, MOST


def main() -> None:
    """One row a setting of the synthetic data."""
    rows, numbers = [], dict[str, float]()
    for noise in settings.NOISES:
        for scenario in settings.SCENARIOS:
            found = []
            for seed in range(DRAWS):
                split = settings.synthetic(scenario, noise, seed)
                strength, steps = descend(Ridge(split, seed))
                predicted = split.X_test @ Ridge(split, seed).coef(strength) + split.y.mean()
                model = onefit.PermutationRegressor("ridge", random_state=seed).fit(split.X, split.y)
                ours = contest.score(split.y_test, model.predict(split.X_test))
                found.append((strength, steps, contest.score(split.y_test, predicted), ours, model.n_iter_))
            strength, steps, raw, log, ours = np.array(found).T
            scores = (tables.mean_and_error(list(one), 3) for one in (raw, log))
            setting = name(scenario, noise)
            rows.append(
                (setting, f"{strength.mean():.1f}", f"{steps.mean():.1f}", *scores, f"{ours.mean():.1f}")
            )
            numbers |= {f"{setting}: λ": strength.mean(), f"{setting}: steps": steps.mean()}
            numbers |= {f"{setting}: R² raw": raw.mean(), f"{setting}: R² log": log.mean()}
    head = ("setting", "λ, raw", "iterations, raw", "R², raw λ", "R², log λ", "iterations, log λ")
    caption = "Raw λ with the paper's Adam (start 1000, rate 0.5, tolerance 1e-4), and the same in log λ."
    results.save(
        settings.FOLDER, "table_2", head, rows, caption=caption, seeds=f"0 to {DRAWS - 1}", numbers=numbers
    )


if __name__ == "__main__":
    main()
