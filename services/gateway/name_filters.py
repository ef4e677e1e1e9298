"""Which names a stretch of the log may speak of, in a kilobyte: a Bloom filter (Bloom 1970)."""

BITS = 1 << 13
"""For some 600 names, as 250 records have, one name in a hundred is taken for one of them."""
_MASK, _SHIFT = BITS - 1, BITS.bit_length() - 1


class NameFilter:
    """Names that were added, and few others."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = bytearray(BITS // 8)

    def add(self, name: str) -> None:
        """Adds a name."""
        for at in _bits_of(name):
            self._bits[at >> 3] |= 1 << (at & 7)

    def may_have(self, name: str) -> bool:
        """False: it was not added."""
        return all(self._bits[at >> 3] >> (at & 7) & 1 for at in _bits_of(name))


def _bits_of(name: str) -> tuple[int, int, int]:
    drawn = hash(name)
    return drawn & _MASK, drawn >> _SHIFT & _MASK, drawn >> 2 * _SHIFT & _MASK
