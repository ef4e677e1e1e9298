"""Vectors of whole base units: millicores, MiB, Mbit/s, milli-GPUs, and any custom countable resource.

On the outside quantities look as in Kubernetes (`"500m"`, `"2Gi"`, 2); inside they are integers, so that sums are
exact. Demands round up to base units, capacities down (docs/jobs.md).
"""

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

Vector = dict[str, int]
"""Resource name -> whole base units. Keys in sorted order wherever a vector enters a record."""

MILLIONTHS: Final = 1_000_000  # A weight of 1.
SHARE_UNITS: Final = 1_000_000_000  # A share of the whole cell.
SLOTS = "slots"  # What alone counts under the preset of that name: places of nodes, one a task.
QUANTITY_MAX: Final = 2**53 - 1  # The largest integer that every JSON reader keeps exactly.

BARE_MIN: Final = 1_000_000
"""A bare amount of bytes or bit/s (memory, disk, network, disk_io) below this is refused: a suffix was forgotten."""

MIB: Final = 1 << 20
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_UNIT = {  # Natural units, those of a quantity without suffix -> base units.
    "cpu": Fraction(1000),
    "gpu": Fraction(1000),
    "memory": Fraction(1, MIB),
    "disk": Fraction(1, MIB),
    "network": Fraction(1, 10**6),
    "disk_io": Fraction(1, 10**6),
}
RESOURCES = tuple(_UNIT)
"""Resources with units of their own: what a misspelt one may mean, also where no node has it."""

_BYTES = ("bytes", ("Mi", "MiB"), ("Gi", "GiB"))
_BITS = ("bit/s", ("M", "Mbit/s"), ("G", "Gbit/s"))
_BARE = {"memory": _BYTES, "disk": _BYTES, "network": _BITS, "disk_io": _BITS}
_SUFFIXES = ("m", *(suffix for suffix in _DECIMAL if suffix), *_BINARY)
_SPELT = {suffix.lower(): suffix for suffix in (*_DECIMAL, *_BINARY)}
_NEARLY = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]{0,2}?)(?:[bB]|[bB]ytes?)?\s*")
DIGITS_MAX, DECIMALS_MAX = 18, 9
QUANTITY_TEXT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(m|k|[MGTP]|[KMGTP]i)?")
_LONG_NUMBER = re.compile(r"([0-9]+)(?:\.[0-9]+)?(?:m|k|[MGTP]|[KMGTP]i)?")
RESOURCE_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")


