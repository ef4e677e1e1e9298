"""Chance in importers: stateless draws that have a name, so that the same options give the same bytes everywhere.

A draw is a whole number from largesse.ids.draw, or bytes of SHAKE-256 where a stage needs one a task. Logarithms and
exponentials are taken in decimal arithmetic of a fixed precision, which rounds correctly; no float is added up.
"""

from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256, shake_256
from statistics import NormalDist
from struct import unpack

from largesse.ids import draw
from services.simulator.workloads.source import nearest

EXACT = Context(prec=28, rounding=ROUND_HALF_EVEN)
"""Of every decimal logarithm and exponential here."""

_DRAWS = 1 << 64
_STRATA_BITS = 12  # A task's normal deviate is one of 4,096 equally likely ones, from -3.67 to 3.67.
_MILLION = 1_000_000


def below(limit: int, seed: int, purpose: str, name: str) -> int:
    """A whole number from 0 to `limit` - 1, each equally likely."""
    return draw(seed, 0, purpose, name) * limit >> 64


def arrivals_ms(mean_gap_ms: int, count: int, seed: int, purpose: str) -> Iterator[int]:
    """Poisson arrivals: exponential gaps with this mean, the first after the first gap. With mean 0 all come at 0."""
    at_ms = 0
    for number in range(count):
        if mean_gap_ms:
            # Never the logarithm of 0, and never quite 1: the gap is above 0.
            share = EXACT.divide(Decimal(2 * draw(seed, 0, purpose, str(number)) + 1), Decimal(2 * _DRAWS))
            gap = EXACT.multiply(EXACT.minus(EXACT.ln(share)), Decimal(mean_gap_ms))
            at_ms += nearest(Fraction(gap))
        yield at_ms


def drawn_names(names: list[str], count: int, seed: int, purpose: str) -> list[str]:
    """`count` of the names, each equally likely, in the order given; all where there are not more."""
    chosen = set(sorted(names, key=lambda name: (draw(seed, 0, purpose, name), name))[:count])
    return [name for name in names if name in chosen]


def stretched_ms(duration_ms: int, tasks: int, permille: int, seed: int, name: str) -> list[int]:
    """Durations of a stage's tasks: each `duration_ms` times exp(permille/1000 x z), z normal, at least 1 ms."""
    factors = _factors_ppm(permille)
    cuts = unpack(f">{tasks}H", shake_256(f"{seed}|stragglers|{name}".encode()).digest(2 * tasks))
    return [max(1, (duration_ms * factors[cut >> (16 - _STRATA_BITS)] + _MILLION // 2) // _MILLION) for cut in cuts]


def share_of_key(key: str) -> int:
    """u x 2^64 of the traces' own rules: the first 8 bytes of the key's SHA-256."""
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big")


@lru_cache(maxsize=8)
def _factors_ppm(permille: int) -> list[int]:
    return [nearest(Fraction(EXACT.exp(Decimal(z * permille) / 10**9)) * _MILLION) for z in normal_micro()]


@lru_cache(maxsize=1)
def normal_micro() -> list[int]:
    """Quantiles of the normal distribution in millionths, one for the middle of each stratum, ascending.

    From floats, but rounded so coarsely that no platform's last bit matters (a test holds their digest).
    """
    strata = 1 << _STRATA_BITS
    return [round(NormalDist().inv_cdf((2 * i + 1) / (2 * strata)) * _MILLION) for i in range(strata)]
