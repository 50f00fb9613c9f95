"""Figures 5 and 6: where the rounds of the augmented Lagrangian lead, and where λ* is."""

from __future__ import annotations

import warnings

import networks
import numpy as np
import plotting
import settings
from contest import OPTIONS, PRINTED
from networks import Trainer
from settings import Case

import onefit

LEFT = "#d6006d"


def one_strength() -> None:
    """Validation losses over ξ: the grid's, those that PVM retrains, and those of its joint weights."""
    figure, axes = plotting.panels(1, 2, width=4.2, height=3.0)
    for ax, rows in zip(axes[0], (1000, 10000), strict=True):
        trainer = Trainer(Case(rows, 1, 0))
        points, search = networks.grid(trainer), networks.pvm(trainer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", onefit.UnreliableWarning)
            printed = networks.pvm(trainer, **OPTIONS[PRINTED])
        ax.plot(
            [one.at[0] for one in points],
            [one.validation for one in points],
            "-",
            color="black",
            lw=1,
            label="grid",
        )
        xi, first = np.array(search["samples"])[:, 0], trainer.size.samples
        losses = search["validation"]
        ax.plot(xi[:first], losses[:first], "o", color=plotting.OURS, ms=5, label="PVM's samples")
        ax.plot(
            xi[first:], losses[first:], "s", color=plotting.OURS, ms=5, mfc="none", label="retrained later"
        )
        path = np.array([[one[0][0], one[1]] for one in printed["rounds"]])
        ax.plot(*path.T, ".--", color=LEFT, lw=1, label="joint weights, rounds 1 to 4 as printed")
        ax.axvline(search["at"][0], color=plotting.OURS, lw=1, ls=":", label="λ*")
        ax.set_yscale("log")
        ax.set_xlabel("ξ = log λ")
        ax.set_title(f"{rows} rows")
    axes[0, 0].set_ylabel("validation loss")
    plotting.legend_below(figure, list(axes[0]))
    plotting.save(figure, settings.FOLDER, "figure_5")


def two_strengths() -> None:
    """The plane of both ξ: the grid's validation loss, PVM's samples, its rounds and λ*."""
    fewest, *more = (rows for rows, strengths in settings.SIZES if strengths == 2)
    shown = (fewest, *more[-1:])  # 1000 and 10000 rows at full size
    figure, axes = plotting.panels(1, len(shown), width=4.0, height=3.4)
    for rows, ax in zip(shown, axes[0], strict=True):
        trainer = Trainer(Case(rows, 2, 0))
        points, search = networks.grid(trainer), networks.pvm(trainer)
        side = np.linspace(*settings.RANGE, trainer.size.side)
        losses = np.array([one.validation for one in points]).reshape(len(side), -1).T
        levels = losses.min() * np.array([1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0])
        shades = plotting.plt.get_cmap("YlOrBr")(np.linspace(0.0, 0.75, len(levels)))
        filled = ax.contourf(side, side, losses, levels=levels, colors=shades, extend="max")
        best = networks.best(points).at
        xi, first = np.array(search["samples"]), trainer.size.samples
        ax.plot(*xi[:first].T, "o", color=plotting.OURS, ms=4, label="PVM's samples")
        ax.plot(*xi[first:].T, "s", color=plotting.OURS, ms=5, mfc="none", label="retrained later")
        start = xi[int(np.argmin(search["validation"][:first]))]
        path = np.array([start, *(one[0] for one in search["rounds"])])
        ax.plot(*path.T, ".-", color=LEFT, lw=1.2, label="rounds, from the best sample")
        ax.plot(*search["at"], "*", color=plotting.OURS, ms=13, label="λ*")
        ax.plot(*best, "x", color="black", ms=8, mew=2, label="best of the grid")
        ax.set_xlabel("ξ of the first layer")
        ax.set_title(f"{rows} rows")
        figure.colorbar(filled, ax=ax, format="%.2f", label="validation loss" if rows == shown[-1] else None)
    axes[0, 0].set_ylabel("ξ of the last layer")
    plotting.legend_below(figure, list(axes[0]))
    plotting.save(figure, settings.FOLDER, "figure_6")


def main() -> None:
    """Both figures."""
    one_strength()
    two_strengths()


if __name__ == "__main__":
    main()
