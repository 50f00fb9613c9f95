"""Draw the pages from the stored results: the table of claims, and every table and figure of each paper.

``python papers/pages.py`` writes ``README.md`` and ``<paper>/RESULTS.md``; ``--check`` only says which
results rest on code that has changed since, and fails where a page is not what would be drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import claims
import results
import tables

HERE = Path(__file__).resolve().parent
KEYS = ("commit", "date", "seconds")  # of what a result was made by
INTRODUCTION = """# The five papers, done anew

Drawn by `papers/pages.py` from the files in `papers/results`; do not edit. `make papers` runs everything at
the papers' size, for hours; `make papers PAPERS_ARGS=--quick` at reduced sizes, in about a quarter of an hour
on an idle machine. Each folder has a page with how things are done and what differs from the paper
(`README.md`) and one with all tables and figures (`RESULTS.md`); every caption says what was reduced.

A claim is *reproduced* where the numbers bear it out, *in part* where they do in some settings or by less,
*contradicted* where they say otherwise. The verdict on a reduced run ("quick") is one on that run.
"""


def read_me(stored: list[dict[str, Any]]) -> str:
    """The table of claims, and where each result comes from."""
    by_name = {(one["paper"], one["name"]): one for one in stored}
    rows = []
    for claim in claims.CLAIMS:
        found = by_name.get((claim.paper, claim.result))
        shown = ("", "", "not run", "no result is stored")
        if found is not None:
            ours, verdict = claim.judged({**found["numbers"], **found["timings"]})
            shown = (ours, found["size"], verdict, claim.why)
        rows.append((claims.PAPERS[claim.paper], claim.says, *shown))
    head = ("paper", "claim", "ours", "size", "verdict", "why, or by how much")
    made = [
        (f"{one['paper']}: {one['name']}", one["size"], *(str(one["made"][key]) for key in KEYS))
        for one in stored
        if one["shown"]
    ]
    origins = tables.markdown(("result", "size", *KEYS), made)
    parts = [INTRODUCTION, tables.markdown(head, rows), "", "## Where the results come from", "", origins, ""]
    return "\n".join([*parts, *_machines(stored)]) + "\n"


def _machines(stored: list[dict[str, Any]]) -> list[str]:
    """Machines and versions, each once."""
    told = {one["made"]["machine"] + "; " + _versions(one["made"]["versions"]) for one in stored}
    return [f"- {one}" for one in sorted(told)]


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def caption(one: Mapping[str, Any]) -> str:
    """Caption, reduced sizes, seeds and commit."""
    reduced = "; ".join(f"{name}: {own} of {full}" for name, (own, full) in one["reduced"].items())
    whole = "Full size." if one["size"] == "full" else "From the reduced runs of others, or as in the paper."
    sizes = f"Reduced ({reduced})." if reduced else whole
    seeds = f"Seeds {one['seeds']}." if one["seeds"] else ""
    parts = (one["caption"], sizes, seeds, f"Commit {one['made']['commit']}.")
    return " ".join(part for part in parts if part)


def results_page(paper: str, stored: list[dict[str, Any]]) -> str:
    """All tables and figures of a paper."""
    parts = [f"# {claims.PAPERS[paper]}: results", "", "Drawn by `papers/pages.py`; do not edit.", ""]
    own = [one for one in stored if one["paper"] == paper and one["shown"]]
    for one in own:
        parts += [
            f"## {one['name']}",
            "",
            caption(one),
            "",
            tables.markdown(one["head"], _text(one["rows"])),
            "",
        ]
    sizes = {one["size"] for one in own}
    pictures = sorted(path for size in sizes for path in (HERE / "results" / size).glob(f"{paper}.*.png"))
    parts += [f"![{path.stem}](../{path.relative_to(HERE).as_posix()})" for path in pictures]
    return "\n".join(parts) + "\n"


def _text(rows: list[list[Any]]) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in rows]


def drawn() -> dict[Path, str]:
    """What every page should be."""
    stored = results.every()
    pages = {HERE / "README.md": read_me(stored)}
    for paper in claims.PAPERS:
        pages[HERE / paper / "RESULTS.md"] = results_page(paper, stored)
    return pages


def stale() -> list[str]:
    """One line for each result whose code has changed since."""
    lines = []
    for one in results.every():
        moved = results.changed(one)
        if moved:
            shown = ", ".join(moved[:4]) + (" …" if len(moved) > 4 else "")
            lines.append(f"{one['paper']}.{one['name']}: {len(moved)} modules have changed since: {shown}")
    return lines


def main(arguments: list[str]) -> int:
    """Write the pages, or check them."""
    print("\n".join(stale()) or "no code has changed since")
    wrong = [path for path, text in drawn().items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in wrong:
            print(f"{path} is not drawn from the results: python papers/pages.py")
        return int(bool(wrong))
    for path, text in drawn().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
