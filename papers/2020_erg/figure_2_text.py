"""Figure 2, right: scores and seconds of all procedures on texts, with fewer rows than columns."""

from __future__ import annotations

import contest
import plotting
import results
import settings

DRAWS = results.pick("draws", full=100, quick=2)
SIZES = results.pick("sizes", full=settings.TEXT_SIZES, quick=(50,))
COLOURS = {"Ridge": "#1b6ca8", "Lasso": "#d95f02", "ElasticNet": "#4d9221"}
KINDS = {"BKK": "Ridge", "SBKK": "Lasso", "ABKK": "ElasticNet"}
WORST = -0.3  # score at which the panel ends


def name(words: str, size: int) -> str:
    """How a setting is called."""
    return f"{words}, n = {size}"


def style(procedure: str) -> dict[str, object]:
    """Colour by the kind of model, line by the way it is chosen."""
    kind = KINDS.get(procedure, procedure.removesuffix("LOO").removesuffix("CV"))
    if procedure in KINDS:
        line = {"ls": "-", "marker": "o"}
    elif procedure.endswith("LOO"):
        line = {"ls": "--", "marker": "s"}
    else:
        line = {"ls": ":", "marker": "x"}
    return {"color": COLOURS[kind], "ms": 4, "lw": 1.3, **line}


def draw(runs: list[contest.Run]) -> None:
    """Seconds left, scores right, one row for each way to count words."""
    figure, axes = plotting.panels(len(settings.WORDS), 2, width=4.2, height=2.7)
    for row, words in zip(axes, settings.WORDS, strict=True):
        for ax, what in zip(row, ("seconds", "r2"), strict=True):
            for one in contest.PROCEDURES:
                found = [contest.values(runs, name(words, n), what)[one].mean() for n in SIZES]
                ax.plot(SIZES, found, label=one, **style(one))
            ax.set_title(words)
            ax.set_xticks(SIZES)
        row[0].set_yscale("log")
        row[0].set_ylabel("seconds, mean")
        row[1].set_ylabel("R² (eq. 11), mean")
        row[1].set_ylim(bottom=max(row[1].get_ylim()[0], WORST))
    for ax in axes[-1]:
        ax.set_xlabel("texts to fit, n")
    plotting.legend_below(figure, list(axes.flat))
    plotting.save(figure, settings.FOLDER, "figure_2_text")


def main() -> None:
    """Run, draw and report."""
    runs: list[contest.Run] = []
    for words in settings.WORDS:
        for size in SIZES:
            runs += contest.contest(name(words, size), settings.text(words, size, DRAWS))
            contest.save("figure_2_text_rows", runs)
    contest.report("figure_2_text", runs, "Figure 2, right: texts of two newsgroups.", DRAWS)
    draw(runs)


if __name__ == "__main__":
    main()
