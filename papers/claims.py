"""What the papers claim, and how the stored numbers judge it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Numbers = Mapping[str, float]
YES, PART, NO = "reproduced", "in part", "contradicted"

PAPERS = {
    "2017_aloocv": "ALOOCV 2017",
    "2018_alo": "ALO 2018",
    "2019_cvgm": "CVGM 2019",
    "2020_erg": "ER-G 2020",
    "2020_pvm": "PVM 2020",
}


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes
    ----------
    paper, result : str
        The stored result whose numbers judge it.
    says : str
    ours : callable
        From the numbers to what is shown beside the claim.
    verdict : callable
    why : str
    """

    paper: str
    result: str
    says: str
    ours: Callable[[Numbers], str]
    verdict: Callable[[Numbers], str]
    why: str = ""

    def judged(self, numbers: Numbers) -> tuple[str, str]:
        """What is shown, and the verdict."""
        return self.ours(numbers), self.verdict(numbers)


def graded(full: bool, part: bool = False) -> str:
    """The verdict of two conditions."""
    return YES if full else PART if part else NO


CLAIMS: list[Claim] = []
