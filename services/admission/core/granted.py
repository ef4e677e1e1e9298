"""Which attempts of a stage's tasks were granted, run-length encoded: the cost depends on what was granted, not on the
number of tasks.

A list has pairs, flat and ascending: the first index of a run, and the mark of all tasks up to the next pair's index.
Tasks before the first pair have the mark 0: no attempt. A mark is `attempt * 2`, plus 1 while that attempt holds room.
"""

HELD = 1
"""The bit of a mark that says that the attempt holds room."""


def mark_of(attempt: int, held: bool) -> int:
    """The mark of tasks whose last attempt is this one."""
    return attempt * 2 + HELD if held else attempt * 2


def attempt_of(mark: int) -> int:
    """The last attempt that was granted; 0: none."""
    return mark // 2


def is_held(mark: int) -> bool:
    """Whether that attempt holds room."""
    return mark % 2 == HELD


NOTHING: list[int] = []
"""No task of a stage was ever granted. Shared by all such stages, as are those of _LONE: nobody changes them."""

_LONE = [[0, mark] for mark in range(8)]
"""By mark, what is kept of a stage with one task: jobs of one task are many, and most are alike in this."""

_LONE_STAGE = [[pairs] for pairs in _LONE]
_NO_STAGE_YET = [NOTHING]


def nothing_yet(stages: int) -> list[list[int]]:
    """What is kept of a job of so many stages of which nothing was granted. That of one stage is shared."""
    return _NO_STAGE_YET if stages == 1 else [NOTHING] * stages


def put_in(stages: list[list[int]], at: int, first: int, end: int, mark: int, tasks: int) -> list[list[int]]:
    """`put` in what is kept of stage `at` of a job: what to keep of the job instead."""
    if len(stages) == 1:
        if tasks == 1 and mark < len(_LONE_STAGE):
            return _LONE_STAGE[mark]
        return [put(stages[0], first, end, mark, tasks)]
    stages[at] = put(stages[at], first, end, mark, tasks)
    return stages


def put(granted: list[int], first: int, end: int, mark: int, tasks: int) -> list[int]:
    """Gives tasks `first` .. `end - 1`, of a stage's `tasks`, another mark; returns the list to keep instead.

    Neighbours of one mark stay one run.
    """
    if tasks == 1:
        return _LONE[mark] if mark < len(_LONE) else [0, mark]
    if not granted:
        granted = []
    low, pairs = _pairs_before(granted, first), len(granted) // 2
    high = low
    while high < pairs and granted[2 * high] <= end:  # Few, and all of them are dropped.
        high += 1
    before = granted[2 * low - 1] if low else 0
    behind = granted[2 * high - 1] if high else 0
    if end < tasks and behind != mark:
        changed = [end, behind] if before == mark else [first, mark, end, behind]
    else:
        changed = [] if before == mark else [first, mark]
    granted[2 * low : 2 * high] = changed
    return granted


def marks(granted: list[int], first: int, end: int) -> list[tuple[int, int, int]]:
    """The runs of tasks `first` .. `end - 1`, each as its first index, the index behind its last, and its mark."""
    found = []
    pair = _pairs_before(granted, first + 1)
    mark = granted[2 * pair - 1] if pair else 0
    at = first
    while at < end:
        behind = granted[2 * pair] if 2 * pair < len(granted) else end
        behind = min(behind, end)
        found.append((at, behind, mark))
        if behind < end:
            mark = granted[2 * pair + 1]
        at = behind
        pair += 1
    return found


def _pairs_before(granted: list[int], index: int) -> int:
    """How many pairs stand at an index below this one."""
    low, high = 0, len(granted) // 2
    while low < high:
        middle = (low + high) // 2
        if granted[2 * middle] < index:
            low = middle + 1
        else:
            high = middle
    return low
