"""Tables made up to be written as people write them; each function returns the bytes of a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

Array = np.ndarray


def german(value: float, digits: int = 2) -> str:
    """68.045,57."""
    return f"{value:,.{digits}f}".translate(str.maketrans(",.", ".,"))


def text(mark: str, header: str, *columns: Any) -> str:
    """Columns of cells under a header whose names stand between blanks."""
    rows = zip(*columns, strict=True)
    return "\n".join(mark.join(map(str, row)) for row in [header.split(), *rows]) + "\n"


def rents(n: int = 900) -> bytes:
    """Rents of a year in German towns: Latin-1, semicolons, decimal commas and points between thousands."""
    rng = np.random.default_rng(1)
    towns = np.array(["Köln", "München", "Nürnberg", "Düsseldorf", "Görlitz", "Würzburg", "Lübeck", "Jena"])
    states = np.array(["gepflegt", "saniert", "renovierungsbedürftig"])
    town, state = rng.integers(0, 8, n), rng.integers(0, 3, n)
    area, built = rng.uniform(25.0, 320.0, n), rng.integers(1890, 2024, n)
    level = np.array([15, 21, 13, 16, 8, 12, 12, 11])[town] + np.array([0.0, 2.0, -2.5])[state]
    rent = 12.0 * area * level * (1.0 + 0.001 * (built - 1960)) * rng.lognormal(0.0, 0.12, n)
    rooms = np.maximum(1, np.round(area / 30.0 + rng.normal(0.0, 0.7, n))).astype(int)
    year = [str(one) if rng.random() > 0.04 else "" for one in built]
    cells = [german(one, 1) for one in area], rooms, year, states[state], [german(one) for one in rent]
    return text(";", "Ort Wohnfläche Zimmer Baujahr Zustand Jahresmiete", towns[town], *cells).encode(
        "latin-1"
    )


def calendar(n: int) -> tuple[pd.DatetimeIndex, Array, Array]:
    """Days from the first of 2022, where they are in the year as an angle, and in the week."""
    days = pd.date_range("2022-01-01", periods=n)
    return days, 2.0 * np.pi * days.day_of_year.to_numpy() / 365.25, days.day_of_week.to_numpy()


def sales(n: int = 900) -> bytes:
    """Sales day by day: dollars with commas between thousands, per cent, American dates."""
    rng = np.random.default_rng(2)
    days, angle, weekday = calendar(n)
    price, discount = rng.uniform(8.0, 30.0, n), rng.integers(0, 30, n)
    channel = rng.choice(["shop", "web", "phone"], n)
    of_week = np.array([0.0, 100.0, 150.0, 250.0, 800.0, 1400.0, -700.0])[weekday]
    revenue = 3000.0 + 1200.0 * np.cos(angle - 5.5) + of_week + 1.2 * np.arange(n) + 25.0 * discount
    revenue += 400.0 * (channel == "web") - 12.0 * price + rng.normal(0.0, 450.0, n)
    dollars = [f'"${one:,.2f}"' for one in np.maximum(revenue, 20.0)]
    cells = [f"${one:.2f}" for one in price], [f"{one}%" for one in discount], channel, dollars
    return text(",", "date price discount channel revenue", days.strftime("%m/%d/%Y"), *cells).encode()


def visitors(n: int = 900) -> bytes:
    """Visitors of a small museum day by day: tabs, German dates, decimal commas."""
    rng = np.random.default_rng(3)
    days, angle, weekday = calendar(n)
    warmth = 10.0 - 9.0 * np.cos(angle) + rng.normal(0.0, 4.0, n)
    weather = rng.choice(["sonnig", "bewölkt", "Regen"], n, p=[0.4, 0.35, 0.25])
    of_week = np.array([-2.5, -0.4, -0.3, -0.2, 0.0, 0.7, 0.9])[weekday]
    log_mean = 1.3 - 0.9 * np.cos(angle) + of_week + 0.3 * (weather == "Regen")
    cells = [german(one, 1) for one in warmth], weather, rng.poisson(np.exp(log_mean))
    return text("\t", "Datum Temperatur Wetter Besucher", days.strftime("%d.%m.%Y"), *cells).encode()


def patients(n: int = 900, visits: int = 15) -> bytes:
    """Blood pressure of patients who come again and again, each with a level of their own."""
    rng = np.random.default_rng(4)
    who = np.arange(n) // visits
    several = n // visits
    age, sex = rng.integers(25, 85, several)[who], rng.choice(["f", "m"], several)[who]
    weight = np.round(rng.normal(75.0, 13.0, several)[who] + rng.normal(0.0, 1.0, n), 1)
    dose = rng.choice([0, 10, 20], n)
    level = rng.normal(0.0, 12.0, several)[who]
    pressure = 118.0 + 0.25 * age + 0.15 * (weight - 75.0) - 0.2 * dose + level + rng.normal(0.0, 6.0, n)
    names, visit = [f"P{one:03d}" for one in who], np.arange(n) % visits + 1
    header = "patient visit age sex weight dose pressure"
    return text(",", header, names, visit, age, sex, weight, dose, np.round(pressure, 1)).encode()


def fraud(n: int = 5000, merchants: int = 400) -> bytes:
    """Payments, of which one in fifty is a fraud, at hundreds of merchants, most of them rare."""
    rng = np.random.default_rng(5)
    share = 1.0 / np.arange(1, merchants + 1)
    merchant = rng.choice(merchants, n, p=share / share.sum())
    amount, hour = np.round(rng.lognormal(3.4, 1.1, n), 2), rng.integers(0, 24, n)
    country = rng.choice(["DE", "FR", "US", "GB", "BR"], n, p=[0.4, 0.2, 0.2, 0.15, 0.05])
    present = rng.random(n) < 0.7
    score = -5.0 + 1.2 * (np.log(amount) - 3.4) + 2.0 * (country == "BR") + 1.4 * (hour < 6) - 2.0 * present
    score += rng.normal(0.0, 1.2, merchants)[merchant]
    is_fraud = np.where(score + rng.logistic(size=n) > 0, "yes", "no")
    shown = [f"merchant {one}" for one in merchant], amount, hour, country, np.where(present, "yes", "no")
    return text(",", "merchant amount hour country card_present fraud", *shown, is_fraud).encode()
