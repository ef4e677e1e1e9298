"""Words of messages: the nearest known name to a mistyped one, which names the fix; counts of things."""

from collections.abc import Iterable

WORD_MAX = 64  # Longer words are cut before they are compared: they are no typing slips.


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that the fewest slips turn `word` into, first by alphabet among equals; None where all are far off.

    A slip is a letter too many, missing, wrong, or swapped with its neighbour. About one in three letters may be wrong.
    """
    word = word[:WORD_MAX]
    best: str | None = None
    allowed = (len(word) + 2) // 3 if len(word) > 2 else 0
    for name in sorted(names):
        distance = _distance(word.lower(), name[:WORD_MAX].lower(), allowed)
        if distance <= allowed and name != word:
            best, allowed = name, distance - 1
    return best


def _distance(a: str, b: str, limit: int) -> int:
    """Slips between two words; any number above `limit` where there are more."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        above, row = row, [i]
        for j, other in enumerate(b, 1):
            slips = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                slips = min(slips, before[j - 2] + 1)
            row.append(slips)
        if min(row) > limit:
            return limit + 1
        before = above
    return row[-1]


def placed(field: str, detail: str) -> str:
    """A detail behind the field that it is about, which is named once: `queue: "a" is ...`, not `queue: queue "a"`."""
    named_twice = detail.startswith(f'{field} "')
    return f"{field}: {detail.removeprefix(f'{field} ') if named_twice else detail}"


def plural(count: int, what: str) -> str:
    """`1 job`, `2 jobs`, `1,000 jobs`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
