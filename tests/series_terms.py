"""Series of reservations, and occurrences of them, as they are asked for."""

from schemas.edge.read import read_input
from schemas.edge.reservations import occurrence_name
from tests.cells import AUTHOR

ATOM = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 1, "l": 60, "w": 60}
HOUR_S = 3_600
DAY_S = 24 * HOUR_S
STEP_S = 60


def window(end_s=HOUR_S, begin_s=0):
    return {"op": "window", "s": begin_s, "e": end_s, "of": ATOM}


def asked(**terms):
    series = {"series": "s", "user": "ann", "every": DAY_S, "start_s": DAY_S, "rdl": window()}
    return {"series": series | terms}


def body(author=AUTHOR, **terms):
    return read_input("reservations", asked(**terms), author)


def occurrence(at_s, series="s", user="ann", **terms):
    request = {"reservation": occurrence_name(series, at_s), "user": user, "series": series, "occurrence_s": at_s}
    return {"request": request | {"rdl": window(at_s + HOUR_S, at_s)} | terms}


def of(at_s, **terms):
    return read_input("reservations", occurrence(at_s, **terms), AUTHOR)


def names(*days):
    return [occurrence_name("s", day * DAY_S) for day in days]
