"""Excess of the held-out loss of each rule: chosen on half of the tables, reported on the other half.

A table counts once, whatever the number of its draws: differences to the peers are averaged within a table,
and their errors are taken over tables.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from collections import defaultdict
from pathlib import Path

import numpy as np
import scipy
import sklearn

import onefit
from choice.collect import MODELS
from choice.rules import AVERAGES, OF_MODEL, PEERS, RULES, excess, excess_of_average

Array = np.ndarray
TRIM = 0.05
KINDS = {"logistic": "classification", "poisson": "counts"}  # of tables


def problems(folder: Path, model: str) -> dict[str, list[dict[str, Array]]]:
    """Records of every table, with those of its products, by the name of the table."""
    found: dict[str, list[dict[str, Array]]] = defaultdict(list)
    for file in sorted(folder.glob(f"{model}~*.npz")):
        table = file.stem.split("~")[1].split("*")[0]
        with np.load(file) as held:
            draws = sorted({key.rsplit("/", 1)[0] for key in held})
            for draw in draws:
                record = {
                    key.rsplit("/", 1)[1]: held[key].astype(float)
                    for key in held
                    if key.rsplit("/", 1)[0] == draw
                }
                if np.isfinite(record["loo"]).all() and record["held_out"].min() > 0:
                    found[table].append(record)
    return dict(found)


def excesses(folder: Path, model: str) -> dict[str, dict[str, list[float]]]:
    """Excess of each rule on each problem of each table."""
    losses, rules, found = MODELS[model].losses, RULES | OF_MODEL.get(model, {}), {}
    for table, records in problems(folder, model).items():
        own = {name: [excess(one, rule(one)) for one in records] for name, rule in rules.items()}
        for name, averaging in AVERAGES.items():
            own[name] = [excess_of_average(one, averaging(one), losses) for one in records]
        if records:
            found[table] = own
    return found


def halves(model: str, tables: list[str]) -> tuple[list[str], list[str]]:
    """Tables to choose on and to report on: as ``halves.json`` has them, which was set before the reporting.

    Those of regression that rules were first looked at on, for the lasso, are to choose on.
    """
    kinds = json.loads((Path(__file__).parent / "halves.json").read_text())
    own = kinds[KINDS.get(model.split()[0], "regression")]
    return [t for t in own["choosing"] if t in tables], [t for t in own["reporting"] if t in tables]


def summary(values: dict[str, dict[str, list[float]]], tables: list[str], rule: str) -> dict[str, object]:
    """Mean, trimmed mean and median over problems, and paired differences to the peers over tables."""
    every = np.sort(np.concatenate([values[table][rule] for table in tables]))
    cut = int(np.ceil(TRIM * len(every)))
    line: dict[str, object] = {
        "mean": every.mean(),
        "trimmed": every[: len(every) - cut].mean(),
        "median": np.median(every),
        "problems": len(every),
        "tables": len(tables),
    }
    for peer in PEERS:
        differences = np.array([np.mean(np.subtract(values[t][rule], values[t][peer])) for t in tables])
        line[f"to {peer}"] = differences.mean()
        line[f"to {peer}, error"] = differences.std(ddof=1) / np.sqrt(len(differences))
    line["worse"] = [t for t in tables if is_worse(values[t], rule)]
    return {key: float(v) if isinstance(v, np.floating) else v for key, v in line.items()}


def is_worse(table: dict[str, list[float]], rule: str) -> bool:
    """Whether a table's draws say that the rule is worse than 5 folds, by two paired errors and 5 %."""
    difference = np.subtract(table[rule], table["5 folds"])
    if len(difference) < 2:
        return False
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() > max(0.05, 2.0 * error))


def study(folder: Path, model: str) -> dict[str, object]:
    values = excesses(folder, model)
    choosing, reporting = halves(model, list(values))
    if min(len(choosing), len(reporting)) < 2:
        return {}
    return {
        half: {rule: summary(values, tables, rule) for rule in values[tables[0]]}
        for half, tables in (("chosen on", choosing), ("reported on", reporting))
    }


def show(model: str, found: dict[str, object]) -> None:
    for half, table in found.items():
        first = next(iter(table.values()))
        print(f"\n{model}, {half}: {first['problems']} problems of {first['tables']} tables, excess in %")
        for rule, line in sorted(table.items(), key=lambda item: item[1]["trimmed"]):
            numbers = "".join(f"{100 * line[key]:8.2f}" for key in ("mean", "trimmed", "median"))
            peers = "".join(
                f"{100 * line[f'to {p}']:8.2f} ±{100 * line[f'to {p}, error']:5.2f}" for p in PEERS
            )
            print(f"  {rule:<48}{numbers}   {peers}  {len(line['worse'])}")


def provenance() -> dict[str, str]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip(),
        "onefit": onefit.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--losses", type=Path, default=Path("benchmarks/choice/losses"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/choice/results.json"))
    options = parser.parse_args()
    models = sorted({file.stem.split("~")[0] for file in options.losses.glob("*~*.npz")})
    results: dict[str, object] = {"versions": provenance()}
    for model in models:
        results[model] = study(options.losses, model)
        show(model, results[model])
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