def parse_quantity(resource: str, value: int | str | Decimal, *, round_up: bool) -> int:
    """Base units of `value`: a text with or without suffix, or a bare number, which is in natural units as a text
    without suffix is. Raises ValueError with what is wrong and an example of what is right.
    """
    if not isinstance(value, str) and value < 0:
        raise ValueError(f"may not be negative, is {_digits(value)}")
    exact = _parse_text(resource, _digits(value))
    if exact.denominator > 1 and resource not in _UNIT:
        raise ValueError(f'"{resource}" is counted in whole numbers, "{_digits(value)}" is none')
    whole = -(-exact.numerator // exact.denominator) if round_up else exact.numerator // exact.denominator
    if not 0 <= whole <= QUANTITY_MAX:
        raise ValueError(f"is too large: the most is {quantity_text(resource, QUANTITY_MAX)}")
    return whole


def _digits(value: int | str | Decimal) -> str:
    """A number as a text without exponent."""
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _parse_text(resource: str, text: str) -> Fraction:
    match = QUANTITY_TEXT.fullmatch(text)
    if match is None and QUANTITY_TEXT.fullmatch(text.removeprefix("-")):
        raise ValueError(f'may not be negative, is "{text[:40]}"')
    if match is None and (long := _LONG_NUMBER.fullmatch(text)):
        if len(long[1].lstrip("0")) > DIGITS_MAX:
            raise ValueError(f"is too large: the most is {quantity_text(resource, QUANTITY_MAX)}")
        raise ValueError(f"has too many digits: at most {DIGITS_MAX} before the point and {DECIMALS_MAX} behind it")
    if match is None:
        message = f'write a number with an optional suffix, like "500m", "2" or "2Gi"; suffixes: {", ".join(_SUFFIXES)}'
        close = _meant(resource, text)
        raise ValueError(f'"{text[:40]}" is no quantity: {message}' + (f'; did you mean "{close}"?' if close else ""))
    number, suffix = Fraction(match[1]), match[2] or ""
    if not suffix and 0 < number < BARE_MIN:
        _refuse_small(resource, match[1])
    if suffix == "m":
        scaled = number / 1000
    elif suffix in _BINARY:
        scaled = number * _BINARY[suffix]
    else:
        scaled = number * _DECIMAL[suffix]
    return scaled * _UNIT.get(resource, Fraction(1))


def _refuse_small(resource: str, number: str) -> None:
    """512 bytes, or 100 bit/s, is never meant: a suffix was forgotten."""
    if resource in _BARE:
        unit, (small, small_name), (large, large_name) = _BARE[resource]
        text = f'write "{number}{small}" for {number} {small_name}, "{number}{large}" for {number} {large_name}'
        raise ValueError(f"{number} is {number} {unit}: {text}")


def _meant(resource: str, text: str) -> str | None:
    """The quantity that a text with a suffix of another custom most likely means: "1GB", "2gi", "3 MiB"."""
    match = _NEARLY.fullmatch(text)
    suffix = None if match is None else _SPELT.get(match[2].lower())
    if match is None or suffix is None or (not suffix and resource in _BARE and Fraction(match[1]) < BARE_MIN):
        return None
    return match[1] + suffix


def quantity_text(resource: str, amount: int) -> str:
    """An amount in base units as people write it, `"500m"`, `"2Gi"`, `"10G"`: exact, so it reads back as the same."""
    unit = _UNIT.get(resource, Fraction(1))
    if unit == 1000:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if unit == Fraction(1, MIB):
        for suffix, mib in (("Ti", 1 << 20), ("Gi", 1 << 10)):
            if amount and amount % mib == 0:
                return f"{amount // mib}{suffix}"
        return f"{amount}Mi"
    if unit == Fraction(1, 10**6):
        return f"{amount // 1000}G" if amount and amount % 1000 == 0 else f"{amount}M"
    return str(amount)


def quantity_texts(vector: Vector) -> dict[str, str]:
    """A vector as documents for the outside show it, and read it back: resource -> `quantity_text`."""
    return {resource: quantity_text(resource, amount) for resource, amount in vector.items()}


def rounded_text(resource: str, amount: int) -> str:
    """An amount in base units for people to read: as `quantity_text`, but bytes in their largest unit, `"7.5Gi"`, with
    two digits behind the point at most. Rounds down, so that what there is never looks like more.
    """
    if _UNIT.get(resource) == Fraction(1, MIB):
        for suffix, mib in (("Ti", 1 << 20), ("Gi", 1 << 10)):
            if amount >= mib:
                whole, hundredths = divmod(amount * 100 // mib, 100)
                return f"{whole}.{hundredths:02}".rstrip("0").rstrip(".") + suffix
    return quantity_text(resource, amount)


def natural_amount(resource: str, amount: int) -> float:
    """An amount in natural units, for metrics: cores, bytes, bit/s, devices."""
    return float(amount / _UNIT.get(resource, Fraction(1)))


def vector_text(vector: Vector) -> str:
    """All of it in its order, rounded: `"cpu 2, memory 7.5Gi"`."""
    return ", ".join(f"{resource} {rounded_text(resource, amount)}" for resource, amount in vector.items())


def add_amounts(sums: Vector, amounts: Vector, times: int) -> None:
    """Adds a multiple of amounts to sums (subtracts, where negative). Kinds that become 0 stay.

    Multiplied by what is not negative: compiled code multiplies negative numbers as objects, which takes ten times as
    long.
    """
    if times >= 0:
        for resource, amount in amounts.items():
            sums[resource] = sums.get(resource, 0) + amount * times
    else:
        fewer = -times
        for resource, amount in amounts.items():
            sums[resource] = sums.get(resource, 0) - amount * fewer


def fits_in(demand: Vector, room: Vector) -> bool:
    """Whether `room` holds at least `demand` in every resource that it asks for."""
    return all(amount <= room.get(resource, 0) for resource, amount in demand.items())


def dominant_share(use: Vector, capacity: Vector) -> int:
    """The largest use / capacity over the resources that exist, in 10^-9 of the cell, rounded down."""
    return max((amount * SHARE_UNITS // capacity[r] for r, amount in use.items() if capacity.get(r, 0) > 0), default=0)


def largest_share(amounts: list[int], total: list[int]) -> int:
    """The same for vectors by position of the resource."""
    share = 0
    for p, amount in enumerate(amounts):
        if amount > 0 and total[p] and (part := amount * SHARE_UNITS // total[p]) > share:
            share = part
    return share


def on_devices(milli: int, free: list[int]) -> list[tuple[int, int]] | None:
    """Places a GPU demand on devices: [(position in `free`, milli taken)], or None where it does not fit.

    Whole GPUs take untouched devices, lowest position first; the fraction lies on the one device that it fits most
    tightly, lowest position first among equals. `free` is left as it is.
    """
    whole, part = divmod(milli, 1000)
    taken: list[tuple[int, int]] = []
    used: list[int] = []
    for position, room in enumerate(free):
        if len(used) == whole:
            break
        if room >= 1000:
            used.append(position)
            taken.append((position, 1000))
    if len(used) < whole:
        return None
    if part:
        fitting = [(room, position) for position, room in enumerate(free) if room >= part and position not in used]
        if not fitting:
            return None
        taken.append((min(fitting)[1], part))
    return taken


def tasks_on_devices(milli: int, devices: list[int], most: int) -> int:
    """How many tasks, `most` at most, find room one after the other on devices with so much free, in milli-GPUs.

    Costs the devices, or those squared where a task takes whole ones and a fraction; never the tasks.
    """
    whole, part = divmod(milli, 1000)
    if part and not whole:
        return min(most, sum(room // part for room in devices))
    if whole and not part:
        return min(most, sum(room >= 1000 for room in devices) // whole)
    free = devices.copy()
    for task in range(most if milli else 0):
        taken = on_devices(milli, free)
        if taken is None:
            return task
        for position, share in taken:
            free[position] -= share
    return most
