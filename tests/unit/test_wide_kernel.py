"""Wide integers in compiled code against Python's own, above all where digits are guessed wrongly or do not fit."""

from random import Random

import pytest

pytest.importorskip("numba")

import numpy as np
from numba import njit
from numba.core import caching

from services.fairness import fill_kernel, water_kernel, wide_kernel
from services.fairness.wide_kernel import BITS, load, part, ratio, scaled, store, times

ONE = 1 << 128
MOST = (1 << BITS) - 1


@njit  # And not kept on disk, where changes of what it calls would go unseen.
def reckon(words, out, numbers):
    """For each three numbers: both products, a ratio, a part, and whether any was trouble."""
    for at in range(numbers):
        left, right, by = load(words, 1 + 3 * at), load(words, 2 + 3 * at), load(words, 3 + 3 * at)
        store(out, 8 * at, times(words, left, right))
        out[32 * at + 16], words[0] = words[0], 0
        store(out, 8 * at + 1, scaled(words, left, right))
        out[32 * at + 17], words[0] = words[0], 0
        store(out, 8 * at + 2, ratio(words, left, by))
        out[32 * at + 18], words[0] = words[0], 0
        store(out, 8 * at + 3, part(words, left, right, by))
        out[32 * at + 19], words[0] = words[0], 0


def reckoned(numbers):
    """The four results for each three numbers; None where there was trouble."""
    raw = b"".join(
        each.to_bytes(32, "little", signed=True) for each in (0, *[each for three in numbers for each in three])
    )
    words, out = np.frombuffer(raw, dtype=np.int64).copy(), np.zeros(32 * len(numbers), dtype=np.int64)
    reckon(words, out, len(numbers))
    found = []
    for row in out.reshape(-1, 32):
        wides = row.tobytes()
        four = [int.from_bytes(wides[at : at + 32], "little", signed=True) for at in range(0, 128, 32)]
        found.append([None if trouble else each for each, trouble in zip(four, row[16:20].tolist(), strict=True)])
    return found


def expected(left, right, by):
    four = [left * right, left * right >> 128]
    four += [(left << 128) // by if by > 0 else None, left * right // by if by > 0 and min(left, right) >= 0 else None]
    # The lowest number of so many bits is let through by products alone, as in any two's complement.
    return [each if each is not None and -(1 << BITS) <= each <= MOST else None for each in four]


def agrees(found, right):
    """Where a result is at the very edge of what is let through, either is fine; nothing wrong ever is."""
    return all(got == want or (got is None and abs(want) == MOST + 1) for got, want in zip(found, right, strict=True))


def uneven(draw, bits):
    """A number of so many bits: any, all ones, a one and noughts, ones and noughts in stretches."""
    if not bits:
        return 0
    shape = draw.randrange(5)
    number = draw.getrandbits(bits) | 1 << bits - 1
    if shape == 1:
        number = (1 << bits) - 1 - draw.getrandbits(min(bits - 1, 3)) if bits > 1 else 1
    elif shape == 2:
        number = (1 << bits - 1) + draw.getrandbits(min(bits - 1, 3)) if bits > 1 else 1
    elif shape == 3:
        number = (1 << bits) - (1 << draw.randrange(bits))
    elif shape == 4:
        number = sum(((1 << 64) - 1 if draw.randrange(2) else draw.getrandbits(2)) << at for at in range(0, bits, 64))
        number &= (1 << bits) - 1
    return number


EDGES = [0, 1, 2, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, ONE - 1, ONE, ONE + 1, (1 << 192) - 1, 1 << 192, MOST]


def test_every_pair_of_edges_comes_out_as_in_python():
    numbers = [(left, right, by) for left in EDGES for right in EDGES for by in EDGES]
    numbers += [(-left, right, by) for left in EDGES for right in EDGES[:6] for by in EDGES[:6]]

    for three, found in zip(numbers, reckoned(numbers), strict=True):
        assert agrees(found, expected(*three)), three


@pytest.mark.parametrize("seed", range(3))
def test_so_do_uneven_numbers_of_all_lengths(seed):
    draw = Random(seed)
    numbers = []
    for _ in range(20_000):
        left, right, by = (uneven(draw, draw.randrange(BITS + 1)) for _ in range(3))
        if draw.randrange(3) == 0 and by:
            # A product that lies next to a multiple of the divisor: the last digit decides.
            right = min(MOST, (by * uneven(draw, draw.randrange(100)) + draw.randrange(-1, 2)) // max(1, left))
            right = max(right, 0)
        numbers.append((left if draw.randrange(4) else -left, right, by))

    for three, found in zip(numbers, reckoned(numbers), strict=True):
        assert agrees(found, expected(*three)), three


def test_what_has_too_many_bits_is_trouble_and_what_just_fits_is_not():
    just, over = (1 << 115, 1 << 114, 1), (1 << 115, 1 << 115, 1)

    fits, fails = reckoned([just, over])

    assert fits[0] == 1 << 229
    assert fails[0] is None
    assert reckoned([(1 << 101, 1, 1)])[0][2] == 1 << 229
    assert reckoned([(1 << 102, 1, 1)])[0][2] is None


@pytest.mark.parametrize("by", [0, -1, -ONE])
def test_division_by_what_is_not_above_zero_is_trouble(by):
    assert reckoned([(5, 7, by)])[0][2:] == [None, None]


def test_where_nothing_can_be_kept_on_disk_code_is_compiled_all_the_same(monkeypatch):
    kept = caching.CacheImpl if hasattr(caching, "CacheImpl") else caching._CacheImpl  # By the version of numba.
    monkeypatch.setattr(kept, "_locator_classes", [])

    made = wide_kernel.entry(lambda words: words[0] + 1)

    assert made(np.array([4])) == 5
    assert made.stats.cache_path is None


def test_what_is_kept_on_disk_counts_only_for_the_texts_it_was_made_of():
    texts = wide_kernel.source_of(wide_kernel, water_kernel)

    assert texts != wide_kernel.source_of(wide_kernel, fill_kernel)
    assert [cell.cell_contents for cell in fill_kernel.run.py_func.__closure__] == [texts]
