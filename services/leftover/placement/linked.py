"""Which devices of a node tasks get, where some of them are linked to each other or near to a part of the machine.

Whole devices come from as few groups of linked ones as can be; of those choices from one NUMA node, where that is no
more groups; then so that the largest groups stay unbroken: what is free of each group afterwards, in descending order,
is as large as can be, compared one by one; then from the NUMA node with the fewest free. So a task of two takes a pair
that is left over before it breaks a group of four. Which nodes have room is the same as without links: whole devices
are alike for that.
"""

from typing import Final

from schemas.quantities import on_devices

_WHOLE: Final = 1_000


def numbered(near: list[tuple[str, int | None]]) -> tuple[list[int], list[int]]:
    """By device, given its group of linked ones and its NUMA node: the number of its group, where one that is not
    linked is a group by itself, and of its NUMA node, -1: not known. Both are empty where nothing is said of any.
    """
    if all(not link and numa is None for link, numa in near):
        return [], []
    numbers: dict[str, int] = {}
    links: list[int] = []
    for position, (link, _) in enumerate(near):
        links.append(numbers.setdefault(link, position) if link else position)
    return links, [-1 if numa is None else numa for _, numa in near]


def on_linked(milli: int, free: list[int], links: list[int], numas: list[int]) -> list[tuple[int, int]] | None:
    """As `on_devices`, with the choice of this module: [(position in `free`, milli taken)], or None where it does not
    fit. A fraction lies on the one device that it fits most tightly, among equals in a group that the task has anyway,
    then in the one with the fewest free.
    """
    if not links:
        return on_devices(milli, free)
    whole, part = divmod(milli, _WHOLE)
    chosen = whole_devices(whole, free, links, numas)
    if chosen is None:
        return None
    taken = [(position, _WHOLE) for position in chosen]
    if not part:
        return taken
    fitting = [position for position, room in enumerate(free) if room >= part and position not in chosen]
    if not fitting:
        return None
    own = [links[position] for position in chosen]
    untouched = [links[position] for position in _untouched(free) if position not in chosen]
    ranks = [
        (free[position], links[position] not in own, untouched.count(links[position]), position) for position in fitting
    ]
    taken.append((min(ranks)[3], part))
    return taken


def whole_devices(count: int, free: list[int], links: list[int], numas: list[int]) -> list[int] | None:
    """Positions of `count` untouched devices in ascending order, or None where there are fewer."""
    untouched = _untouched(free)
    if len(untouched) < count:
        return None
    if not count:
        return []
    best = _fewest(count, untouched, links)
    least, choices = _groups(best, links), list[list[int]]()
    for numa in dict.fromkeys([numas[position] for position in untouched]):
        there = [position for position in untouched if numas[position] == numa]
        if numa >= 0 and len(there) >= count:
            choice = _fewest(count, there, links)
            if _groups(choice, links) == least:
                choices.append(choice)
    if len(choices) < 2:
        return choices[0] if choices else best
    counts = [numas[position] for position in untouched]
    ranks = [(_broken(choice, untouched, links), counts.count(numas[choice[0]]), choice) for choice in choices]
    return min(ranks)[2]


def for_tasks(each: int, tasks: int, free: list[int], links: list[int], numas: list[int]) -> list[list[int]] | None:
    """`each` whole devices for each of `tasks` that start together: all are chosen as for one task, and then divided
    among the tasks. None where there are fewer.
    """
    together = whole_devices(each * tasks, free, links, numas)
    if together is None:
        return None
    pool = [0] * len(free)
    for position in together:
        pool[position] = _WHOLE
    parts: list[list[int]] = []
    for _ in range(tasks):
        part = whole_devices(each, pool, links, numas)
        assert part is not None, "what was chosen for all is enough for each"
        for position in part:
            pool[position] = 0
        parts.append(part)
    return parts


def _untouched(free: list[int]) -> list[int]:
    return [position for position, room in enumerate(free) if room >= _WHOLE]


def _groups(positions: list[int], links: list[int]) -> int:
    return len(dict.fromkeys([links[position] for position in positions]))


def _broken(choice: list[int], untouched: list[int], links: list[int]) -> list[int]:
    """What is left of each group, the largest first, as it compares: less is better."""
    left: dict[int, int] = {}
    for position in untouched:
        left[links[position]] = left.get(links[position], 0) - 1
    for position in choice:
        left[links[position]] = left[links[position]] + 1
    return sorted(left.values())


def _fewest(count: int, positions: list[int], links: list[int]) -> list[int]:
    """`count` of these positions, from as few groups as can be, so that the largest groups stay unbroken.

    Of the fewest groups that have enough all but one are used up: had another one something left, one fewer would have
    been enough. So a group is left alone, the largest first, as long as the largest of those behind it have enough.
    """
    members: dict[int, list[int]] = {}
    for position in positions:
        members.setdefault(links[position], []).append(position)
    groups = sorted(members.values(), key=lambda group: (-len(group), -group[0]))
    more, total = 0, 0
    while total < count:
        total += len(groups[more])
        more += 1
    chosen: list[int] = []
    for at, group in enumerate(groups):
        missing = count - len(chosen)
        if sum([len(other) for other in groups[at + 1 : at + 1 + more]]) < missing:
            chosen += group[:missing]
            more -= 1
        if not more:
            break
    return sorted(chosen)
